"""A task whose rows are encoded: what it asks the registry, and when."""

import pyarrow as pa
import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.schemas.formats.plan import FrameColumn, plan_formats
from spark_kafka_sink.schemas.registry.schema import Side
from spark_kafka_sink.spark import write as module
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.pipeline import Pipeline, task_formats
from spark_kafka_sink.spark.schema import RowLayout
from tests.contract.brokers import broker_with
from tests.contract.exactly_once.runs import Query
from tests.unit.formats.fake_registry import FakeRegistry

STRUCT = pa.struct([("a", pa.int32())])
SCHEMA = '{"type":"record","name":"R","fields":[{"name":"a","type":"int"}]}'


@pytest.fixture
def registry(monkeypatch):
    registry = FakeRegistry()
    registry.serve_workers(monkeypatch)
    return registry


broker = broker_with("out", "dead", config={"auto.create.topics.enable": False})


LAYOUT = RowLayout(value=0, topic=1)


def planned(broker, registry, topics, **given):
    """Options, plan and rows of a task."""
    base = {"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.max.block.ms": "3000", "valueFormat": "avro"}
    url = {"schema.registry.url": "http://registry:8081"}
    options = SinkOptions.parse({**base, **url, "valueSchema": SCHEMA, **given})
    formats = plan_formats(options.formats, {Side.VALUE: FrameColumn(STRUCT)}, None, registry)
    values = pa.array([{"a": number} for number in range(len(topics))], STRUCT)
    return options, formats, pa.record_batch({"value": values, "topic": pa.array(topics)})


def write(broker, registry, topics, **given):
    options, formats, batch = planned(broker, registry, topics, **given)
    module.write_rows(iter([batch]), LAYOUT, options, formats)


@pytest.mark.parametrize("given", [{}, {"topicCreation": "never"}])
def test_a_topic_that_does_not_exist_gets_no_subject(broker, registry, given):
    write(broker, registry, ["out"])
    with pytest.raises(KafkaError, match="typo"):
        write(broker, registry, ["out", "typo"], **given)
    assert registry.requests == [("register", "out-value")]


def test_nor_does_one_in_a_transaction(broker, registry):
    options, formats, batch = planned(broker, registry, ["typo"])
    query = Query(broker.bootstrap_servers, options={"max.block.ms": "3000"})
    with query.open_task(query.plan(), 0, 0) as task:
        pipeline = Pipeline(options, task, SystemClock(), formats=task_formats(formats, options, task))
        with pytest.raises(KafkaError, match="Topic typo not present in metadata"):
            pipeline.write(iter([batch]), LAYOUT)
    assert registry.requests == []
