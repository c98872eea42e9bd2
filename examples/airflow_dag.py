"""An Airflow DAG that writes each day's orders to Kafka, exactly once even if Airflow runs the task again.

Copy it to the folder of your DAGs, next to ``jobs/batch_to_kafka.py``, ``producer.properties`` and the environment that
``yarn/submit.sh`` packs. It needs ``apache-airflow-providers-apache-spark`` and a connection ``spark_default`` to YARN.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path

from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator
from airflow.sdk import DAG

HERE = Path(__file__).parent

with DAG(
    "orders_to_kafka",
    schedule="@daily",
    start_date=datetime(2026, 1, 1),
    catchup=True,
    max_active_runs=1,  # days in their order: the sink refuses a day that is older than the last one written
    default_args={"retries": 3, "retry_delay": timedelta(minutes=5), "depends_on_past": True},
):
    SparkSubmitOperator(
        task_id="write",
        application=str(HERE / "batch_to_kafka.py"),
        deploy_mode="cluster",  # the driver gets the archive and the file, too
        archives=f"{HERE}/environment.tar.gz#environment",
        files=f"{HERE}/producer.properties",  # brokers, TLS and passwords: not on the command line
        conf={
            "spark.yarn.appMasterEnv.PYSPARK_PYTHON": "./environment/bin/python",
            "spark.executor.memoryOverhead": "1g",
        },
        application_args=[
            "--source-format", "parquet",
            "--path", "/data/orders/day={{ ds }}",
            "--key", "cast(customer AS STRING)",
            "--value", "to_json(struct(*))",
            "--producer-config", "producer.properties",
            "--sink-option", "topic=orders",
            "--sink-option", "deliveryGuarantee=exactly-once",
            "--sink-option", "txnAppId=orders_to_kafka",
            "--sink-option", "txnVersion={{ ds_nodash }}",  # the day that the run is for: a retry writes no row again
        ],
    )  # fmt: skip
