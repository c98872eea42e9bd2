"""How often a job asks the registry: workers are processes, and each remembers what it asked for."""

import pickle
import subprocess
import sys
from collections import Counter

import pyarrow as pa

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.records.columns import TopicColumn
from spark_kafka_sink.schemas.formats.plan import FrameColumn, plan_formats
from spark_kafka_sink.schemas.formats.task_formats import TaskFormats
from spark_kafka_sink.schemas.registry.cache import CachedRegistry
from spark_kafka_sink.schemas.registry.client import SchemaRegistry
from spark_kafka_sink.schemas.registry.schema import Side
from spark_kafka_sink.spark.options import SinkOptions
from tests.support.schema_registry_server import SchemaRegistryServer
from tests.support.waiting import DEADLINE_S

STRUCT = pa.struct([("a", pa.int32())])
SCHEMA = '{"type":"record","name":"R","fields":[{"name":"a","type":["null","int"]}]}'
TOPICS = ("a", "b", "c")


def worker():
    """Runs half of the job's 200 tasks, each of which gets the plan anew and has rows of every topic."""
    pickled = sys.stdin.buffer.read()
    for _ in range(100):
        task = TaskFormats(pickle.loads(pickled))
        for topic in TOPICS:
            task.encode(Side.VALUE, pa.array([{"a": 1}], STRUCT), TopicColumn.of(topic))


def test_a_job_of_many_tasks_asks_once_for_each_topic_and_worker():
    with SchemaRegistryServer() as server:
        for topic in TOPICS:
            server.add(f"{topic}-value", SCHEMA)
        options = {"kafka.bootstrap.servers": "a:1", "valueFormat": "avro", "schema.registry.url": server.url}
        formats = SinkOptions.parse({**options, "use.latest.version": "true"}).formats
        registry = CachedRegistry(SchemaRegistry(formats.registry, SystemClock()), formats.registry)
        plan = pickle.dumps(plan_formats(formats, {Side.VALUE: FrameColumn(STRUCT)}, None, registry))
        command = [sys.executable, "-c", f"from {__name__} import worker; worker()"]
        workers = [subprocess.Popen(command, stdin=subprocess.PIPE) for _ in range(2)]
        for each in workers:
            each.stdin.write(plan)
            each.stdin.close()
        assert [each.wait(DEADLINE_S) for each in workers] == [0, 0]
    assert set(Counter(each.path for each in server.asked).values()) == {2}
    assert len(server.asked) == 2 * len(TOPICS)
