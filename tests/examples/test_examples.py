"""The examples print and write what they say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys

import nbformat
import pytest

from spark_kafka_sink.testing import TestBroker
from tests.examples.conftest import EXAMPLES
from tests.examples.notebook import code_cells, executed

pytestmark = [pytest.mark.examples, pytest.mark.jvm, pytest.mark.timeout(900)]

PRINTED = {
    "read_back.py": ["1000 records read: 0 rows missing, 0 doubled or unknown"],
    "several_tables.py": ["customers: 1000 rows", "orders: 5000 rows", "countries: 2 rows"],
    "schema_registry.py": [str({"id": n, "customer": f"c{n % 2}", "amount": n * 1.5}) for n in range(4)],
}
SCRIPTS = sorted(EXAMPLES.rglob("*.sh"))


def ran(command, **settings):
    done = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.mark.parametrize("name", PRINTED)
def test_a_program_prints_what_it_has_seen(name, shell, tmp_path):
    assert ran([sys.executable, EXAMPLES / name], cwd=tmp_path, env=shell).stdout.splitlines() == PRINTED[name]


def test_the_notebook_has_the_outputs_of_a_run(shell):
    path = EXAMPLES / "notebook.ipynb"
    shown, now = (code_cells(notebook) for notebook in (nbformat.read(path, as_version=4), executed(path, shell)))
    assert any(cell.outputs for cell in shown)
    assert [cell.outputs for cell in shown] == [cell.outputs for cell in now]


def test_the_pipeline_writes_each_clean_order_to_its_topic(shell, tmp_path):
    folder = shutil.copytree(EXAMPLES / "pipeline", tmp_path / "pipeline")
    (folder / "landing").mkdir()
    orders = [{"id": "1", "amount": 5.0}, {"id": "2", "amount": 500.0}, {"id": "3"}]
    (folder / "landing/1.json").write_text("\n".join(map(json.dumps, orders)))
    specification = folder / "spark-pipeline.yml"
    with TestBroker() as broker:
        here = {"file:///var/lib/pipelines": tmp_path.as_uri(), "localhost:9092": broker.bootstrap_servers}
        text = specification.read_text()
        assert all(shown in text for shown in here)
        specification.write_text(re.sub("|".join(here), lambda found: here[found[0]], text))
        ran(["spark-pipelines", "run"], cwd=folder, env=shell)
        written = {topic: broker.topic(topic).values() for topic in ("small-orders", "large-orders")}
    assert written == {"small-orders": [b'{"id":"1","amount":5.0}'], "large-orders": [b'{"id":"2","amount":500.0}']}


@pytest.mark.parametrize("mode", ["client", "cluster"])
def test_the_script_for_yarn_submits_with_the_packed_environment(mode, shell, tmp_path):
    (tmp_path / "environment.tar.gz").touch()
    stand_in = tmp_path / "spark-submit"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$PYSPARK_PYTHON" "$@"\n')
    stand_in.chmod(0o755)
    environment = shell | {"PATH": f"{tmp_path}:{shell['PATH']}"}
    done = ran([EXAMPLES / "yarn/submit.sh", mode, "job.py", "two words"], cwd=tmp_path, env=environment)
    python, *arguments = done.stdout.splitlines()
    assert python == "./environment/bin/python"
    assert arguments[:6] == [
        "--master", "yarn", "--deploy-mode", mode, "--archives", "environment.tar.gz#environment",
    ]  # fmt: skip
    assert f"spark.yarn.appMasterEnv.PYSPARK_PYTHON={python}" in arguments
    assert arguments[-2:] == ["job.py", "two words"]


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.parent.name)
def test_shellcheck_finds_nothing_in_a_script(script, shell):
    ran(["shellcheck", script], env=shell)
