"""One producer per configuration, kept from one micro-batch to the next."""

import pytest

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.spark.write import MAX_IDLE, ProducerCache
from tests.support.child_processes import failure_in_fork
from tests.support.manual_clock import ManualClock

CONFIG = ProducerConfig.parse({"bootstrap.servers": "a:1"})
OTHER = ProducerConfig.parse({"bootstrap.servers": "b:1"})


class FakeProducer:
    def __init__(self, config):
        self.config = config
        self.alive = True
        self.closed_with = None

    def begin_sticky_runs(self):
        pass

    def is_alive(self):
        return self.alive

    def close(self, timeout_ms):
        self.closed_with = timeout_ms


@pytest.fixture
def cache():
    cache = ProducerCache(FakeProducer)
    yield cache
    cache.close()


def write(cache, config=CONFIG):
    with cache.leased(config) as producer:
        return producer


def test_each_configuration_has_its_own(cache):
    first, other = write(cache), write(cache, OTHER)
    assert (first.config, other.config) == (CONFIG, OTHER)
    assert write(cache) is first


def test_a_leased_producer_is_not_shared(cache):
    with cache.leased(CONFIG) as first, cache.leased(CONFIG) as second:
        assert first is not second
    assert [producer.closed_with for producer in (first, second)].count(0) == 1, "one is kept, one closed"


def test_a_failed_task_leaves_nothing_behind(cache):
    with pytest.raises(KeyboardInterrupt), cache.leased(CONFIG) as failed:
        raise KeyboardInterrupt
    assert failed.closed_with == 0
    assert write(cache) is not failed


def test_a_producer_whose_sender_thread_died_is_replaced(cache):
    dead = write(cache)
    dead.alive = False
    assert write(cache) is not dead
    assert dead.closed_with == 0


def test_an_idle_producer_is_closed_by_the_next_task_of_any_configuration():
    cache, clock = ProducerCache(FakeProducer, idle_ms=10), ManualClock()
    cache._clock = clock
    idle, same = write(cache), write(cache, OTHER)
    clock.advance(10)
    assert write(cache, OTHER) is not same
    assert (idle.closed_with, same.closed_with) == (0, 0)
    cache.close()


def test_incident_a_worker_kept_a_producer_for_each_of_many_configurations_until_it_had_no_descriptor_left(cache):
    def of_client(number):
        return ProducerConfig.parse({"bootstrap.servers": "a:1", "client.id": f"c{number}"})

    first, *others = [write(cache, of_client(number)) for number in range(MAX_IDLE)]
    assert write(cache, of_client(0)) is first, "used again, so the next is the oldest"
    write(cache)
    assert [others.index(each) for each in others if each.closed_with == 0] == [0]
    assert write(cache, of_client(0)) is first


def test_close_closes_what_is_kept_and_what_comes_back(cache):
    kept = write(cache, OTHER)
    with cache.leased(CONFIG) as leased:
        cache.close()
        assert kept.closed_with == 0
        assert leased.closed_with is None
    assert leased.closed_with == 0


def test_a_producer_that_is_used_again_and_again_is_kept():
    cache, clock = ProducerCache(FakeProducer, idle_ms=50), ManualClock()
    cache._clock = clock
    kept = write(cache)
    for _ in range(10):
        clock.advance(30)
        assert write(cache) is kept
    cache.close()


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_opens_its_own_and_leaves_the_parents_alone(cache):
    parents = write(cache)

    def check():
        assert write(cache) is not parents
        assert parents.closed_with is None

    assert failure_in_fork(check) == ""
    assert write(cache) is parents


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_lock_held_at_the_fork_does_not_block_the_child(cache):
    with cache._lock:
        assert failure_in_fork(lambda: write(cache)) == ""
