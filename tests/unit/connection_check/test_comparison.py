"""What differs between the findings of the driver and of a worker."""

import re
import subprocess
import sys
from importlib import metadata

from spark_kafka_sink.tools.findings import Finding, Outcome, library_findings, required_libraries
from spark_kafka_sink.tools.worker_check import Place, WorkerFindings, differences

OK, FAILED = Outcome.OK, Outcome.FAILED
BROKER = "kafka1:9093"


def steps(*texts, last=OK):
    """DNS, TCP, TLS, SASL of one broker, as far as there are texts; ``last``: how the last one ended."""
    names = ("DNS", "TCP", "TLS", "SASL")[: len(texts)]
    outcomes = [OK] * (len(texts) - 1) + [last]
    return [Finding(BROKER, *each, 1.5) for each in zip(names, outcomes, texts, strict=True)]


HERE = steps("10.0.0.1, 10.0.0.2", "10.0.0.1 port 9093", "TLSv1.3", "PLAIN as me")


def told(here, there):
    return [(each.step, each.outcome, each.text) for each in differences(here, there)]


def test_times_the_order_of_addresses_and_which_one_accepts_are_no_difference():
    there = steps("10.0.0.2, 10.0.0.1", "10.0.0.2 port 9093", "TLSv1.3", "PLAIN as me")
    assert told(HERE, [Finding(each.subject, each.step, each.outcome, each.text, 99.0) for each in there]) == []


def test_what_works_only_there_is_told_up_to_the_step_that_failed_here():
    here = steps("unknown name", last=FAILED)
    assert told(here, HERE[:2]) == [
        ("DNS", OK, f"{BROKER}: 10.0.0.1, 10.0.0.2\nhere: FAILED, unknown name"),
    ]


def test_incident_a_worker_without_a_right_was_compared_with_the_drivers_other_right():
    here = [Finding("topic t", "rights", OK, "DESCRIBE"), Finding("topic t", "rights", Outcome.UNTESTED, "WRITE")]
    there = [Finding("topic t", "rights", FAILED, "no DESCRIBE"), here[1]]
    assert told(here, there) == [("rights", FAILED, "topic t: no DESCRIBE\nhere: DESCRIBE")]
    assert told(here, here[:1]) == [("rights", Outcome.UNTESTED, "topic t: was not tried there")]


def test_a_step_that_fails_on_both_is_no_difference_whatever_it_says():
    assert told(steps("no response within 10 ms", last=FAILED), steps("unknown name", last=FAILED)) == []


def test_other_addresses_another_certificate_and_another_user_are_told():
    there = steps("10.0.0.9", "10.0.0.9 port 9093", "TLSv1.2", "PLAIN as you")
    assert [each.step for each in differences(HERE, there)] == ["DNS", "TLS", "SASL"]


def test_places_with_the_same_differences_are_one_group():
    slow, fast = steps("unknown name", last=FAILED), [Finding(BROKER, "DNS", FAILED, "unknown name", 0.1)]
    found = {Place("c", 1): slow, Place("b", 1): HERE, Place("a", 12): HERE, Place("a", 7): fast}
    found = WorkerFindings(5, found).compared(HERE)
    assert [" ".join(each.split()) for each in found.lines] == [
        "executor a (process 7), c (process 1)",
        f"FAILED DNS {BROKER}: unknown name here: 10.0.0.1, 10.0.0.2",
    ]
    assert found.summary == "4 executors, 2 differ from the driver, first at DNS, 1 got no task"
    assert found.failed
    alike = WorkerFindings(None, {Place("b", 1): HERE}).compared(HERE)
    assert (alike.summary, [*alike.lines], alike.failed) == ("1 executor, none differs from the driver", [], False)


def test_the_libraries_are_those_that_the_package_requires(monkeypatch):
    names = required_libraries()
    assert {"kio", "pyarrow", "cryptography"} <= set(names)
    assert "botocore" not in names, "of an extra"
    found = {each.step: each for each in library_findings([*names, "no-such-library"])}
    assert found["kio"].text == metadata.version("kio")
    assert re.match(r"3\.\d+\.\d+", found["Python"].text)
    assert found["no-such-library"] == Finding("libraries", "no-such-library", FAILED, "is not installed")
    monkeypatch.setattr("spark_kafka_sink.tools.findings._PACKAGE", "no-such-package")
    assert required_libraries() == (), "without the package's metadata"


def test_a_process_without_the_libraries_still_says_which_it_lacks():
    code = """
import sys
for name in ("asn1crypto", "cramjam", "crc32c", "cryptography", "kio", "lz4", "mmh3", "numpy", "pyarrow", "zstandard"):
    sys.modules[name] = None
from spark_kafka_sink.tools.findings import library_findings
print([each.text for each in library_findings(["kio", "no-such-library"])][-1])
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == (
        "is not installed"
    )
