"""A worker's heap is frozen once, and its Arrow memory comes from jemalloc; nobody else's."""

import gc
import importlib.util
import sys
import weakref

import pyarrow as pa
import pytest

from spark_kafka_sink.spark import python_process
from spark_kafka_sink.spark.python_process import freeze_imports, return_unused_memory


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
