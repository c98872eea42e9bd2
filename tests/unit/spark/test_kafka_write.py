"""``kafka_batches`` and ``write_kafka`` before a job starts, and what a write returns."""

import logging
import pickle
from types import SimpleNamespace

import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException
from pyspark.sql.types import BinaryType, StructField, StructType

from spark_kafka_sink.errors import ConfigError, KafkaError
from spark_kafka_sink.spark import kafka_batches, kafka_write, python_process, write_kafka
from spark_kafka_sink.spark.commit_message import Committed, KafkaCommitMessage, PartitionWrite
from spark_kafka_sink.spark.kafka_write import WriteResult
from spark_kafka_sink.spark.schema import SchemaError

AT_LEAST_ONCE = {"kafka.bootstrap.servers": "localhost:1", "topic": "t"}
SCHEMA = StructType([StructField("value", BinaryType())])
EXACTLY_ONCE = {**AT_LEAST_ONCE, "deliveryGuarantee": "exactly-once"}


class Frame(SimpleNamespace):
    """As much of a DataFrame as is looked at before the job."""

    def mapInArrow(self, *_):  # noqa: N802 (Spark's name)
        raise AssertionError("a job has been started")


@pytest.fixture(autouse=True)
def process_of_sparks(monkeypatch):
    """A call of write_kafka makes the process the caller's, and the next tests stand for Spark's processes."""
    monkeypatch.setattr(python_process, "_is_callers", False)


def refused(call, *arguments) -> str:
    with pytest.raises(ConfigError) as raised:
        call(*arguments)
    return str(raised.value)


def test_a_streaming_frame_is_refused_with_the_way_that_works():
    assert "foreachBatch(kafka_batches(options))" in refused(write_kafka, Frame(isStreaming=True), AT_LEAST_ONCE)


def test_a_call_in_a_task_is_refused(monkeypatch):
    monkeypatch.setattr(TaskContext, "get", staticmethod(object))
    assert "KafkaProducer" in refused(write_kafka, Frame(isStreaming=False), AT_LEAST_ONCE)


def test_what_is_not_a_frame_is_refused():
    with pytest.raises(TypeError, match=r"not builtins\.list. spark\.createDataFrame makes a"):
        write_kafka([], AT_LEAST_ONCE)


def test_batches_of_an_exactly_once_query_need_its_name_and_number_themselves():
    told = refused(kafka_batches, {**EXACTLY_ONCE, "txnVersion": 1, "kafka.acks": "7"})
    assert "txnAppId is required" in told
    assert "txnVersion is refused" in told
    assert "kafka.acks" in told


@pytest.mark.parametrize(("options", "version"), [({**EXACTLY_ONCE, "txnAppId": "orders"}, "7"), (AT_LEAST_ONCE, None)])
def test_the_batch_id_is_the_version_of_an_exactly_once_micro_batch(monkeypatch, options, version):
    given = []
    monkeypatch.setattr(kafka_write, "_write", lambda frame, options, batch: given.append(options))
    pickle.loads(pickle.dumps(kafka_batches(options)))(None, 7)
    assert given[0].get("txnversion") == version


def test_incident_the_function_for_foreach_batch_showed_the_password():
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    login = {
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{module} required username="u" password="s3cret";',
    }
    batches = kafka_batches({**AT_LEAST_ONCE, **login, "kafka.security.protocol": "SASL_SSL"})
    assert "s3cret" not in repr(batches)
    assert "s3cret" not in str(batches)


def test_incident_faults_of_one_write_came_one_after_the_other():
    """A doubled option, then an unknown one, then the missing txnAppId, then the column."""
    frame = Frame(isStreaming=False, schema=StructType([StructField("valu", BinaryType())]))
    told = refused(write_kafka, frame, {**EXACTLY_ONCE, "Topic": "u", "foo": 1})
    assert "topic and Topic are the same option" in told
    assert "foo is not an option" in told
    assert "needs txnAppId, a name" in told
    assert "Required attribute 'value' not found" in told


def test_a_fault_of_the_columns_alone_is_a_schema_error():
    with pytest.raises(SchemaError, match="Required attribute 'value' not found"):
        write_kafka(Frame(isStreaming=False, schema=StructType()), AT_LEAST_ONCE)


@pytest.mark.parametrize("options", [None, "topic=t", {5: 1}])
def test_incident_what_is_no_options_was_an_attribute_error(options):
    frame = Frame(isStreaming=False, schema=SCHEMA)
    for call in (lambda: write_kafka(frame, options), lambda: kafka_batches(options)):
        with pytest.raises(TypeError, match="option"):
            call()


def test_incident_without_pandas_the_write_was_aborted_as_if_tasks_had_run(monkeypatch):
    monkeypatch.setattr(kafka_write, "find_spec", lambda name: None)
    frame = Frame(isStreaming=False, schema=SCHEMA)
    for call in (lambda: write_kafka(frame, AT_LEAST_ONCE), lambda: kafka_batches({})):
        with pytest.raises(ImportError, match='pip install "pandas<3"') as raised:
            call()
        assert not hasattr(raised.value, "__notes__")


def test_incident_a_query_that_cannot_be_analyzed_was_said_to_have_left_rows(monkeypatch):
    """Spark analyzes each step, before any task."""

    class Wrong(Frame):
        columns = ()

        def toDF(self, *_):  # noqa: N802 (Spark's name)
            raise AnalysisException("no such column")

    with pytest.raises(AnalysisException) as raised:
        write_kafka(Wrong(isStreaming=False, schema=SCHEMA), {**AT_LEAST_ONCE, "driverCheck": False})
    assert raised.value.__notes__[-1] == "The write was aborted before a task started"


def test_incident_the_log_level_of_a_write_stayed_that_of_the_callers_process():
    logger = logging.getLogger("spark_kafka_sink")
    before = logger.level, [*logger.handlers]
    with pytest.raises(AttributeError, match="toDF"):
        write_kafka(
            Frame(isStreaming=False, schema=SCHEMA), {**AT_LEAST_ONCE, "driverCheck": False, "logLevel": "DEBUG"}
        )
    assert (logger.level, logger.handlers) == before


class Connect(SimpleNamespace):
    """As much of a Spark Connect session, frame and query as a write uses."""

    def getTags(self):  # noqa: N802 (Spark's name)
        return set()

    addTag = interruptTag = print  # noqa: N815 (Spark's names)
    columns = ("value",)

    def toDF(self, *names):  # noqa: N802
        return self

    def select(self, *columns):
        return self

    def __getitem__(self, name):
        return SimpleNamespace(alias=lambda _: self)


Connect.__module__ = "pyspark.sql.connect.dataframe"


class Payload:
    def __reduce__(self):
        return pytest.fail, ("unpickled",)


@pytest.mark.parametrize("message", [pickle.dumps(Payload()), None, "[]", '{"writes": 1}', "1" * 9_999, "[" * 9_999])
def test_incident_what_a_spark_connect_server_returned_was_unpickled(message):
    session = Connect()
    job = Connect(sparkSession=session, collect=lambda: [(message,)])
    frame = Connect(sparkSession=session, isStreaming=False, schema=SCHEMA, mapInArrow=lambda *_: job)
    with pytest.raises(KafkaError, match="^Spark returned something other than a task's message"):
        write_kafka(frame, {**AT_LEAST_ONCE, "driverCheck": False})


def test_a_result_has_one_entry_for_each_partition_that_several_tasks_wrote():
    tasks = [
        KafkaCommitMessage((PartitionWrite("t", 1, 2, 20, 5, 9), PartitionWrite("t", 0, 1, 10, 0, 0))),
        KafkaCommitMessage((PartitionWrite("t", 1, 3, 30, 2, 11),)),
    ]
    result = WriteResult.of(tasks, Committed("6 rows"), 1.5)
    assert result.partitions == (PartitionWrite("t", 0, 1, 10, 0, 0), PartitionWrite("t", 1, 5, 50, 2, 11))
    assert (result.rows, result.bytes, str(result), result.replayed) == (6, 60, "6 rows", False)


def test_a_replay_has_written_nothing():
    tasks = [KafkaCommitMessage((PartitionWrite("t", 1, 2, 20, 5, 9),))]
    result = WriteResult.of(tasks, Committed("was committed before", replayed=True), 1.5)
    assert (result.rows, result.bytes, result.partitions, result.replayed) == (0, 0, (), True)
