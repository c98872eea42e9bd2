"""What a history says of its longest gap, and what its plots show."""

from __future__ import annotations

import pytest

from tests.histories.events import Event
from tests.histories.timeline import (
    GROUPS,
    Part,
    Span,
    arrivals_of,
    faults_of,
    longest_gaps,
    seconds_without_a_row,
    thinned,
)


def event(at, actor, kind, **fields):
    return Event(at, at, actor, kind, fields)


def seen(at, *rows):
    pairs = [[offset, row] for offset, row in enumerate(rows)]
    return event(at, "reader-live", "seen", reader="live", isolation="read_committed", rows=pairs)


def fault(at, name, phase, workload="a"):
    return event(at, "soak", "fault", name=name, workload=workload, phase=phase)


def handed(at, write, start):
    return event(at, "a", "handed", write=write, task=0, attempt=f"{start}-99-0", rows=[f"{write}/0"])


def driver(at, start, phase):
    return event(at, "soak", "driver", workload="a", start=start, phase=phase)


# A driver is killed at 11, another one has a row at 60; a broker is stopped meanwhile, and another workload's network.
HISTORY = [
    driver(0, "1", "started"),
    handed(9, "a/1", "1"),
    seen(10, "a/1/0"),
    fault(11, "driver killed", "begins"),
    fault(15, "driver killed", "ends"),
    driver(16, "2", "started"),
    fault(20, "network is slow", "begins", "b"),
    fault(30, "broker stopped", "begins", "b"),
    fault(35, "broker stopped", "ends", "b"),
    driver(46, "2", "session"),
    event(50, "a", "step", start="2", step="driver initialised"),
    handed(58, "a/2", "2"),
    event(59, "a", "reported", write="a/2", entry=None, attempt="2-99-0"),
    seen(60, "a/2/0"),
]


def test_the_longest_gap_is_the_sum_of_its_parts():
    (gap,) = longest_gaps(HISTORY)
    assert (gap.name, gap.seconds) == ("a", 50)
    assert gap.parts == (
        Part("Python and Spark start", 30, 5),
        Part("until Spark hands rows to a task", 8, 0),
        Part("until another driver process is started", 6, 4),
        Part("planning, until the driver's transactional id is initialised", 4, 0),
        Part("tasks write", 1, 0),
        Part("until readers see the rows", 1, 0),
    )
    assert gap.faults == ("driver killed (1 s after the last row)", "broker stopped (20 s after the last row)")
    assert "30 s Python and Spark start (5 s of it during a fault)" in str(gap)


def test_a_history_that_does_not_note_drivers_tells_a_new_one_by_its_first_task():
    (gap,) = longest_gaps([each for each in HISTORY if each.kind not in ("driver", "step")])
    assert gap.parts[0] == Part("another driver starts, and Spark with it", 48, 9)


def test_faults_that_found_nothing_are_left_out_and_open_ones_last_to_the_end():
    events = [
        fault(1, "driver killed", "begins"),
        fault(2, "driver killed", "missed"),
        fault(3, "driver killed", "begins"),
        seen(9, "a/1/0"),
    ]
    (span,) = faults_of(events)
    assert (span.began, span.ended, span.group) == (3, 9, "processes")


def test_arrivals_are_counted_by_the_name_of_writes():
    events = [seen(1, "a/1/0", "b/1/0"), seen(2, "a/1/1"), seen(3, "a/1/2")]
    assert arrivals_of(events) == {"a": [(1, 1), (2, 2), (3, 3)], "b": [(1, 1)]}
    assert thinned(arrivals_of(events)["a"], 2) == [(1, 1), (3, 3)]


def test_the_line_of_a_plot_grows_until_a_row_comes():
    line = [0.0, 10.0, 10.0, 10.0625, 15.0, 15.0], [0.0, 10.0, 0.0, 0.0, 4.9375, 0.0]
    assert seconds_without_a_row([0.0, 10.0, 10.0625], 15.0) == line


@pytest.mark.parametrize(
    ("name", "group"),
    [
        ("broker killed", "brokers"),
        ("controller parted", "brokers"),
        ("cut off from a broker", "network"),
        ("driver parted from executors", "network"),
        ("query stopped", "processes"),
        ("topics grown", "topics, rights and settings"),
    ],
)
def test_a_fault_belongs_to_what_it_strikes(name, group):
    assert Span(name, "a", 0, 1).group == group
    assert group in GROUPS


def test_a_fault_of_the_brokers_is_in_the_gap_of_each_workload():
    events = [*HISTORY[:-1], fault(57, "cut off from a broker", "begins", "b"), *HISTORY[-1:]]
    assert longest_gaps(events) == longest_gaps(HISTORY)
    events = [*HISTORY[:-1], fault(57, "controller parted", "begins", "b"), *HISTORY[-1:]]
    assert "controller parted (47 s after the last row)" in longest_gaps(events)[0].faults
