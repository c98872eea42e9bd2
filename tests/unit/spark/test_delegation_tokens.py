"""A task whose session has delegation-token settings says that they do not reach it."""

import logging
from types import SimpleNamespace

import pytest

from spark_kafka_sink.errors import KafkaError, KafkaTimeoutError, SaslAuthenticationError
from spark_kafka_sink.spark import sink_write as error_notes
from spark_kafka_sink.spark.sink_write import delegation_tokens_explained

SETTING = "spark.kafka.clusters.prod.auth.bootstrap.servers"


@pytest.fixture
def task(monkeypatch):
    """The local properties of the running task."""
    properties = {"spark.app.id": "x", SETTING: "a:1"}
    context = SimpleNamespace(get=lambda: SimpleNamespace(_localProperties=properties))
    monkeypatch.setattr(error_notes, "TaskContext", context)
    monkeypatch.setattr(error_notes, "_warned", False)
    return properties


def failing(error):
    with pytest.raises(KafkaError) as raised, delegation_tokens_explained():
        raise error
    return getattr(raised.value, "__notes__", [])


def test_an_authentication_error_names_the_settings_and_what_to_write(task, caplog):
    (note,) = failing(SaslAuthenticationError("refused"))
    assert note.startswith(f"{SETTING} are set, but the delegation tokens")
    assert "kafka.sasl.jaas.config" in note
    assert not caplog.records


def test_so_does_an_error_that_an_authentication_error_caused(task):
    error = KafkaError("planning")
    error.__cause__ = SaslAuthenticationError("refused")
    assert len(failing(error)) == 1


def test_another_error_is_left_alone(task):
    assert failing(KafkaTimeoutError("late")) == []


def test_without_an_error_a_worker_warns_once(task, caplog):
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            with delegation_tokens_explained():
                pass
    assert [record.message[: len(SETTING)] for record in caplog.records] == [SETTING]


def test_without_such_settings_nothing_is_said(task, caplog):
    del task[SETTING]
    assert failing(SaslAuthenticationError("refused")) == []
    with delegation_tokens_explained():
        pass
    assert not caplog.records
