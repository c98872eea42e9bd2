"""Receipts of a streaming query have its name, as Spark tells it to tasks."""

import pytest

from spark_kafka_sink.exactly_once.receipts import WriteReceipt
from spark_kafka_sink.spark import write

QUERY = "30a1f898-eca0-4455-b028-a611186140be"
RECEIPTS = (WriteReceipt(QUERY, 7, 0, "t", 0, 0, 4, 5, 50, 1, 2), WriteReceipt(QUERY, 7, 0, "t", 1, 0, 4, 5, 50, 1, 2))


class Context:
    """A task of a streaming query, whose job has this description."""

    def __init__(self, description, query=QUERY):
        self._properties = {"spark.job.description": description, write.QUERY_ID: query}

    def get(self):
        return self

    def getLocalProperty(self, name):  # noqa: N802 (Spark's name)
        return self._properties.get(name)


@pytest.mark.parametrize(
    ("description", "name"),
    [
        (f"orders\nid = {QUERY}\nrunId = 5\nbatch = 7", "orders"),
        (f"of two\nlines\nid = {QUERY}\nrunId = 5\nbatch = 7", "of two\nlines"),
        (f"\nid = {QUERY}\nrunId = 5\nbatch = 7", ""),
        ("set by the user in foreachBatch", ""),
        (None, ""),
    ],
)
def test_the_name_is_what_sparks_description_of_the_job_begins_with(monkeypatch, description, name):
    monkeypatch.setattr(write, "TaskContext", Context(description))
    named = write.with_query_name(RECEIPTS)
    assert [each.query_name for each in named] == [name, name]
    assert [WriteReceipt.parse(each.line()) for each in named] == [*named]


def test_a_batch_job_whose_description_looks_like_a_querys_has_none(monkeypatch):
    monkeypatch.setattr(write, "TaskContext", Context(f"orders\nid = {QUERY}\nrunId = 5", query=None))
    assert write.with_query_name(RECEIPTS) == RECEIPTS
