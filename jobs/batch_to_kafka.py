"""Writes the rows of any Spark source to Kafka, once. See ``--help``."""

from __future__ import annotations

import sys

from spark_kafka_sink.tools.cli import job

DESCRIPTION = """\
Writes the rows of a Spark source to Kafka once, with format("pykafka"), and exits when every row is
acknowledged.

Each row is one record. The sink reads the columns value (required), key, topic, partition, headers,
and the one named by the sink option timestampColumn. --key, --value and --column compute them from
the source's columns."""

EXAMPLES = """\
examples:
  spark-submit jobs/batch_to_kafka.py --source-format parquet --path orders.parquet \\
      --key "cast(customer AS STRING)" --value "to_json(struct(*))" \\
      --sink-option kafka.bootstrap.servers=broker:9092 --sink-option topic=orders

  a database table, with the producer's options in a file:
  spark-submit --packages org.postgresql:postgresql:42.7.7 jobs/batch_to_kafka.py --source-format jdbc \\
      --source-option url=jdbc:postgresql://db/shop --source-option dbtable=orders \\
      --key id --value "to_json(struct(*))" --column "timestamp=updated_at" \\
      --producer-config conf/producer.properties --sink-option topic=orders \\
      --sink-option timestampColumn=timestamp

By default, a task that Spark retries writes its rows again (at least once). For exactly-once writes, set
--sink-option deliveryGuarantee=exactly-once --sink-option txnAppId=NAME --sink-option txnVersion=NUMBER,
the same number when you run the job again (docs/exactly-once.md). On a cluster, every Python worker
needs the package spark-kafka-sink (docs/deploy.md)."""


def main() -> None:
    arguments = job.parser(DESCRIPTION, EXAMPLES).parse_args()
    options = job.sink_options(arguments)
    with job.session("batch_to_kafka") as spark:
        rows = job.load(spark.read, arguments)
        rows.write.format("pykafka").options(**options).mode("append").save()


if __name__ == "__main__":
    sys.exit(job.exit_code(main))
