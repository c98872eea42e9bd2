"""Faults that are planted into the correct histories of ``paper.py``, and what a checker must find each as."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tests.histories.events import Event
from tests.histories.findings import Kind
from tests.histories.paper import (
    CONTROL,
    FINISHED,
    NONE_VISIBLE,
    NOT_DECIDED,
    ONCE,
    STREAM,
    UNCONFIRMED,
    WORKER_DIED,
    Attempt,
    Paper,
    Place,
    commit,
    committed,
    failed_and_repeated,
    job_died_torn,
    job_not_confirmed,
    reported,
    task_retried_with_rows_in_another_order,
    topic_of,
    topic_recreated_before_the_commit,
    torn_and_repaired,
)


def _one_of_a_whole_write(paper: Paper, *writes: str) -> tuple[Place, int]:
    """Where a visible row of a committed write is; of one of ``writes``, if there are any."""
    write = paper.random.choice(writes or paper.whole)
    places = [
        (place, offset)
        for place, log in paper.logs.items()
        for offset, record in log.items()
        if record.visible and record.row.startswith(f"{write}/") and place[2] == paper.incarnations[place[0]]
    ]
    return paper.random.choice(places)


def lose_a_row(paper: Paper) -> list[Event]:
    place, offset = _one_of_a_whole_write(paper)
    paper.logs[place][offset].visible = False
    return paper.events()


def lose_a_row_of_the_control(paper: Paper) -> list[Event]:
    lost = paper.random.choice([each for each in paper.attempts if each.write.startswith(CONTROL)]).rows[0]
    for place, log in paper.logs.items():
        paper.logs[place] = {offset: record for offset, record in log.items() if record.row != lost}
    return paper.events()


def double_a_row(paper: Paper) -> list[Event]:
    place, offset = _one_of_a_whole_write(paper)
    paper.append(*place[:2], paper.logs[place][offset].row, visible=True)
    return paper.events()


def lose_a_row_in_a_topic_that_was_created_again(paper: Paper) -> list[Event]:
    write = f"{STREAM}/100"
    topic_recreated_before_the_commit(paper, write)
    place, offset = _one_of_a_whole_write(paper, write)
    paper.logs[place][offset].visible = False
    return paper.events()


def double_a_row_of_a_topic_that_was_deleted(paper: Paper) -> list[Event]:
    """It was visible there, and is in the new topic as well."""
    deleted = [
        (place, record.row)
        for place, log in paper.logs.items()
        for record in log.values()
        if record.visible and place[2] != paper.incarnations[place[0]]
    ]
    place, row = paper.random.choice(deleted)
    paper.append(*place[:2], row, visible=True)
    return paper.events()


def show_what_was_aborted(paper: Paper) -> list[Event]:
    paper.show(paper.random.choice(paper.aborted), visible=True)
    return paper.events()


def show_an_undecided_job(paper: Paper) -> list[Event]:
    """Its EndTxns are not in the history."""
    write = paper.random.choice(paper.failed)
    for attempt in paper.attempts:
        if attempt.write == write:
            paper.show(attempt, visible=True)
    told = paper.events()
    return [event for event in told if event.kind != "end"]


def show_a_batch_in_part(paper: Paper) -> list[Event]:
    """A task of a decided batch stays invisible; no EndTxn says more than that it was asked for."""
    hidden = paper.random.choice(_written(paper, paper.random.choice(paper.clean)))
    paper.show(hidden, visible=False)
    return [event for event in paper.events() if event.kind != "end"]


def _written(paper: Paper, write: str) -> list[Attempt]:
    """The attempts of the write whose rows are visible."""

    def is_visible(attempt: Attempt) -> bool:
        places = ((partition, at) for partition, offsets in attempt.offsets.items() for at in offsets)
        return bool(attempt.offsets) and all(paper.log_of(attempt, partition)[at].visible for partition, at in places)

    return [each for each in paper.attempts if each.write == write and is_visible(each)]


def swap_two_rows(paper: Paper) -> list[Event]:
    """Of one task in one partition."""
    _swap(paper, paper.random.choice(_written(paper, paper.random.choice(paper.whole))))
    return paper.events()


def _swap(paper: Paper, attempt: Attempt) -> None:
    first, *_, last = attempt.offsets[0]
    log = paper.log_of(attempt, 0)
    log[first].row, log[last].row = log[last].row, log[first].row


def keep_the_order_of_an_earlier_attempt(paper: Paper) -> list[Event]:
    """The attempt that wrote the rows was handed them in the opposite order."""
    write = f"{STREAM}/100"
    task_retried_with_rows_in_another_order(paper, write)
    attempt = next(each for each in _written(paper, write) if each.task == 0)
    for partition, offsets in attempt.offsets.items():
        log = paper.log_of(attempt, partition)
        for offset, row in zip(offsets, [log[at].row for at in reversed(offsets)], strict=True):
            log[offset].row = row
    return paper.events()


def show_what_a_failed_run_wrote(paper: Paper) -> list[Event]:
    """A later run of the write has written the rows again, decided them, and is told that they are committed. But what
    readers see are those of the run before, whose EndTxns are not in the history."""
    write = f"{STREAM}/100"
    failed_and_repeated(paper, write)
    _show_instead(paper, *[each for each in paper.attempts if each.write == write])
    return [event for event in paper.events() if event.kind != "end"]


def show_an_attempt_that_no_intent_names(paper: Paper) -> list[Event]:
    """It has reported, as its successor has; the intent names the successor."""
    write = f"{STREAM}/100"
    lost = paper.task(write, 0)
    paper.report(lost)
    committed(paper, write)
    _show_instead(paper, lost, next(each for each in _written(paper, write) if each.task == 0))
    return [event for event in paper.events() if event.kind != "end"]


def _show_instead(paper: Paper, *attempts: Attempt) -> None:
    """The first half of the attempts instead of the others."""
    for index, attempt in enumerate(attempts):
        paper.show(attempt, visible=index < len(attempts) // 2)


def tear_what_a_later_intent_does_not_mend(paper: Paper) -> list[Event]:
    """The rows that the replay writes again are not visible, either. No EndTxn is in the history."""
    write = f"{STREAM}/100"
    torn_and_repaired(paper, write)
    paper.show(paper.attempts[-1], visible=False)
    return [event for event in paper.events() if event.kind != "end"]


def tear_a_job_whose_driver_lives(paper: Paper) -> list[Event]:
    """It has no verdict, and no other driver is started after it."""
    job_died_torn(paper, f"{ONCE}/100")
    told = paper.events()
    started = [event for event in told if event.kind == "driver"][-1]
    return [event for event in told if event is not started]


def commit_and_abort(paper: Paper) -> list[Event]:
    """Nobody knows whether the intent is decided, but its transaction was committed, and aborted."""
    write = f"{ONCE}/100"
    job_not_confirmed(paper, write)
    chosen = paper.random.choice([each for each in paper.attempts if each.write == write])
    paper.tell("end", transaction=chosen.transaction, commit=False, outcome="aborted")
    return paper.events()


def tell_a_committed_job_that_it_failed(paper: Paper) -> list[Event]:
    return _told_that_it_failed(paper, NOT_DECIDED)


def tell_a_committed_job_that_a_worker_died(paper: Paper) -> list[Event]:
    """The worker of a task, after which nothing is decided."""
    return _told_that_it_failed(paper, WORKER_DIED)


def _told_that_it_failed(paper: Paper, error: str) -> list[Event]:
    write = paper.random.choice([each for each in paper.whole if each.startswith(ONCE)])
    return [
        replace(event, fields={**event.fields, "outcome": "failed", "error": error})
        if event.kind == "verdict" and event["write"] == write
        else event
        for event in paper.events()
    ]


def tell_a_failed_job_that_it_is_committed(paper: Paper) -> list[Event]:
    write = paper.random.choice(paper.failed)
    return [
        replace(event, fields={**event.fields, "outcome": "committed"})
        if event.kind == "verdict" and event["write"] == write
        else event
        for event in paper.events()
    ]


def hide_what_end_txn_committed(paper: Paper) -> list[Event]:
    attempt = paper.random.choice(_written(paper, paper.random.choice(paper.whole)))
    paper.show(attempt, visible=False)
    return paper.events()


def abort_what_was_decided(paper: Paper) -> list[Event]:
    intents = [each for each in paper.told if each.kind == "intent" and each["outcome"] == "decided"]
    transaction = paper.random.choice(paper.random.choice(intents)["transactions"])
    paper.tell("end", transaction=transaction, commit=False, outcome="aborted")
    return paper.events()


def commit_before_the_intent(paper: Paper) -> list[Event]:
    """A transaction of a batch is committed before the batch is decided."""
    attempts = reported(paper, f"{ONCE}/100")
    paper.end(attempts[0], commit=True)
    commit(paper, attempts)
    return paper.events()


def forget_a_report(paper: Paper) -> list[Event]:
    """Of a transaction that an intent names, while another task of the batch has reported."""
    write = paper.random.choice(paper.clean)
    lost = paper.random.choice(_written(paper, write))
    return [event for event in paper.events() if event.kind != "reported" or event["attempt"] != lost.name]


def shift_a_receipt(paper: Paper) -> list[Event]:
    return _with_another_place(paper, lambda place: [*place[:2], place[2] + 1, *place[3:]])


def miscount_a_receipt(paper: Paper) -> list[Event]:
    return _with_another_place(paper, lambda place: [*place[:4], place[4] + 1])


def _with_another_place(paper: Paper, change: Callable[[list[Any]], list[Any]]) -> list[Event]:
    told = paper.events()
    chosen = paper.random.choice([index for index, each in enumerate(told) if each.get("places")])
    places = told[chosen]["places"]
    told[chosen] = replace(told[chosen], fields={**told[chosen].fields, "places": [change(places[0]), *places[1:]]})
    return told


def write_a_row_that_was_not_handed_over(paper: Paper) -> list[Event]:
    paper.append(STREAM, 0, f"{STREAM}/0/99", visible=True)
    return paper.events()


def show_a_row_to_one_reader_only(paper: Paper) -> list[Event]:
    """Of a topic that both have read."""
    told = paper.events()
    shown = [index for index, each in enumerate(told) if each.kind == "seen" and each["reader"] == "live"]
    there = [index for index in shown if told[index]["incarnation"] == paper.incarnations[told[index]["topic"]]]
    chosen = paper.random.choice([index for index in there if told[index]["rows"]])
    told[chosen] = replace(told[chosen], fields={**told[chosen].fields, "rows": told[chosen]["rows"][1:]})
    return told


def leave_a_task_out_of_an_intent(paper: Paper) -> list[Event]:
    """The other tasks of the batch are committed."""
    write = paper.random.choice(paper.clean)
    left_out = paper.random.choice(_written(paper, write)).transaction
    return [
        replace(event, fields={**event.fields, "transactions": [each for each in named if each != left_out]})
        if event.kind == "intent" and left_out in (named := event["transactions"])
        else event
        for event in paper.events()
    ]


def name_a_transaction_of_another_write(paper: Paper) -> list[Event]:
    """Of a job that nobody decides."""
    write, foreign = paper.random.choice(paper.clean), paper.random.choice(reported(paper, f"{ONCE}/100")).transaction
    return [
        replace(event, fields={**event.fields, "transactions": [*event["transactions"], foreign]})
        if event.kind == "intent" and event["entry"] == f"entry-{write}"
        else event
        for event in paper.events()
    ]


def abort_a_part_of_an_intent_with_an_unknown_outcome(paper: Paper) -> list[Event]:
    write = f"{ONCE}/100"
    attempts = reported(paper, write)
    paper.intent(attempts, "asked", "unknown")
    aborted = paper.random.choice(attempts)
    for attempt in attempts:
        paper.end(attempt, commit=attempt is not aborted)
    paper.verdict(write, "failed", UNCONFIRMED)
    return paper.events()


def decide_after_the_topic_was_created_again(paper: Paper) -> list[Event]:
    write = f"{STREAM}/100"
    attempts = reported(paper, write)
    paper.recreate(topic_of(write))
    commit(paper, attempts)
    paper.verdict(write, "committed")
    return paper.events()


def swap_two_rows_of_the_control(paper: Paper) -> list[Event]:
    """Of the attempt that has reported."""
    _swap(paper, paper.random.choice([each for each in paper.attempts if each.write.startswith(CONTROL)][1::2]))
    return paper.events()


def drop_a_row(paper: Paper) -> list[Event]:
    """Of a job whose driver dies after the decision, so that nobody was told that it is committed."""
    write = f"{ONCE}/100"
    attempts = [paper.task(write, number) for number in range(2)]
    offsets = attempts[0].offsets[0]
    del paper.log_of(attempts[0], 0)[offsets.pop()]
    for attempt in attempts:
        paper.report(attempt)
    commit(paper, attempts)
    paper.die()
    return paper.events()


def write_a_row_to_another_topic(paper: Paper) -> list[Event]:
    """Instead of its own."""
    place, offset = _one_of_a_whole_write(paper)
    topic = paper.random.choice([each for each in (STREAM, ONCE, CONTROL) if each != place[0]])
    paper.append(topic, place[1], paper.logs[place].pop(offset).row, visible=True)
    return paper.events()


def tell_a_decided_job_that_nothing_becomes_visible(paper: Paper) -> list[Event]:
    """The abort that is added to the error says that the job is decided."""
    write = f"{ONCE}/100"
    commit(paper, reported(paper, write))
    paper.verdict(write, "failed", f"{NOT_DECIDED} {FINISHED}")
    return paper.events()


def log_that_a_visible_batch_was_aborted(paper: Paper) -> list[Event]:
    write = f"{STREAM}/100"
    commit(paper, reported(paper, write))
    paper.tell("gave up", entry=f"entry-{write}", start=str(paper.start), text=NONE_VISIBLE)
    return paper.events()


FAULTS: dict[Callable[[Paper], list[Event]], Kind] = {
    lose_a_row: Kind.LOST,
    lose_a_row_of_the_control: Kind.LOST,
    lose_a_row_in_a_topic_that_was_created_again: Kind.LOST,
    double_a_row: Kind.DOUBLED,
    double_a_row_of_a_topic_that_was_deleted: Kind.DOUBLED,
    show_what_was_aborted: Kind.ABORTED_READ,
    show_an_undecided_job: Kind.FAILED_BUT_VISIBLE,
    show_a_batch_in_part: Kind.PARTLY_VISIBLE,
    swap_two_rows: Kind.OUT_OF_ORDER,
    keep_the_order_of_an_earlier_attempt: Kind.OUT_OF_ORDER,
    show_what_a_failed_run_wrote: Kind.FAILED_BUT_VISIBLE,
    show_an_attempt_that_no_intent_names: Kind.ABORTED_READ,
    tear_what_a_later_intent_does_not_mend: Kind.PARTLY_VISIBLE,
    tear_a_job_whose_driver_lives: Kind.PARTLY_VISIBLE,
    commit_and_abort: Kind.DECIDED_BUT_ABORTED,
    tell_a_committed_job_that_it_failed: Kind.FAILED_BUT_VISIBLE,
    tell_a_committed_job_that_a_worker_died: Kind.FAILED_BUT_VISIBLE,
    tell_a_failed_job_that_it_is_committed: Kind.COMMITTED_BUT_INVISIBLE,
    hide_what_end_txn_committed: Kind.COMMITTED_BUT_INVISIBLE,
    abort_what_was_decided: Kind.DECIDED_BUT_ABORTED,
    commit_before_the_intent: Kind.COMMITTED_TOO_EARLY,
    forget_a_report: Kind.NOT_REPORTED,
    shift_a_receipt: Kind.RECEIPT_CONTRADICTED,
    miscount_a_receipt: Kind.RECEIPT_CONTRADICTED,
    write_a_row_that_was_not_handed_over: Kind.FOREIGN_ROW,
    show_a_row_to_one_reader_only: Kind.READERS_DISAGREE,
    leave_a_task_out_of_an_intent: Kind.LEFT_OUT,
    name_a_transaction_of_another_write: Kind.SHARED_TRANSACTION,
    abort_a_part_of_an_intent_with_an_unknown_outcome: Kind.DECIDED_BUT_ABORTED,
    decide_after_the_topic_was_created_again: Kind.WITHOUT_ITS_TOPIC,
    swap_two_rows_of_the_control: Kind.OUT_OF_ORDER,
    drop_a_row: Kind.LOST,
    write_a_row_to_another_topic: Kind.MISPLACED,
    tell_a_decided_job_that_nothing_becomes_visible: Kind.FAILED_BUT_VISIBLE,
    log_that_a_visible_batch_was_aborted: Kind.FAILED_BUT_VISIBLE,
}
"""What each fault must be found as; it may be found as something else as well."""
