"""The default of transactionalIdPrefix: by the query's id where the driver can read it, however the path is spelled."""

import json

import pytest

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.spark import exactly_once, exactly_once_task
from spark_kafka_sink.spark.checkpoint import query_id, resolve
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage
from spark_kafka_sink.spark.options import SinkOptions
from tests.contract.brokers import broker_with
from tests.contract.exactly_once.runs import TOPIC, Query, committed

ID = "80dc27bf-8283-4d00-b5f2-bca1afbd4e5d"


def options(servers="broker:9092", **given):
    base = {"kafka.bootstrap.servers": servers, "topic": TOPIC, "deliveryguarantee": "exactly-once"}
    return SinkOptions.parse({**base, **given})


def name(location):
    return options(checkpointlocation=location).exactly_once.name


@pytest.fixture
def checkpoint(tmp_path, monkeypatch):
    """A folder as Spark makes it."""
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "metadata").write_text(json.dumps({"id": ID}))
    monkeypatch.chdir(tmp_path)
    return folder


def spellings(path):
    yield from (f"{path}", f"{path}/", f"/{path}", f"file:{path}", f"file://{path}", f"FILE://localhost{path}/")
    yield from ("checkpoint", "./checkpoint/", "x/../checkpoint", f"{path.parent}//checkpoint", "file:checkpoint")


def test_every_spelling_of_a_checkpoint_gives_the_querys_id(checkpoint):
    assert {name(each) for each in spellings(checkpoint)} == {f"spark-{ID}"}


def test_every_spelling_of_a_path_gives_one_name_where_no_id_can_be_read(checkpoint):
    (checkpoint / "metadata").unlink()
    (one,) = {name(each) for each in spellings(checkpoint)}
    assert one != f"spark-{ID}"
    assert len(one) == len("spark-") + 16


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://b/c", "s3a://b/c/"),
        ("s3://b/c", "s3n://b//c"),
        ("abfs://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x/"),
        ("hdfs://nn/a/b", "HDFS://nn/a/./b"),
        ("dbfs:/x", "dbfs:///x/"),
        ("s3://b", "s3a://b/"),
    ],
)
def test_spellings_of_a_remote_location(one, other):
    assert name(one) == name(other)


@pytest.mark.parametrize(
    ("one", "other"), [("s3://b/c", "s3://b/C"), ("s3://b/c", "gs://b/c"), ("hdfs://a/c", "hdfs://b/c"), ("/c", "/d")]
)
def test_other_locations_have_other_names(one, other):
    assert name(one) != name(other)


def test_a_moved_and_a_copied_checkpoint_keep_the_name(checkpoint, tmp_path):
    before = name(str(checkpoint))
    checkpoint.rename(tmp_path / "moved")
    assert name(str(tmp_path / "moved")) == before


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", "1", '{"id": 3}', '{"id": "x"}', "{}", "\udcff", pytest.param("[" * 100_000, id="incident: deep")],
)
def test_metadata_that_is_not_sparks_has_no_id(checkpoint, text):
    (checkpoint / "metadata").write_bytes(text.encode(errors="surrogateescape"))
    assert query_id(str(checkpoint)) is None


def test_a_location_that_is_no_folder_has_no_id(tmp_path):
    (tmp_path / "file").touch()
    assert [query_id(str(tmp_path / each)) for each in ("file", "missing")] == [None, None]
    assert resolve("") == resolve(".")


class Context:
    """A micro-batch's TaskContext."""

    def __init__(self, query):
        self._properties = {"sql.streaming.queryId": query, "streaming.sql.batchId": "0"}

    def getLocalProperty(self, key):  # noqa: N802 (Spark's name)
        return self._properties.get(key)


def test_a_checkpoint_of_another_query_in_the_drivers_file_system_is_refused(checkpoint):
    """Spark has it in another file system, and an old one is in the driver's."""
    given = options(checkpointlocation=str(checkpoint))
    assert exactly_once_task._micro_batch(Context(ID), given).query == ID
    with pytest.raises(ExactlyOnceError, match=f"belongs to query {ID}, but this is query q2, .*with its scheme"):
        exactly_once_task._micro_batch(Context("q2"), given)
    named = options(checkpointlocation=str(checkpoint), transactionalidprefix="mine")
    assert exactly_once_task._micro_batch(Context("q2"), named).query == "q2"


broker = broker_with(TOPIC, partitions=2)


def commit(broker, reports, **given):
    messages = [KafkaCommitMessage(report=report) for report in reports]
    given = {"ledgertopic": "__ledger", **given}
    return exactly_once.commit_exactly_once(messages, options(broker.bootstrap_servers, **given), SystemClock()).line


def test_a_checkpoint_that_is_deleted_while_a_batch_runs_does_not_change_its_name(broker, checkpoint):
    """Derived anew at the commit, the name would be another one: the entry would be where no run looks for it."""
    query = Query(broker.bootstrap_servers, name(str(checkpoint)), ID)
    reports = query.tasks(query.plan(), 0, [[b"a"]])
    (checkpoint / "metadata").unlink()
    assert "committed exactly once" in commit(broker, reports, checkpointlocation=str(checkpoint))
    assert committed(broker) == {b"a": 1}
    assert query.plan().entries[ID].number == 0
