from spark_kafka_sink.common.model import NO_LEADER
from spark_kafka_sink.producer.accumulator.accumulator import NodeAvailability


def test_a_node_is_unavailable_once_it_has_kept_data_waiting_for_longer_than_the_timeout():
    nodes = NodeAvailability(100)
    nodes.update(1, False, 1_000)
    nodes.update(1, False, 1_100)
    assert nodes.unavailable == {NO_LEADER}
    nodes.update(1, False, 1_101)
    assert nodes.unavailable == {NO_LEADER, 1}


def test_a_node_that_takes_data_again_is_available_again():
    nodes = NodeAvailability(100)
    nodes.update(1, False, 0)
    nodes.update(1, False, 200)
    nodes.update(1, True, 300)
    assert nodes.unavailable == {NO_LEADER}
    nodes.update(1, False, 350)
    assert nodes.unavailable == {NO_LEADER}  # waits anew, since 350


def test_a_node_for_which_nothing_waited_is_not_late():
    nodes = NodeAvailability(100)
    nodes.update(1, True, 0)
    nodes.update(1, False, 60_000)
    assert nodes.unavailable == {NO_LEADER}


def test_without_a_timeout_every_node_stays_available():
    nodes = NodeAvailability(0)
    nodes.update(1, False, 0)
    nodes.update(1, False, 1e9)
    assert nodes.unavailable == {NO_LEADER}
