import pytest

from spark_kafka_sink.spark.caller_job import reason

AT_PLANNING = """\
[PYTHON_DATA_SOURCE_ERROR] Failed to initialize Python data source writer: Traceback (most recent call last):
  File "spark_kafka_sink/spark/source.py", line 36, in writer
    return KafkaBatchWriter(*self._plan(schema))
                             ^^^^^^^^^^^^^^^^^^
spark_kafka_sink.errors.ConfigError: - kafka.acks must be one of all, -1, 0, 1, but is '7'.
- kafka.lingerms is not an option of Kafka's producer; did you mean kafka.linger.ms?
 SQLSTATE: 38000"""

OF_A_STREAM = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: [PYTHON_DATA_SOURCE_ERROR] Failed to initialize \
Python data source writer: Traceback (most recent call last):
  File "spark_kafka_sink/spark/source.py", line 43, in streamWriter
    return KafkaStreamWriter(*self._plan(schema))
spark_kafka_sink.errors.ConfigError: topic is blank; give it a value or leave it out.
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 1, runId = 2]"""

IN_A_TASK = """\
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "spark_kafka_sink/network/metadata.py", line 120, in wait_for_topic
    raise KafkaTimeoutError(self._timeout_text(topic, partition, max_wait_ms))
spark_kafka_sink.errors.KafkaTimeoutError: Topic t not present in metadata after 1000 ms."""

WHILE_HANDLING = """\
Traceback (most recent call last):
  File "a.py", line 1, in <module>
KeyError: 1

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 3, in <module>
spark_kafka_sink.errors.NetworkError: No broker could be reached.

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
"""

WITHOUT_THE_PACKAGE = """\
Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times: org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "pyspark/serializers.py", line 520, in loads
    return cloudpickle.loads(obj, encoding=encoding)
ModuleNotFoundError: No module named 'spark_kafka_sink'

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)"""

OF_SPARK = """\
[PATH_NOT_FOUND] Path does not exist: file:/nowhere. SQLSTATE: 42K03"""

OF_THE_JVM = """\
An error occurred while calling o48.load.
: java.lang.ClassNotFoundException: org.postgresql.Driver
\tat java.base/java.lang.Class.forName0(Native Method)
\tat java.base/java.lang.Class.forName(Class.java:375)"""


@pytest.mark.parametrize(
    ("raised", "sentence"),
    [
        (
            AT_PLANNING,
            "- kafka.acks must be one of all, -1, 0, 1, but is '7'.\n"
            "- kafka.lingerms is not an option of Kafka's producer; did you mean kafka.linger.ms?",
        ),
        (OF_A_STREAM, "topic is blank; give it a value or leave it out."),
        (IN_A_TASK, "Topic t not present in metadata after 1000 ms."),
        (WHILE_HANDLING, "No broker could be reached."),
        (WITHOUT_THE_PACKAGE, "ModuleNotFoundError: No module named 'spark_kafka_sink'"),
        (OF_SPARK, OF_SPARK),
        (
            OF_THE_JVM,
            "An error occurred while calling o48.load.\n: java.lang.ClassNotFoundException: org.postgresql.Driver",
        ),
    ],
)
def test_the_reason_is_what_the_user_can_act_on(raised, sentence):
    assert reason(RuntimeError(raised)) == sentence
