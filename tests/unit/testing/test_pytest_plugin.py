import pytest

pytest_plugins = ["pytester"]

PLUGIN = ("-p", "spark_kafka_sink.testing.pytest_plugin")

TEST = """
    import pytest

    @pytest.mark.parametrize("other", [1, 2])
    def test_default(local_kafka, other): ...

    @pytest.mark.parametrize("local_kafka", ["3.9.1", "4.3.1"], indirect=True, scope="session")
    def test_marked(local_kafka): ...
"""


def names(pytester: pytest.Pytester, *options: str) -> set[str]:
    pytester.makepyfile(TEST)
    result = pytester.runpytest_inprocess(*PLUGIN, "--collect-only", "-q", *options)
    return {line.split("::")[1] for line in result.outlines if "::" in line}


def test_one_version_unless_told_otherwise(pytester):
    marked = {"test_marked[3.9.1]", "test_marked[4.3.1]"}
    assert names(pytester) == {"test_default[4.4.0-1]", "test_default[4.4.0-2]"} | marked


def test_each_test_runs_on_each_version_asked_for_but_a_mark_stands(pytester):
    asked = names(pytester, "--kafka-version", "4.0.0", "--kafka-version", "4.2.0")
    assert {name for name in asked if name.startswith("test_default")} == {
        "test_default[4.0.0-1]", "test_default[4.0.0-2]", "test_default[4.2.0-1]", "test_default[4.2.0-2]",
    }  # fmt: skip
    assert {name for name in asked if name.startswith("test_marked")} == {"test_marked[3.9.1]", "test_marked[4.3.1]"}


def test_a_kafka_that_cannot_start_fails_the_test_and_never_skips_it(pytester):
    pytester.makepyfile("def test_it(local_kafka): ...")
    result = pytester.runpytest_subprocess(*PLUGIN, "-p", "no:hypothesispytest", "--kafka-version", "none")
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*KafkaJarsError: Kafka version 'none' is not of the form 4.4.0."])
