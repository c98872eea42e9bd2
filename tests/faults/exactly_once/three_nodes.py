"""A Kafka of three nodes, and lines to it that are cut at the request that ends a transaction."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tests.faults.exactly_once.processes import LEDGER
from tests.faults.support.proxy import Direction
from tests.support.waiting import eventually

# What is acknowledged outlives any one node, and a dead one is missed after three seconds.
PROPERTIES = {"min.insync.replicas": "2", "broker.session.timeout.ms": "3000"}

# Enough for whatever a network that is whole is asked on a busy machine, and soon over when it is not.
IMPATIENT = {"request.timeout.ms": 2_000, "delivery.timeout.ms": 10_000, "max.block.ms": 4_000}

END_TXN = 26
END_TXN_VERSIONS = {0: 3, 1: 3, 2: 5}
"""By transaction.version: what identities say. On the wire the first protocol has up to 4, as in Java."""
SENT_END_TXN_VERSIONS = {1: 4, 2: 5}
"""By transaction.version."""


def await_that(condition, what):
    eventually(condition, f"until {what}")


def coordinator(kafka, transactional_id):
    await_that(lambda: kafka.transaction_coordinator(transactional_id) != -1, f"{transactional_id} has a coordinator")
    return kafka.transaction_coordinator(transactional_id)


def all_in_sync(kafka, query):
    for topic in (query.topic, LEDGER, "__transaction_state"):
        kafka.await_in_sync(topic)


def await_end_txn_version(query, version):
    """Until brokers have heard which protocol is finalized; asked past the proxies, under another prefix."""
    other = replace(query, topic=f"{query.topic}-other", through={})
    await_that(lambda: other.plan().run.driver.identity.end_txn_version == version, f"EndTxn is of version {version}")


@dataclass(frozen=True)
class Cut:
    """``whose``: the end of the transactional id with this suffix. ``parted``: the broker stays out of reach."""

    point: str
    whose: str
    direction: Direction
    parted: bool = False

    def strike(self, kafka, query, proxies, reports):
        """The commit that loses its line, and the proxy that cut it."""
        proxy = proxies[coordinator(kafka, f"{query.topic}-{self.whose}")]
        query.fault.arm(self.point, "stop")
        commit = query.start_commit(reports)
        query.fault.wait(commit)
        proxy.cut_request(END_TXN, self.direction, self.parted)
        query.fault.wake()
        await_that(lambda: proxy.is_cut, "the line is cut")
        return commit, proxy


def cut_at_the_decision(direction, parted=False):
    """In the end of the intent's own transaction."""
    return Cut("before the intent", "driver", direction, parted)


def cut_at_the_end(direction, parted=False):
    """In the end of a task's, with the intent recorded."""
    return Cut("intent committed", "1", direction, parted)
