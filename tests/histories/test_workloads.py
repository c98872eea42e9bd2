"""What a workload says of its writes is what the sink makes of the options that its driver gives."""

from __future__ import annotations

import pytest

from spark_kafka_sink.spark.options import SinkOptions
from tests.faults.chaos.processes import START
from tests.histories import job
from tests.histories.recorder import Recorder
from tests.histories.workloads import RUNNING_FILE, WORKLOADS, Workload


class Session:
    """A session, its frames, and the writer of its streams, which hands one micro-batch to ``foreachBatch``."""

    def __init__(self, written):
        self._written = written
        self.readStream = self.writeStream = self

    def option(self, name, value):
        return self

    def options(self, **options):
        self._written(options)
        return self

    def foreachBatch(self, write):  # noqa: N802 (Spark's name)
        write(self, 3)
        return self

    def __getattr__(self, name):
        return lambda *_, **__: self


def options_of(workload: Workload, folder, monkeypatch) -> dict[str, SinkOptions]:
    """The options of what its driver writes before it ends, by the write, or by the workload if that is a query."""
    found = {}

    def written(options):
        running = folder / RUNNING_FILE
        parsed = SinkOptions.parse(
            {name.lower(): str(value) for name, value in options.items()}, [], of_batch=not workload.is_query
        )
        found[running.read_text() if running.exists() else workload.name] = parsed

    def by(frame, options):
        return lambda: written(options)

    monkeypatch.setattr(job, "by_format", by)
    monkeypatch.setattr(job, "by_call", by)
    monkeypatch.setattr(job, "run_query", lambda *_: None)
    monkeypatch.setenv(START, "1")
    (folder / "stop").touch()
    job.JOBS[workload.name](job.Job(Session(written), Recorder(folder, "test"), "here:1", "http://here:2", folder, {}))
    return found


@pytest.mark.parametrize("workload", WORKLOADS.values(), ids=WORKLOADS.keys())
def test_the_sink_knows_each_write_by_the_name_of_its_workload(workload, tmp_path, monkeypatch):
    found = options_of(workload, tmp_path, monkeypatch)
    assert {write.partition("/")[0] for write in found} == {write.name for write in workload.writes}
    for write in workload.writes:
        running, options = next(item for item in found.items() if item[0].partition("/")[0] == write.name)
        number = running.partition("/")[2]
        if not write.exactly_once:
            assert options.exactly_once is None
        elif write.repeats:
            assert (options.exactly_once.name, options.exactly_once.prefix) == (write.write_name, write.write_name)
        else:
            assert options.exactly_once.name == options.exactly_once.prefix == f"{write.write_name}-{number}"
