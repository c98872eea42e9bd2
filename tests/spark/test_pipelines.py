"""Declarative pipelines with ``dp.create_sink(…, "pykafka", …)``; each run is a process of its own."""

import json
import os
import re
import shutil
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.faults.exactly_once.reader import read_committed
from tests.spark.writes import lose_commit
from tests.support.child_processes import PYTHON_PATH, finished

pytest.importorskip("pyspark.pipelines", reason="pipelines came with Spark 4.1")
pytest.importorskip("yaml", reason="spark-pipelines reads its specification with PyYAML")

pytestmark = pytest.mark.jvm

ROOT = Path(__file__).parents[2]
RUN_S = 280
FAIL_ONCE = '''
@udf("string")
def fail_once(value):
    """The value; the first time that it is that of order 7, an error instead."""
    if '"7"' in value and not Path("{marker}").exists():
        Path("{marker}").touch()
        raise RuntimeError("the first attempt fails")
    return value
'''


class SamplePipeline:
    """The pipeline of ``jobs/pipeline`` in a folder and with a topic of its own."""

    def __init__(self, folder: Path, topic) -> None:
        self._folder = folder
        self._topic = topic
        self._written = 0
        shutil.copytree(ROOT / "jobs/pipeline", folder / "pipeline")
        self._replace("spark-pipeline.yml", "file:///var/lib/pipelines/orders", f"{folder.as_uri()}/storage")
        self._replace("transformations/orders.py", "localhost:9092", topic.servers)
        self._replace("transformations/orders.py", '"topic": "orders"', f'"topic": "{topic.name}"')
        for flow in ("web", "branches"):
            (folder / "landing" / flow).mkdir(parents=True)

    def set_option(self, name: str, value: str) -> None:
        self._replace("transformations/orders.py", '"deliveryGuarantee"', f'"{name}": "{value}", "deliveryGuarantee"')

    def write_at_least_once(self) -> None:
        self._replace("transformations/orders.py", "exactly-once", "at-least-once")

    def fail_first_attempt_of_branches(self) -> None:
        """Of four tasks, the one with order 7 fails."""
        path = self._folder / "pipeline/transformations/orders.py"
        failing = FAIL_ONCE.format(marker=self._folder / "failed")
        text = path.read_text().replace("dp.create_sink", f"{failing}\n\ndp.create_sink", 1)
        imports = "from pathlib import Path\nfrom pyspark.sql.functions import udf\n"
        text = text.replace("from pyspark.sql import", f"{imports}from pyspark.sql import", 1)
        path.write_text(text)
        failing_flow = 'read_orders("landing/branches").repartition(4).select("key", fail_once("value").alias("value"))'
        self._replace("transformations/orders.py", 'read_orders("landing/branches")', failing_flow)

    def land(self, flow: str, first: int, last: int) -> None:
        """A file with the orders first to last."""
        self._written += 1
        lines = (json.dumps({"id": str(number), "amount": 1.5}) for number in range(first, last + 1))
        (self._folder / "landing" / flow / f"{self._written}.json").write_text("\n".join(lines))

    def run(self, *arguments: str, fails: bool = False) -> str:
        """The output of ``spark-pipelines run``, which must succeed, or fail."""
        command = Path(sys.executable).with_name("spark-pipelines")
        environment = os.environ | {"PYTHONPATH": PYTHON_PATH, "PYSPARK_PYTHON": sys.executable}
        line = [command, "run", "--spec", "pipeline/spark-pipeline.yml", *arguments]
        code, output = finished(line, RUN_S, cwd=self._folder, env=environment)
        assert (code != 0) is fails, output
        return output

    def checkpoint(self, flow: str, number: int = 0) -> Path:
        return self._folder / "storage/_checkpoints/orders" / flow / str(number)

    def written(self) -> Counter[str]:
        """How often each order is in the topic."""
        partitions = read_committed(self._topic.servers, self._topic.name).values()
        return Counter(json.loads(value)["id"] for values in partitions for value in values)

    def _replace(self, file: str, shown: str, used: str) -> None:
        path = self._folder / "pipeline" / file
        text = path.read_text()
        assert shown in text
        path.write_text(text.replace(shown, used))


@pytest.fixture
def pipeline(tmp_path, topic):
    return SamplePipeline(tmp_path, topic)


def once(first: int, last: int) -> Counter[str]:
    return Counter(map(str, range(first, last + 1)))


@pytest.mark.slow
def test_the_second_run_of_two_exactly_once_flows_is_not_refused(pipeline):
    pipeline.land("web", 0, 99)
    pipeline.land("branches", 100, 199)
    pipeline.run()
    assert pipeline.written() == once(0, 199)

    lose_commit(pipeline.checkpoint("web"), 0)
    pipeline.land("branches", 200, 299)
    output = pipeline.run()
    assert pipeline.written() == once(0, 299)
    assert "was committed before, so nothing was written" in output


@pytest.mark.slow
def test_a_flow_that_fails_is_tried_again_and_writes_each_row_once(pipeline):
    pipeline.fail_first_attempt_of_branches()
    pipeline.land("web", 100, 199)
    pipeline.land("branches", 0, 99)
    output = pipeline.run()
    assert "the first attempt fails" in output
    assert pipeline.written() == once(0, 199)


@pytest.mark.slow
def test_a_full_refresh_is_a_new_query_and_writes_every_row_again(pipeline):
    pipeline.land("web", 0, 99)
    pipeline.run()
    output = pipeline.run("--full-refresh-all")
    assert pipeline.written() == once(0, 99) + once(0, 99)
    refreshed = json.loads((pipeline.checkpoint("web", 1) / "metadata").read_text())["id"]
    assert re.search(rf"micro-batch 0 of query web: 100 rows .* \(transactionalIdPrefix spark-{refreshed}\)", output)


@pytest.mark.slow
def test_a_full_refresh_under_a_prefix_is_refused_until_the_new_query_replaces_the_old_one(pipeline, topic):
    pipeline.set_option("transactionalIdPrefix", topic.name)
    pipeline.land("web", 0, 99)
    pipeline.run()
    output = pipeline.run("--full-refresh-all", fails=True)
    pipeline.set_option("ledgerStart", re.search(r"set ledgerStart=(replaces:[0-9a-f-]+), which", output)[1])
    assert pipeline.written() == once(0, 99)
    pipeline.run()
    assert pipeline.written() == once(0, 99) + once(0, 99)


@pytest.mark.slow
def test_at_least_once_flows_write_what_is_new_and_repeat_a_micro_batch_whose_commit_was_lost(pipeline):
    pipeline.write_at_least_once()
    pipeline.land("web", 0, 99)
    pipeline.land("branches", 100, 199)
    pipeline.run()
    lose_commit(pipeline.checkpoint("web"), 0)
    pipeline.land("branches", 200, 299)
    pipeline.run()
    assert pipeline.written() == once(0, 299) + once(0, 99)
