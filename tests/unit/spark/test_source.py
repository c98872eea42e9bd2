"""What Spark's planning asks of the data source."""

import json
import pickle
import subprocess
import sys
import tempfile
import warnings
from uuid import uuid4

import pytest
from pyspark import SparkFiles
from pyspark.errors import AnalysisException
from pyspark.sql import datasource
from pyspark.sql import types as t
from pyspark.sql.datasource import DataSource, DataSourceArrowWriter

import pyspark_pykafka
from spark_kafka_sink.common.config import ConfigWarning
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.spark import activate_session, kafka_write, register_format, sink_write
from spark_kafka_sink.spark.schema import SchemaError
from spark_kafka_sink.spark.source import KafkaDataSource
from tests.support.waiting import DEADLINE_S

OPTIONS = {"kafka.bootstrap.servers": "a:1", "topic": "t"}
VALUE = t.StructType([t.StructField("value", t.StringType())])
TWICE = t.StructType([*VALUE, *VALUE])
WRITERS = ["writer", "streamWriter"]
# Spark 4.0 has one class for both.
STREAM_PARENT = getattr(datasource, "DataSourceStreamArrowWriter", DataSourceArrowWriter)


def plan(kind, options=OPTIONS, schema=VALUE, overwrite=False):
    return getattr(KafkaDataSource(options), kind)(schema, overwrite)


def test_pyspark_finds_the_source_by_its_package():
    assert pyspark_pykafka.DefaultSource is KafkaDataSource
    assert issubclass(pyspark_pykafka.DefaultSource, DataSource)
    assert pyspark_pykafka.DefaultSource.name() == "pykafka"


def test_looking_the_source_up_imports_nothing_beside_it():
    """Each PySpark session of an environment looks up all its sources, also one that never writes to Kafka."""
    code = """
import sys, pyspark.sql.datasource
before = {*sys.modules}
import pyspark_pykafka
print(*sorted({*sys.modules} - before))
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE_S, capture_output=True, text=True)
    assert done.stdout.split() == [
        "pyspark_pykafka", "spark_kafka_sink", "spark_kafka_sink.errors", "spark_kafka_sink.spark",
        "spark_kafka_sink.spark.source",
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "parent"), [("writer", DataSourceArrowWriter), ("streamWriter", STREAM_PARENT)])
def test_writers_take_arrow_and_reach_the_tasks_by_pickle(kind, parent):
    writer = pickle.loads(pickle.dumps(plan(kind, {**OPTIONS, "driverCheck": "false"})))
    assert isinstance(writer, parent)
    assert (writer.options.topic, writer.layout.value) == ("t", 0)


@pytest.mark.parametrize("kind", WRITERS)
@pytest.mark.parametrize("other", [t.YearMonthIntervalType(), TWICE, t.ArrayType(TWICE)])
def test_incident_an_ignored_column_ended_the_job_with_a_key_error(kind, other):
    schema = t.StructType([*VALUE, t.StructField("other", other)])
    with pytest.raises(SchemaError, match=r"cannot hand the column other of type .* Drop it, or select only"):
        plan(kind, schema=schema)


@pytest.mark.parametrize("kind", WRITERS)
def test_incident_ignored_columns_of_one_name_ended_the_job_in_its_tasks(kind):
    """With UnsupportedOperationException: DUPLICATED_FIELD_NAME_IN_ARROW_STRUCT."""
    with pytest.raises(SchemaError, match="cannot hand two columns id to Python, .* Drop or rename one"):
        plan(
            kind, schema=t.StructType([*VALUE, t.StructField("id", t.StringType()), t.StructField("id", t.NullType())])
        )
    other_case = t.StructType([*VALUE, t.StructField("id", t.StringType()), t.StructField("ID", t.NullType())])
    assert plan(kind, schema=other_case).layout.value == 0


def test_spark_4_0_lacks_the_stream_arrow_writer_and_time_columns():
    """The imports of the missing classes failed every look-up of the format, and every write with keyFormat.

    Spark 4.0 gives Arrow batches to any DataSourceArrowWriter, also of a stream.
    """
    code = """
from pyspark.sql import datasource, types
vars(datasource).pop("DataSourceStreamArrowWriter", None)
vars(types).pop("TimeType", None)
import pyspark_pykafka
from spark_kafka_sink.spark.formats import derive_schema
from spark_kafka_sink.spark.sink_write import KafkaStreamWriter
assert issubclass(KafkaStreamWriter, datasource.DataSourceArrowWriter)
assert derive_schema("value", types.StringType(), True) == '["string","null"]'
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=DEADLINE_S)


ONCE = {**OPTIONS, "deliveryguarantee": "exactly-once"}
VERSIONED = {**ONCE, "txnappid": "nightly", "txnversion": "20250131"}


def test_a_repeated_micro_batch_doubled_its_rows_where_spark_does_not_tell_that_it_is_one():
    """Through Spark Connect and from a thread pool, foreachBatch looks like any other batch write."""
    with pytest.raises(ConfigError, match="needs txnAppId, a name that .*, and txnVersion, a number that") as raised:
        plan("writer", {**ONCE, "transactionalidprefix": "mine"})
    assert "in foreachBatch the batch id" in str(raised.value)
    assert '.option("txnAppId", "copy-of-orders-1").option("txnVersion", 0)' in str(raised.value)


def test_a_batch_write_is_numbered_by_its_options():
    assert plan("writer", VERSIONED).options.exactly_once.version == ("nightly", 20250131)


def test_overwrite_is_refused_in_batch():
    with pytest.raises(ConfigError) as raised:
        plan("writer", overwrite=True)
    assert str(raised.value) == (
        'Save mode Overwrite not allowed for Kafka. The allowed save mode is Append: .mode("append").'
    )


def test_reading_is_pointed_at_sparks_own_source():
    with pytest.raises(NotImplementedError, match=r'format\("kafka"\)'):
        KafkaDataSource(OPTIONS).schema()


def test_incident_an_old_local_folder_with_the_path_of_a_checkpoint_elsewhere_made_its_query_continuous(tmp_path):
    """Spark has the checkpoint in the file system of fs.defaultFS, which no Python process of Spark is told."""
    (tmp_path / "offsets").mkdir()
    (tmp_path / "metadata").write_text(json.dumps({"id": str(uuid4())}))
    plan("streamWriter", {**OPTIONS, "checkpointLocation": str(tmp_path)})


@pytest.mark.parametrize("kind", WRITERS)
def test_incident_the_option_topic_took_the_place_of_a_column_in_silence(kind, monkeypatch, tmp_path):
    """Each micro-batch has a writer of its own, which Spark pickles twice."""
    lines = []
    monkeypatch.setattr(sink_write, "announce", lines.append)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    named = t.StructType([*VALUE, t.StructField("topic", t.StringType())])
    for schema in (VALUE, named, named):
        writer = plan(kind, {**OPTIONS, "driverCheck": "false"}, schema)
        pickle.dumps(writer)
        pickle.dumps(writer)
    assert lines == ["The option topic sends all rows to t, so the column topic is not read"]


# Sessions that ``activate_session`` leaves alone, formats that are registered already; tests/spark has the others.


class ConnectSession:
    """Without a JVM, as Spark Connect's session is: every attribute is an error."""


ConnectSession.__module__ = "pyspark.sql.connect.session"


def test_every_thread_of_spark_connect_finds_the_format_already():
    activate_session(ConnectSession())


def test_incident_no_session_was_an_attribute_error():
    with pytest.raises(TypeError, match="Give a SparkSession, not NoneType"):
        activate_session(None)


class Session:
    """Whose registration raises ``error``."""

    def __init__(self, error):
        self.dataSource = self
        self._error = error

    def register(self, source):
        raise self._error


def refusal(condition):
    error = AnalysisException("refused")
    error.getCondition = lambda: condition
    return error


@pytest.fixture
def activated(monkeypatch):
    """The sessions that are made active, before a refusal."""
    sessions = []
    monkeypatch.setattr(kafka_write, "activate_session", sessions.append)
    return sessions


def test_incident_spark_4_0_takes_no_second_format_of_the_name_that_it_has_found_itself(activated):
    register_format(Session(refusal("DATA_SOURCE_ALREADY_EXISTS")))


def test_another_refusal_of_the_format_is_raised(activated):
    session = Session(refusal("CANNOT_LOAD"))
    with pytest.raises(AnalysisException):
        register_format(session)
    assert activated == [session]


@pytest.mark.parametrize("kind", WRITERS)
def test_incident_a_warning_of_options_looked_like_a_defect_with_its_line_of_code(kind, caplog):
    with warnings.catch_warnings(record=True) as shown:
        plan(kind, {**OPTIONS, "kafka.acks": "1"})
    (line,) = [record for record in caplog.records if record.name == "spark_kafka_sink"]
    assert line.levelname == "WARNING"
    assert line.getMessage().startswith("kafka.acks is 1, so idempotence")
    assert not [each for each in shown if each.category is ConfigWarning]
