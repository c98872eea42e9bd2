"""The process of a worker: logLevel, where the sink's log lines go if it configures no logging, its heap and memory."""

import gc
import importlib.util
import logging
import pickle
import re
import subprocess
import sys
import weakref

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.spark import python_process
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.python_process import freeze_imports, return_unused_memory
from spark_kafka_sink.spark.schema import RowLayout
from spark_kafka_sink.spark.sink_write import KafkaBatchWriter
from tests.support.waiting import DEADLINE_S

SCHEMA = StructType([StructField("value", StringType())])


def in_a_worker(code):
    """What a process writes to stderr."""
    program = (
        "import logging, sys\n"
        "from spark_kafka_sink.spark.python_process import log_at\n"
        "log = logging.getLogger('spark_kafka_sink.sender')\n" + code
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=DEADLINE_S, check=True
    )
    return run.stderr.splitlines()


def test_warnings_go_to_stderr_with_time_and_level():
    (line,) = in_a_worker("log_at(None); log_at(None); log.info('quiet'); log.warning('a stall')")
    assert re.fullmatch(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARNING pykafka: a stall", line)


HANDLER = "handler = logging.StreamHandler(sys.stderr); logging.getLogger().addHandler(handler)\n"


@pytest.mark.parametrize(
    ("code", "texts"),
    [
        ("log_at('DEBUG'); log.debug('a'); log_at('ERROR'); log.warning('b'); log.error('c')", ["a", "c"]),
        (
            "log_at('DEBUG'); log.debug('a'); log_at('INFO'); log_at(None); log.info('b'); log.warning('c')\n"
            "logging.getLogger('spark_kafka_sink').setLevel('ERROR')\n"
            "log_at(None); log.warning('d'); log_at('DEBUG'); log_at(None); log.warning('e'); log.error('f')",
            ["a", "c", "f"],
        ),
        (
            f"log_at('INFO'); {HANDLER}log.info('theirs')\n"
            "logging.getLogger().removeHandler(handler); log.info('ours')",
            ["theirs", "ours"],
        ),
        (
            "log_at(None); log.warning('%s is %d', 'delivery.timeout.ms', 5); log.warning('kafka.acks 100%, linger.ms')"
            f"\n{HANDLER}log.warning('raise %s', 'max.block.ms')",
            ["kafka.delivery.timeout.ms is 5", "kafka.acks 100%, kafka.linger.ms", "raise kafka.max.block.ms"],
        ),
    ],
    ids=[
        "the level is the option's",
        "a worker that is used again without logLevel has the level from before",
        "handlers of the process have the lines for themselves, as in Spark, whose worker logs come and go",
        "incident: an executor's log named delivery.timeout.ms, which is no option of a Spark write",
    ],
)
def test_lines_have_the_options_level_and_names_and_go_to_the_handlers_that_are_there(code, texts):
    assert [line.rpartition("pykafka: ")[2] for line in in_a_worker(code)] == texts


CALLER = "from spark_kafka_sink.spark.python_process import *; leave_logging_to_caller()\n"


def test_lines_of_the_callers_process_have_the_producers_own_names():
    (line,) = in_a_worker(f"{CALLER}log_at('INFO'); log.warning('raise linger.ms')")
    assert line.endswith("raise linger.ms")


def test_the_callers_logging_is_left_as_it_was():
    logger = "logger = logging.getLogger('spark_kafka_sink'); before = logger.level, [*logger.handlers]\n"
    check = "log_at(None); announce('a line'); assert (logger.level, logger.handlers) == before"
    in_a_worker(logger + CALLER + check)


def test_incident_log_level_had_no_effect_in_the_process_that_calls_write_kafka():
    lines = in_a_worker(
        f"{CALLER}for level in ('INFO', 'WARN', 'INFO', None): log_at(level); announce(f'at {{level}}')"
    )
    assert [line.rpartition("pykafka: ")[2] for line in lines] == ["at INFO"] * 2


@pytest.mark.parametrize(
    ("configured", "shown"),
    [
        ("pass", ["INFO pykafka:"]),
        ("logging.basicConfig(level='INFO', format='theirs %(message)s')", ["theirs"]),
        ("logging.basicConfig(level='WARNING')", []),
        ("logging.getLogger('spark_kafka_sink').setLevel('WARNING')", []),
        ("log_at('INFO')", ["INFO pykafka:"]),
        ("log_at('WARN')", []),
    ],
    ids=[
        "by default",
        "own handlers",
        "own handlers that want no progress",
        "a level",
        "logLevel",
        "a higher logLevel",
    ],
)
def test_whoever_waits_for_a_write_sees_its_progress_unless_told_otherwise(configured, shown):
    """Incident: a job of minutes said nothing, because a process without logging drops what is below WARNING."""
    lines = in_a_worker(f"{CALLER}{configured}\nshow_progress('The write has run for 30 s')")
    assert [re.sub(r"^\d\d/\d\d/\d\d \S+ ", "", line) for line in lines] == [
        f"{begin} The write has run for 30 s" for begin in shown
    ]


@pytest.fixture
def logger():
    logger = logging.getLogger("spark_kafka_sink")
    level = logger.level
    yield logger
    logger.setLevel(level)


@pytest.mark.parametrize(
    ("given", "level"), [("debug", logging.DEBUG), ("WARN", logging.WARNING), ("Error", logging.ERROR)]
)
def test_a_writer_sets_the_level_in_the_process_that_plans_it(logger, given, level):
    named = {"kafka.bootstrap.servers": "a:1", "topic": "t", "loglevel": given, "drivercheck": "false"}
    options = SinkOptions.parse(named)
    pickle.dumps(KafkaBatchWriter(RowLayout.of(SCHEMA, "t", None), options))
    assert logger.level == level


# A worker's heap is frozen once, and its Arrow memory comes from jemalloc; nobody else's.


@pytest.fixture
def spark_worker(monkeypatch):
    spec = importlib.util.find_spec("pyspark.daemon")
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
    monkeypatch.setattr(python_process, "_freezes", 0)
    before = pa.default_memory_pool()
    yield
    gc.unfreeze()
    pa.set_memory_pool(before)


class Node:
    pass


def test_what_a_worker_has_imported_is_not_gone_through_again(spark_worker):
    freeze_imports()
    assert gc.get_freeze_count() > 10_000
    assert len(gc.get_objects()) < 1_000


def test_garbage_of_before_is_collected_and_garbage_of_afterwards_too(spark_worker):
    seen = []
    for _ in range(2):
        node = Node()
        node.itself = node
        seen.append(weakref.ref(node))
        del node
        freeze_imports()
        gc.collect()
    assert [each() for each in seen] == [None, None]


def test_what_pyspark_imports_after_the_first_task_was_gone_through_after_each(spark_worker):
    """Twice is enough: a heap that grows later is looked at."""
    freeze_imports()
    kept = [Node() for _ in range(1_000)]
    freeze_imports()
    assert len(gc.get_objects()) < 1_000
    frozen = gc.get_freeze_count()
    kept += [Node() for _ in range(1_000)]
    freeze_imports()
    assert gc.get_freeze_count() <= frozen


def test_the_heap_of_any_other_program_is_its_owners():
    freeze_imports()
    assert gc.get_freeze_count() == 0


@pytest.mark.skipif("jemalloc" not in pa.supported_memory_backends(), reason="pyarrow without jemalloc")
def test_a_workers_arrow_memory_is_returned_to_the_system(spark_worker):
    return_unused_memory()
    assert pa.default_memory_pool().backend_name == "jemalloc"


def test_the_allocator_that_the_environment_names_stays(spark_worker, monkeypatch):
    before = pa.default_memory_pool().backend_name
    monkeypatch.setenv("ARROW_DEFAULT_MEMORY_POOL", before)
    return_unused_memory()
    assert pa.default_memory_pool().backend_name == before


def test_the_allocator_of_any_other_program_is_its_owners():
    before = pa.default_memory_pool().backend_name
    return_unused_memory()
    assert pa.default_memory_pool().backend_name == before
