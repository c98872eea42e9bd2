"""A warning about what goes on: the first time, then once in 30 s, with the number of those in between."""

import logging

from spark_kafka_sink.common.repeated_warnings import EVERY_MS, STALL_MS, RepeatedWarnings


def test_each_subject_is_told_at_once_and_then_counted(caplog):
    caplog.set_level(logging.WARNING)
    warnings = RepeatedWarnings(logging.getLogger("spark_kafka_sink.test"))
    for second in range(61):
        warnings.write("a", second * 1_000, f"at {second}")
    warnings.write("b", 60_500, "other")
    assert caplog.messages == ["at 0", "at 30 (29 more in the last 30 s)", "at 60 (29 more in the last 30 s)", "other"]


def test_a_wait_is_due_after_ten_seconds_and_again_thirty_seconds_after_its_last_line():
    warnings = RepeatedWarnings(logging.getLogger("spark_kafka_sink.test"))
    assert warnings.next_at("a", 5.0) == 5.0 + STALL_MS
    warnings.write("a", 20_000, "text")
    assert warnings.next_at("a", 19_000.0) == 20_000 + EVERY_MS
    assert warnings.next_at("b", 19_000.0) == 19_000 + STALL_MS
