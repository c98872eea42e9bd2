"""A whole Spark query under faults: every row once, in order, and no transaction left open."""

import json
import time
from io import BytesIO

import pytest
from fastavro import schemaless_reader

from tests.faults.exactly_once.query_job import LEDGER, ROWS, TASKS
from tests.faults.exactly_once.reader import read_committed
from tests.faults.exactly_once.supervised import Supervised
from tests.support.schema_registry_server import SchemaRegistryServer

pytestmark = pytest.mark.jvm


@pytest.fixture
def query(kafka, fault, tmp_path):
    topic = f"query-{time.monotonic_ns()}"
    kafka.create_topic(topic, TASKS)
    query = Supervised(kafka.bootstrap_servers, topic, tmp_path, fault)
    yield query
    fault.disarm()
    query.end()


def check(query):
    """Every row of every micro-batch that Spark has committed is there once, and nothing else; nothing is open."""
    rows = {
        partition: [int(value) for value in values]
        for partition, values in read_committed(query.servers, query.topic).items()
    }
    numbers = sorted(number for values in rows.values() for number in values)
    assert numbers == list(range((query.commits + 1) * ROWS)), "rows are missing or doubled"
    assert all(values == sorted(values) for values in rows.values()), "rows are out of order"
    read_committed(query.servers, LEDGER)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_query_survives_being_killed_wherever_it_hurts(query):
    for point in ("task in mid-write", "before the intent", "intent committed", "between EndTxns", "committed"):
        query.fault.arm(point)
        query.run_until(lambda: query.fault.happened, timeout_s=240)
    query.fault.arm("intent committed", "stop")
    query.run_until(lambda: query.fault.happened, timeout_s=240)
    query.kill_driver()
    query.finish(timeout_s=240)
    check(query)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_replay_is_encoded_with_the_schemas_of_its_intent(query):
    """Killed behind the intent; the schema evolves; the restart takes the new one, but not for the decided batch."""
    first = '{"type":"record","name":"R","fields":[{"name":"value","type":"long"}]}'
    second = first.replace("]}", ',{"name":"more","type":["null","long"],"default":null}]}')
    with SchemaRegistryServer() as registry:
        latest = {"schema.registry.url": registry.url, "use.latest.version": "true"}
        query.options = {"valueFormat": "avro", **latest}
        registry.add(f"{query.topic}-value", first)
        query.run_until(lambda: query.commits >= 0, timeout_s=240)
        query.fault.arm("intent committed")
        query.run_until(lambda: query.fault.happened, timeout_s=240)
        query.kill_driver()
        decided = query.commits + 1
        registry.add(f"{query.topic}-value", second)
        query.finish(timeout_s=240)
    ids = {}
    for values in read_committed(query.servers, query.topic).values():
        for value in values:
            schema = {1: first, 2: second}[int.from_bytes(value[1:5], "big")]
            number = schemaless_reader(BytesIO(value[5:]), json.loads(schema), None)["value"]
            assert number not in ids, "a row is doubled"
            ids[number] = value[:5]
    rows, rows_before = (query.commits + 1) * ROWS, (decided + 1) * ROWS
    assert sorted(ids) == [*range(rows)], "rows are missing"
    assert {ids[number] for number in range(rows_before)} == {b"\0\0\0\0\1"}
    assert {ids[number] for number in range(rows_before, rows)} == {b"\0\0\0\0\2"}
