from spark_kafka_sink.network.rights import Operation, names, operations


def test_the_bits_are_those_of_kip_430():
    assert operations(3576) == {
        Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS,
    }  # fmt: skip
    assert operations(0) == frozenset()


def test_a_broker_that_does_not_tell_is_told_from_one_that_allows_nothing():
    assert operations(-2147483648) is None
    assert names(frozenset()) == "nothing"
