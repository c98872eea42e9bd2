"""The comparison of what was read with what was written."""

from hashlib import sha256

import pytest

from spark_kafka_sink.tools.certification.rows import RowCheck

MARK = "certify-01234567"


def record(number, mark=MARK):
    return str(number).encode(), sha256(f"{mark}:{number}".encode()).hexdigest().encode()


def faults(records, *, exactly_once=True):
    check = RowCheck(MARK, 3)
    for each in records:  # as they come
        check.add([each])
    assert check.records == len(records)
    return check.faults(exactly_once=exactly_once)


ALL = [record(number) for number in range(3)]


def test_all_rows_in_any_order_are_right():
    assert faults(ALL[::-1]) == []


@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_lost_row_is_found_although_another_is_there_twice(exactly_once):
    found = faults([ALL[0], ALL[0], ALL[2]], exactly_once=exactly_once)
    assert found == ["1 missing", *(["1 duplicates"] if exactly_once else [])]


def test_a_repeated_row_is_allowed_at_least_once_only():
    assert faults([*ALL, ALL[1], ALL[1]], exactly_once=False) == []
    assert faults([*ALL, ALL[1], ALL[1]]) == ["2 duplicates"]


@pytest.mark.parametrize(
    "other",
    [
        (b"0", record(1)[1]), (b"0", None), (None, record(0)[1]), (b"", record(0)[1]), (b"00", record(0)[1]),
        (b"-1", record(-1)[1]), record(3), record(0, "certify-76543210"), (b"x", b"y"),
        ("²".encode(), b""), (record(0)[0], record(0)[1].upper()),
    ],
)  # fmt: skip
@pytest.mark.parametrize("exactly_once", [True, False])
def test_a_record_of_no_row_is_found(other, exactly_once):
    assert faults([*ALL, other], exactly_once=exactly_once) == ["1 records that match no row"]


def test_a_changed_row_is_a_missing_one_and_a_record_of_none():
    assert faults([*ALL[:2], (ALL[2][0], b"changed")]) == ["1 missing", "1 records that match no row"]


def test_an_empty_topic_lacks_all_rows():
    assert faults([]) == ["3 missing"]
