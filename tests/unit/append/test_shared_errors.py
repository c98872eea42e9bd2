"""Errors that many callers get: of a batch's records, of a receipt, of a producer that has ended."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from functools import partial

import pytest
from kio.schema.errors import ErrorCode

from spark_kafka_sink.common.waiting import CallOutcome
from spark_kafka_sink.errors import BrokerError, KafkaError, own_copy
from spark_kafka_sink.producer.record import ProducerRecord
from tests.unit.partitioning.own_partitioners import Raises
from tests.unit.scripted_engine import Engine, Step

OF_PARTITIONER = {"partitioner_class": f"{Raises.__module__}:Raises"}


def future(engine: Engine):
    sent = engine.parts.records.put(ProducerRecord("t", b"v"), None, b"v")
    engine.settle()
    return sent


def raise_it(error: Callable[[], Exception]) -> None:
    raise error()


def raise_from_callback(sent) -> None:
    errors: list[Exception] = []
    sent.add_callback(lambda _, error: errors.append(error))
    sent._records.callbacks.run()
    raise errors[0]


def refused(engine: Engine) -> Engine:
    engine.steps.append(Step(before={0: ErrorCode.invalid_record}))
    return engine


def ended(engine: Engine) -> Engine:
    engine.parts.sender.abort(KafkaError("the end"))
    return engine


def failed_call() -> Callable[[], object]:
    outcome = CallOutcome()
    outcome.complete(None, KafkaError("no"))
    return outcome.value


def receipt(engine: Engine) -> Callable[[], object]:
    engine.deliver([b"v"])
    return engine.receipt.wait


CALLS: dict[str, Callable[[Engine], Callable[[], object]]] = {
    "result": lambda engine: future(refused(engine)).result,
    "exception": lambda engine: partial(raise_it, future(refused(engine)).exception),
    "callback": lambda engine: partial(raise_from_callback, future(refused(engine))),
    "receipt": lambda engine: receipt(refused(engine)),
    "append": lambda engine: partial(ended(engine).append, [b"v"]),
    "memory": lambda engine: partial(ended(engine).parts.pool.take, 1, 0),
    "metadata": lambda engine: partial(ended(engine).parts.metadata.wait_for_topics, {"new": None}, 0),
    "transaction": lambda engine: failed_call(),
}


def raised(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("it did not raise")


def frames(error: Exception) -> list[str]:
    return [frame.name for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("name", CALLS)
def test_incident_an_error_that_was_raised_again_kept_the_frames_of_all_who_had_raised_it(name):
    """So the traceback of the last of 2,000 records of a failed batch had 6,000 entries."""
    call = CALLS[name](Engine().connect())
    errors = [raised(call) for _ in range(3)]
    assert [frames(error) for error in errors] == [frames(errors[0])] * 3
    assert len({id(error) for error in errors}) == 3
    assert len({(type(error), str(error), repr(vars(error))) for error in errors}) == 1


def test_incident_an_error_of_the_users_partitioner_grew_with_each_future_and_still_has_its_own_frames():
    sent = future(Engine(**OF_PARTITIONER).connect())
    first, last = (frames(raised(sent.result)) for _ in range(2))
    assert first == last
    assert last[-1] == "partition"


@pytest.mark.parametrize("error", [KafkaError("text", 1), BrokerError(87, "INVALID_RECORD", "refused")])
def test_a_callers_own_copy_differs_in_its_traceback_only(error):
    error.__cause__, error.remedy_seen = OSError("why"), True
    copied = own_copy(error)
    assert copied is not error
    assert (type(copied), copied.args, vars(copied), copied.__cause__) == (
        type(error), error.args, vars(error), error.__cause__,
    )  # fmt: skip
