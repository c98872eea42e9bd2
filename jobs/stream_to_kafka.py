"""Writes the rows of any Spark streaming source to Kafka. See ``--help``."""

from __future__ import annotations

import sys

from spark_kafka_sink.tools.cli import job

DESCRIPTION = """\
Writes the rows of a Spark streaming source to Kafka with format("pykafka"), in micro-batches, until it
is stopped. Restarted with the same --checkpoint, it continues where it stopped.

Each row is one record. The sink reads the columns value (required), key, topic, partition, headers,
and the one named by the sink option timestampColumn. --key, --value and --column compute them from
the source's columns."""

EXAMPLES = """\
examples:
  new files in a folder (such sources need --schema):
  spark-submit jobs/stream_to_kafka.py --source-format json --path inbox \\
      --schema "id STRING, amount DOUBLE" --key id --value "to_json(struct(*))" \\
      --checkpoint checkpoints/inbox \\
      --sink-option kafka.bootstrap.servers=broker:9092 --sink-option topic=payments

  only the available rows, as a scheduled job:
  spark-submit jobs/stream_to_kafka.py ... --trigger available-now

By default, a micro-batch that Spark runs again, after a failed task or a restart, writes its rows again (at
least once). For exactly-once writes, set --sink-option deliveryGuarantee=exactly-once
(docs/exactly-once.md). On a cluster, every Python worker needs the package spark-kafka-sink
(docs/deploy.md)."""

AVAILABLE_NOW = "available-now"


def main() -> None:
    parser = job.parser(DESCRIPTION, EXAMPLES)
    query = parser.add_argument_group("query")
    query.add_argument("--checkpoint", required=True, metavar="FOLDER", help="folder for Spark's checkpoint")
    query.add_argument("--query-name", metavar="NAME", help="the query's name in Spark's UI and metrics")
    query.add_argument(
        "--trigger", metavar="WHEN",
        help=f'{AVAILABLE_NOW}, or an interval such as "10 seconds" (default: a micro-batch as soon as there are rows)',
    )  # fmt: skip
    arguments = parser.parse_args()
    options = job.sink_options(arguments) | {"checkpointLocation": arguments.checkpoint}
    with job.session("stream_to_kafka") as spark:
        writer = job.load(spark.readStream, arguments).writeStream.format("pykafka").options(**options)
        if arguments.query_name:
            writer = writer.queryName(arguments.query_name)
        if arguments.trigger == AVAILABLE_NOW:
            writer = writer.trigger(availableNow=True)
        elif arguments.trigger:
            writer = writer.trigger(processingTime=arguments.trigger)
        writer.start().awaitTermination()


if __name__ == "__main__":
    sys.exit(job.exit_code(main))
