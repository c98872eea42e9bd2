"""One YARN for all tests, and the environment that docs/deploy.md packs for it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from contextlib import contextmanager
from pathlib import Path

import pyspark
import pytest

from spark_kafka_sink.testing.child_processes import GuardedProcess, tail
from tests.spark.conftest import topic
from tests.spark.test_shipping import HIDDEN, image, wheels
from tests.yarn.cluster import YarnCluster

__all__ = ["image", "topic", "wheels"]  # fixtures

SPARK_HOME = Path(pyspark.__file__).parent
_DEADLINE_S = 500.0


@pytest.fixture(scope="session")
def yarn(tmp_path_factory):
    with YarnCluster(tmp_path_factory.mktemp("yarn")) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def packed(image, tmp_path_factory):
    """A folder with environment.tar.gz, and the same unpacked."""
    folder = tmp_path_factory.mktemp("packed")
    archive = folder / "environment.tar.gz"
    pack = [sys.executable, "-m", "venv_pack", "-p", str(image), "-o", str(archive), "--compress-level", "0"]
    subprocess.run(pack, check=True, timeout=_DEADLINE_S, capture_output=True)
    with tarfile.open(archive) as content:
        content.extractall(folder / "environment", filter="fully_trusted")
    return folder


@pytest.fixture
def submitted(yarn, packed, tmp_path):
    """A context with a job that spark-submit runs on YARN; the function it gives waits until the job has ended well."""

    @contextmanager
    def submitted(mode: str, job: Path, *arguments: object):
        log = tmp_path / "submit.log"
        settings = {
            "spark.yarn.jars": f"local:{SPARK_HOME}/jars/*",  # not copied for each application
            "spark.yarn.stagingDir": (tmp_path / "staging").as_uri(),
            "spark.yarn.maxAppAttempts": "2",
            "spark.yarn.submit.waitAppCompletion": "true",
            "spark.executor.instances": "2",
            "spark.executor.memory": "512m",
            "spark.ui.enabled": "false",
            "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
            "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
        }
        environment = {name: value for name, value in os.environ.items() if name not in HIDDEN}
        environment |= {"SPARK_HOME": str(SPARK_HOME), "HADOOP_CONF_DIR": str(yarn.configuration)}
        if mode == "cluster":
            settings["spark.yarn.appMasterEnv.PYSPARK_PYTHON"] = "./environment/bin/python"
        else:
            environment["PYSPARK_PYTHON"] = "./environment/bin/python"
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        command = [
            str(SPARK_HOME / "bin/spark-submit"), "--master", "yarn", "--deploy-mode", mode,
            "--archives", f"{packed}/environment.tar.gz#environment", *options, str(job), *map(str, arguments),
        ]  # fmt: skip
        process = GuardedProcess(command, log=log, cwd=packed, env=environment)

        def ended_well() -> None:
            assert process.wait(_DEADLINE_S) == 0

        try:
            yield ended_well
        except BaseException as error:
            error.add_note(f"{tail(log)}\n{yarn.logs()}")
            raise
        finally:
            process.kill()

    return submitted
