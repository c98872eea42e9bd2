"""Writes what arrives at any Spark streaming source to Kafka. ``--help`` shows how."""

from __future__ import annotations

import sys

from spark_kafka_sink.cli import job

DESCRIPTION = """\
Writes what arrives at a Spark streaming source to Kafka with format("pykafka"), micro-batch after
micro-batch, until it is ended. Started again with the same --checkpoint it goes on where it was.

Each row is one record. Its columns: value (required), key, topic, partition, headers, and the one
that the sink option timestampColumn names. --key, --value and --column make them out of the
source's columns."""

EXAMPLES = """\
examples:
  files as they come into a folder (such sources need --schema):
  spark-submit jobs/stream_to_kafka.py --source-format json --path inbox \\
      --schema "id STRING, amount DOUBLE" --key id --value "to_json(struct(*))" \\
      --checkpoint checkpoints/inbox \\
      --sink-option kafka.bootstrap.servers=broker:9092 --sink-option topic=payments

  what is there now and no more, as a scheduled job:
  spark-submit jobs/stream_to_kafka.py ... --trigger available-now

A micro-batch that Spark runs again, after a failed task or a restart, writes its rows again: every
row arrives at least once. On a cluster every Python worker needs the package spark-kafka-sink:
docs/deploy.md."""

AVAILABLE_NOW = "available-now"


def main() -> None:
    parser = job.parser(DESCRIPTION, EXAMPLES)
    query = parser.add_argument_group("the query")
    query.add_argument("--checkpoint", required=True, metavar="FOLDER", help="where Spark keeps how far it is")
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
