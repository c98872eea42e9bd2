"""Subjects: the names under which a registry keeps the versions of a schema (Java: ``SubjectNameStrategy``)."""

from __future__ import annotations

from enum import Enum


class Side(Enum):
    """Which part of a record a schema describes."""

    KEY = "key"
    VALUE = "value"


class SubjectNameStrategy(Enum):
    """``key.subject.name.strategy`` and ``value.subject.name.strategy``."""

    TOPIC = "topic"
    RECORD = "record"
    TOPIC_RECORD = "topic-record"

    @property
    def needs_record(self) -> bool:
        """Whether the subject has the name of the record or message: a schema without one is refused."""
        return self is not SubjectNameStrategy.TOPIC

    @property
    def needs_topic(self) -> bool:
        return self is not SubjectNameStrategy.RECORD

    def subject(self, topic: str, side: Side, record: str) -> str:
        """``record``: full name of the Avro record or Protobuf message, title of the JSON schema; "" for none."""
        if self is SubjectNameStrategy.TOPIC:
            return f"{topic}-{side.value}"
        assert record
        return record if self is SubjectNameStrategy.RECORD else f"{topic}-{record}"
