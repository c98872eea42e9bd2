"""docs/ARCHITECTURE.md names the counterpart of each class of Kafka's producers, and the counterpart exists."""

from __future__ import annotations

import ast

import pytest

from tests.repository.architecture import quoted, table
from tests.repository.files import PACKAGE

TABLE = table("## Kafka's classes here")
# What a reader who knows Kafka's producers looks for.
SOUGHT = (
    "KafkaProducer ProducerRecord RecordMetadata Callback FutureRecordMetadata ProduceRequestResult ProducerConfig",
    "ProducerInterceptors Partitioner BuiltInPartitioner RecordAccumulator ProducerBatch BufferPool Sender",
    "TransactionManager TxnPartitionMap TxnPartitionEntry ProducerIdAndEpoch MemoryRecordsBuilder DefaultRecordBatch",
    "NetworkClient InFlightRequests ClusterConnectionStates Selector KafkaChannel Authenticator NetworkReceive",
    "NetworkSend Metadata ProducerMetadata ProduceRequest ProduceResponse SenderMetricsRegistry Errors",
    "SyncProducer DefaultEventHandler kafka.producer.ProducerConfig ConsoleProducer",
)


def names_of(file: str) -> set[str]:
    """Classes, their methods, functions and constants of a file."""
    names: set[str] = set()
    for node in ast.parse((PACKAGE / file).read_text()).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{each.name}" for each in node.body if isinstance(each, ast.FunctionDef)}
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return names


def test_every_class_is_in_the_table():
    named = {name for row in TABLE for name in quoted(row[0])}
    assert [name for names in SOUGHT for name in names.split() if name not in named] == []


@pytest.mark.parametrize("row", TABLE, ids=lambda row: row[0])
def test_a_counterpart_is_where_the_table_says(row):
    places = [place.partition(":") for place in quoted(row[1])]
    assert places
    assert [f"{file}:{name}" for file, _, name in places if not (PACKAGE / file).is_file()] == []
    assert [f"{file}:{name}" for file, _, name in places if name and name not in names_of(file)] == []
