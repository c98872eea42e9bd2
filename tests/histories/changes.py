"""Troubles that give a workload's next driver something else: options, a clock, an older sink; topics that grow or
are created again, and brokers that are upgraded."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from spark_kafka_sink.testing.maven import cache_folder, filling
from tests.faults.chaos.drivers import await_that
from tests.faults.chaos.processes import Kind, send
from tests.faults.chaos.troubles import (
    ABORT,
    COMMIT,
    PLANNING,
    REACHED_S,
    TASK,
    NotReachedError,
    arm,
    await_point,
    pick,
)
from tests.histories import hooks
from tests.histories.workloads import HALT_FILE, OPTIONS_FILE, PARTITIONS, ROWS, python_of, replace_file

if TYPE_CHECKING:
    from tests.faults.chaos.plan import Step
    from tests.histories.troubles import Victim

_WRITES_S = 400.0
_MOST_PARTITIONS = 2 * PARTITIONS
_LET_GO_S = 60.0
_STOPS_S = 60.0
_ANY_TIME = ""
_DIES = 0.5
_SHORTEST_OFF_S, _LONGEST_OFF_S = 60, 900
_REPOSITORY = Path(__file__).parents[2]

PINNED = "832308547c79b49027a4d5a8a123e1330a6021b5"
"""The older sink of a repository without a tag: the one of the first two runs in docs/proof.md."""

# What docs/exactly-once.md leaves to each run.
SWITCHED: Mapping[str, tuple[object, ...]] = MappingProxyType(
    {
        "kafka.compression.type": ("none", "gzip", "snappy", "lz4", "zstd"),
        "kafka.linger.ms": (0, 5, 200),
        "kafka.batch.size": (500, 16_384, 1_000_000),
        "kafka.partitioner.class": ("default", "crc32", "round_robin", "uniform_sticky"),
        "kafka.max.in.flight.requests.per.connection": (1, 5),
    }
)


class ChangeError(AssertionError):
    """Something that a trouble needs is not to be had."""


def terminated(victim: Victim) -> None:
    """SIGTERM in mid-work, as cluster managers send it."""
    send(victim.drivers.processes(Kind.DRIVER, start=victim.drivers.starts), signal.SIGTERM)


def topics_grown(victim: Victim, step: Step) -> None:
    """A partition more while queries write to the topic."""
    topics = victim.source.topics
    small = [topic for topic in victim.workload.topics if topics[topic] < _MOST_PARTITIONS]
    topic = pick(small, step.random())
    victim.kafka.grow(topic, topics[topic] + 1)
    topics[topic] += 1
    time.sleep(step.seconds)


def topic_recreated(victim: Victim, step: Step) -> None:
    """A topic is deleted and created again with as many partitions as at first: at any time, or while a process is
    stopped at a step of the protocol, which then goes on or dies with its driver."""
    random = step.random()
    topic, point = pick(victim.workload.topics, random), pick((*TASK, *COMMIT, _ANY_TIME), random)
    if point:
        arm(victim, point, "stop")
        await_point(victim)
    _recreate(victim, topic)
    if point:
        if random.random() < _DIES:
            victim.drivers.kill()
        with suppress(ProcessLookupError):  # it died with its driver
            victim.fault.wake()
    time.sleep(step.seconds)


def query_stopped(victim: Victim, step: Step) -> None:
    """``query.stop()`` at any time, or while a task or its driver waits at a step of the protocol and goes on as the
    query stops. The driver goes on with a new query."""
    random = step.random()
    point = pick((*PLANNING, *TASK, *COMMIT, *ABORT, _ANY_TIME), random)
    if point:
        arm(victim, point, "hold")  # a driver that is stopped could not stop its query
        await_point(victim)
    halt = victim.drivers.folder / HALT_FILE
    halt.touch()
    stops = await_that(lambda: not halt.exists(), _STOPS_S)
    halt.unlink(missing_ok=True)
    if point:
        time.sleep(random.random() * step.seconds)
        victim.fault.release()  # unless Spark has ended it
    if not stops:
        raise NotReachedError
    time.sleep(step.seconds)


def _recreate(victim: Victim, topic: str) -> None:
    """The readers let go of it first: they would meet with errors, and take one topic for the other."""
    source = victim.source
    old = source.take_out(topic)
    for reader in victim.readers:
        reader.await_let_go(topic, _LET_GO_S)
    victim.record("topic", topic=topic, incarnation=old, phase="deleted")
    new = victim.kafka.recreate(topic, PARTITIONS)
    victim.record("topic", topic=topic, incarnation=new, phase="created")
    source.put_back(topic, PARTITIONS, new)


def options_switched(victim: Victim, step: Step) -> None:
    """The next driver, and those after it, write with other options."""
    random = step.random()
    chosen = {name: random.choice(values) for name, values in SWITCHED.items()}
    replace_file(victim.drivers.folder / OPTIONS_FILE, json.dumps(chosen))
    terminated(victim)
    time.sleep(step.seconds)


def clocks_are_off(victim: Victim, step: Step) -> None:
    """Those of the next driver's Python and of its workers, by up to a quarter of an hour, back or ahead."""
    random = step.random()
    seconds = random.randint(_SHORTEST_OFF_S, _LONGEST_OFF_S)
    variables = clock_variables(random.choice((seconds, -seconds)))
    _run_with(victim, step, {**variables, "PYSPARK_PYTHON": str(_python_with(variables, victim))})


def older_sink(victim: Victim, step: Step) -> None:
    """The next driver runs an older release on the same ledger and checkpoint, and the one after it this one again."""
    if victim.older_sink is None:
        raise NotReachedError
    _run_with(victim, step, {"PYTHONPATH": f"{victim.older_sink}{os.pathsep}{hooks.PYTHON_PATH}"})


def _run_with(victim: Victim, step: Step, variables: Mapping[str, str]) -> None:
    """A driver with these variables is started, writes for a while, and is replaced by one without them."""
    starts = victim.drivers.starts
    victim.variables.update(variables)
    try:
        terminated(victim)
        if not await_that(lambda: victim.drivers.starts > starts, REACHED_S):
            raise NotReachedError
        before = victim.rows
        wrote = await_that(lambda: victim.rows > before + ROWS, _WRITES_S)
        time.sleep(step.seconds)
    finally:
        for name in variables:
            victim.variables.pop(name, None)
        terminated(victim)
    if not wrote:
        raise NotReachedError


def broker_upgraded(victim: Victim, step: Step) -> None:
    """The next one of three, by a controlled shutdown, or the features once all have the next release."""
    if not victim.kafka.upgrade():
        raise NotReachedError
    time.sleep(step.seconds)


def _python_with(variables: Mapping[str, str], victim: Victim) -> Path:
    """A Python for Spark's workers that has these variables, which the JVM does not pass on."""
    script = victim.drivers.folder / "python-with-a-clock"
    words = shlex.join(
        ["env", *(f"{name}={value}" for name, value in variables.items()), str(python_of(victim.workload))]
    )
    script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    script.chmod(0o755)
    return script


# -- what these troubles need -------------------------------------------------------------------------------------


def clock_variables(seconds: int) -> dict[str, str]:
    """Those of a process whose wall clock is off by so much; its monotonic clock, by which it waits, is not."""
    return {"LD_PRELOAD": str(libfaketime()), "FAKETIME": f"{seconds:+d}s", "FAKETIME_DONT_FAKE_MONOTONIC": "1"}


def libfaketime() -> Path:
    """The library of Debian's package ``libfaketime``, installed or fetched once with apt, without rights of root."""
    installed = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
    if installed is not None:
        return installed
    folder = cache_folder() / "libfaketime"
    with filling(folder) as scratch:
        if scratch is not None:
            _fetch_libfaketime(scratch)
            (scratch / "package").rename(folder)
    return next(folder.glob("usr/lib/*/faketime/libfaketime.so.1"))


def _fetch_libfaketime(scratch: Path) -> None:
    try:
        subprocess.run(
            ["apt-get", "download", "libfaketime"], cwd=scratch, check=True, capture_output=True, timeout=120
        )
        (archive,) = scratch.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", archive.name, "package"], cwd=scratch, check=True, capture_output=True)
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        text = f"Clocks cannot be off without Debian's package libfaketime, which apt did not get: {error}"
        raise ChangeError(text) from error


def copy_of_sink(revision: str, folder: Path) -> Path:
    """The package as it was at this revision of git, in a folder that can stand in PYTHONPATH."""
    folder.mkdir(parents=True)
    archive = folder / "sink.tar"
    command = ["git", "archive", f"--output={archive}", revision, "spark_kafka_sink"]
    done = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ChangeError(f"There is no older sink at {revision}: {done.stderr.strip()}")
    shutil.unpack_archive(archive, folder, filter="data")
    archive.unlink()
    return folder


def older_revision() -> str | None:
    """The last tag before this commit, else the pinned commit; None if the clone has neither."""
    return _git("describe", "--tags", "--abbrev=0", "HEAD^") or _git("rev-parse", "--verify", f"{PINNED}^{{commit}}")


def _git(*arguments: str) -> str | None:
    """What git prints, None if it fails."""
    done = subprocess.run(["git", *arguments], cwd=_REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout.strip() or None
