"""The verdict and its text."""

import pytest

import spark_kafka_sink
from spark_kafka_sink.tools.certification.certificate import Certificate
from spark_kafka_sink.tools.certification.plan import KINDS
from spark_kafka_sink.tools.connection_check.findings import Finding, Outcome

DAY_MS = 86_400_000


def read(*kinds):
    """The findings of writes whose rows were read back."""
    return [Finding(kind.guarantee, f"read {kind.way}", Outcome.OK, "as written") for kind in kinds]


def certificate(*outcomes, kinds=()):
    findings = [Finding("exactly-once", f"step {at}", each, "said", 1.0) for at, each in enumerate(outcomes)]
    return Certificate(
        [*findings, *read(*kinds)], {"Spark": "4.2.0", "brokers": "", "not tried": "includeHeaders"}, DAY_MS
    )


@pytest.mark.parametrize(
    ("outcomes", "worked", "verdict"),
    [
        ([Outcome.OK, Outcome.OK], True, "certified, no step failed"),
        ([Outcome.OK, Outcome.ADVICE], True, "certified, no step failed"),
        (
            [Outcome.OK, Outcome.FAILED, Outcome.ADVICE, Outcome.FAILED],
            False,
            "NOT certified, 2 of 7 steps failed, first step 1 of exactly-once",
        ),
    ],
)
def test_one_line_says_whether_every_step_worked(outcomes, worked, verdict):
    made = certificate(*outcomes, kinds=KINDS)
    assert made.worked is worked
    fence, line, *_ = made.text.splitlines()
    assert fence == "```text"
    assert line == f"spark-kafka-sink {spark_kafka_sink.__version__}: {verdict} (1970-01-02 00:00 UTC)"
    assert repr(made) == f"<Certificate: {verdict}>"
    assert str(made) == made.text


@pytest.mark.parametrize("missing", KINDS)
def test_a_run_that_read_not_every_topic_was_certified_because_nothing_had_failed(missing):
    made = certificate(Outcome.OK, kinds=[each for each in KINDS if each != missing])
    assert not made.worked
    assert "NOT certified, no step failed" in made.text


def test_facts_without_a_text_are_left_out():
    assert certificate(Outcome.OK).text.splitlines()[2:] == [
        "", "Spark      4.2.0", "not tried  includeHeaders", "", "ok       exactly-once, step 0: said", "```",
    ]  # fmt: skip
