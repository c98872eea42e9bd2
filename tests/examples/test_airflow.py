"""Airflow itself reads the DAG, and Spark runs what its task submits."""

from __future__ import annotations

import json
import shutil
import subprocess
from datetime import datetime

import pytest

from spark_kafka_sink.testing import TestBroker
from tests.examples.conftest import EXAMPLES
from tests.repository.files import ROOT

pytestmark = [pytest.mark.examples, pytest.mark.jvm, pytest.mark.timeout(900)]

DAY = datetime(2026, 1, 31)
RENDERED = {"ds": f"{DAY:%Y-%m-%d}", "ds_nodash": f"{DAY:%Y%m%d}"}


@pytest.fixture
def task(tmp_path, monkeypatch):
    """The task of the DAG, in a folder of DAGs with what it needs."""
    monkeypatch.setenv("AIRFLOW_HOME", str(tmp_path / "airflow"))
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps({"conn_type": "spark", "host": "yarn"}))
    dags = tmp_path / "dags"
    dags.mkdir()
    shutil.copy(EXAMPLES / "airflow_dag.py", dags)
    shutil.copy(ROOT / "jobs/batch_to_kafka.py", dags)
    from airflow.dag_processing.dagbag import DagBag  # reads AIRFLOW_HOME when it is imported

    bag = DagBag(dags)
    assert bag.import_errors == {}
    (dag,) = bag.dags.values()
    assert (dag.dag_id, dag.max_active_runs) == ("orders_to_kafka", 1)
    (task,) = dag.tasks
    task.render_template_fields(RENDERED)
    return task


def test_the_task_submits_to_yarn_in_cluster_mode(task, tmp_path):
    command = task._get_hook()._build_spark_submit_command(task.application)
    dags = tmp_path / "dags"
    assert command[:5] == ["spark-submit", "--master", "yarn", "--conf", command[4]]
    assert command[command.index("--deploy-mode") + 1] == "cluster"
    assert command[command.index("--archives") + 1] == f"{dags}/environment.tar.gz#environment"
    assert command[command.index("--files") + 1] == f"{dags}/producer.properties"


def test_a_day_that_the_task_writes_again_is_there_once(task, spark, shell, tmp_path):
    spark.range(10).selectExpr("id AS customer", "'x' AS item").write.parquet(f"{tmp_path}/day={RENDERED['ds']}")
    arguments = [each.replace("/data/orders", str(tmp_path)) for each in task.application_args]
    with TestBroker() as broker:
        (tmp_path / "producer.properties").write_text(f"bootstrap.servers={broker.bootstrap_servers}\n")
        for _ in range(2):
            submit = ["spark-submit", "--master", "local[2]", task.application, *arguments]
            done = subprocess.run(
                submit, cwd=tmp_path, env=shell, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                timeout=400, check=False,
            )  # fmt: skip
            assert done.returncode == 0, done.stdout
        keys = sorted(record.key for record in broker.topic("orders").records())
    assert keys == [str(customer).encode() for customer in range(10)]
