"""What differs between the findings of the driver and of a worker."""

import re
import subprocess
import sys
from importlib import metadata

from spark_kafka_sink.tools.connection_check.findings import (
    Difference,
    Finding,
    Outcome,
    Place,
    by_differences,
    differences,
    library_findings,
    required_libraries,
)

OK, FAILED, UNTESTED = Outcome.OK, Outcome.FAILED, Outcome.UNTESTED
BROKER = "kafka1:9093"


def steps(*texts, last=OK):
    """DNS, TCP, TLS, SASL of one broker, as far as there are texts; ``last``: how the last one ended."""
    names = ("DNS", "TCP", "TLS", "SASL")[: len(texts)]
    outcomes = [OK] * (len(texts) - 1) + [last]
    return [Finding(BROKER, *each, 1.5) for each in zip(names, outcomes, texts, strict=True)]


HERE = steps("10.0.0.1, 10.0.0.2", "10.0.0.1 port 9093", "TLSv1.3", "PLAIN as me")


def test_times_the_order_of_addresses_and_which_one_accepts_are_no_difference():
    there = steps("10.0.0.2, 10.0.0.1", "10.0.0.2 port 9093", "TLSv1.3", "PLAIN as me")
    assert differences(HERE, [Finding(*each) for each in map(fields, there)]) == ()


def fields(finding):
    return finding.subject, finding.step, finding.outcome, finding.text, 99.0


def test_a_step_that_fails_only_there_is_told_and_not_those_behind_it():
    there = steps("unknown name", last=FAILED)
    assert differences(HERE, there) == (Difference(there[0], HERE[0]),)


def test_a_step_that_fails_only_here_is_told_and_not_those_behind_it():
    here = steps("unknown name", last=FAILED)
    assert differences(here, HERE) == (Difference(HERE[0], here[0]),)


def test_a_step_that_fails_on_both_is_no_difference_whatever_it_says():
    assert differences(steps("no response within 10 ms", last=FAILED), steps("unknown name", last=FAILED)) == ()


def test_other_addresses_another_certificate_and_another_user_are_told():
    there = steps("10.0.0.9", "10.0.0.9 port 9093", "TLSv1.2", "PLAIN as you")
    assert [each.there.step for each in differences(HERE, there)] == ["DNS", "TLS", "SASL"]


def test_a_failure_behind_the_end_of_the_drivers_check_is_told():
    here = steps("unknown name", last=FAILED)
    there = [*HERE[:3], Finding(BROKER, "SASL", FAILED, "no value")]
    assert differences(here, there) == (Difference(HERE[0], here[0]), Difference(there[3], None))


def test_a_step_that_was_not_tried_there_is_told_if_nothing_failed_there():
    (found,) = differences(HERE, HERE[:3])
    assert found == Difference(Finding(BROKER, "SASL", UNTESTED, "was not tried there"), HERE[3])


def test_findings_of_the_same_subject_and_step_are_compared_in_their_order():
    two = [Finding("ids", "rights", OK, "DESCRIBE"), Finding("ids", "rights", UNTESTED, "WRITE")]
    assert differences(two, list(two)) == ()
    assert differences(two, two[::-1]) == (Difference(two[1], two[0]), Difference(two[0], two[1]))


def test_places_with_the_same_differences_are_one_group():
    slow, fast = steps("unknown name", last=FAILED), [Finding(BROKER, "DNS", FAILED, "unknown name", 0.1)]
    places = [Place("a", 7), Place("a", 12), Place("b", 1), Place("c", 1)]
    grouped = by_differences(HERE, dict(zip(reversed(places), [slow, HERE, HERE, fast], strict=True)))
    assert list(grouped.values()) == [[places[0], places[3]], places[1:3]]
    assert [[each.there.text for each in group] for group in grouped] == [["unknown name"], []]


def test_the_libraries_are_those_that_the_package_requires():
    names = required_libraries()
    assert {"kio", "pyarrow", "cryptography"} <= set(names)
    assert "botocore" not in names, "of an extra"
    found = {each.step: each for each in library_findings([*names, "no-such-library"])}
    assert found["kio"].text == metadata.version("kio")
    assert re.match(r"3\.\d+\.\d+", found["Python"].text)
    assert found["no-such-library"] == Finding("libraries", "no-such-library", FAILED, "is not installed")


def test_without_the_packages_metadata_no_libraries_are_known(monkeypatch):
    monkeypatch.setattr("spark_kafka_sink.tools.connection_check.findings._PACKAGE", "no-such-package")
    assert required_libraries() == ()


def test_a_process_without_the_libraries_still_says_which_it_lacks():
    code = """
import sys
for name in ("asn1crypto", "cramjam", "crc32c", "cryptography", "kio", "lz4", "mmh3", "numpy", "pyarrow", "zstandard"):
    sys.modules[name] = None
from spark_kafka_sink.tools.connection_check.findings import library_findings
print([each.text for each in library_findings(["kio", "no-such-library"])][-1])
"""
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == (
        "is not installed"
    )
