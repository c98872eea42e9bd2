"""The profile of a worker counts each sample once, for the step whose code it was taken in."""

import re

from benchmarks.measures import MEASURES
from benchmarks.profile_part import STEPS, steps
from tests.repository.files import PACKAGE

CALLER = "thread (0x1): MainThread;main (pyspark/worker.py:1)"
SENDER = "thread (0x2): kafka-producer-network-thread | producer-1;Thread.run (threading.py:982)"


def test_a_sample_belongs_to_the_innermost_frame_of_the_sink():
    sink = "spark_kafka_sink"
    inner = f"{sink}/producer"
    assert steps(
        [
            f"{CALLER};read (pyspark/serializers.py:5) 2",
            f"{CALLER};gathered ({sink}/spark/write.py:70);load_stream (serializers.py:5) 1",
            f"{CALLER};append ({inner}/append/append.py:9);encode ({sink}/records/encode.py:3);take (compute.py:9) 4",
            f"{CALLER};append ({inner}/append/append.py:9);argsort (numpy/core.py:5) 64",
            f"{SENDER};run_once ({inner}/sender/sender.py:9);drain ({inner}/accumulator/accumulator.py:3) 8",
            f"{SENDER};run_once ({inner}/sender/sender.py:9);write ({sink}/network/selector.py:41) 16",
            f"{SENDER};seal ({inner}/accumulator/accumulator.py:9);stamp_header ({sink}/records/batch.py:62) 32",
        ]
    ) == {"reading_us": 3, "append_us": 64, "encode_us": 4, "sender_us": 8, "syscall_us": 16, "crc_us": 32}


def test_every_step_has_a_column():
    assert {name for _, name in STEPS} | {"reading_us"} <= MEASURES.keys()


def test_every_package_of_the_engine_has_a_step():
    not_profiled = {"testing", "tools", "common", "schemas"}  # the profiled rows are raw
    folders = {init.parent.relative_to(PACKAGE) for init in PACKAGE.rglob("*/__init__.py")}
    packages = {folder for folder in folders if folder.parts[0] not in not_profiled}
    assert {each for each in packages if not any(re.search(step, f"/{each}/a.py") for step, _ in STEPS)} == set()
