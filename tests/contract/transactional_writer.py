"""A transactional producer made of single requests, each of which answers the name of its error."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.contract.plain_client import PlainClient, batch
from tests.support.waiting import until

TRANSACTIONAL = 0x10
V1, V2 = "v1", "v2"
"""Transactions version: the client adds partitions, or Produce does (KIP-890)."""

_PRODUCE = {V1: 11, V2: 12}
_END_TXN = {V1: 4, V2: 5}


@dataclass
class TransactionalWriter:
    """``epoch`` parameters are relative to the one that ``init`` got."""

    client: PlainClient
    topic: str
    transactional_id: str
    version: str = V1
    identity: tuple[int, int] = field(init=False)

    def __post_init__(self) -> None:
        self.identity = self.client.init_producer_id(self.transactional_id)

    def at(self, epoch: int) -> tuple[int, int]:
        producer_id, first = self.identity
        return producer_id, first + epoch

    def init(self, **fields: object) -> tuple[str, int]:
        """InitProducerId, asked once: error and epoch."""
        known = {"transactional_id": self.transactional_id, "transaction_timeout": 60_000}
        answer = self.client.ask("InitProducerId", 4, **{**known, **fields})
        epoch = int(answer.producer_epoch)
        return answer.error_code.name, epoch - self.identity[1] if epoch >= 0 else epoch

    def add(self, epoch: int = 0, *, topic: str | None = None) -> str:
        producer_id, producer_epoch = self.at(epoch)
        answer = self.client.ask(
            "AddPartitionsToTxn",
            3,
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=producer_epoch,
            v3_and_below_topics=[{"name": topic or self.topic, "partitions": [0]}],
        )
        return str(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code.name)

    def write(self, sequence: int, epoch: int = 0, *, produce_version: int | None = None) -> str:
        records = batch([b"x"], producer=self.at(epoch), sequence=sequence, attributes=TRANSACTIONAL)
        version = produce_version or _PRODUCE[self.version]

        def produce() -> str:
            answer = self.client.produce(self.topic, records, version=version, transactional_id=self.transactional_id)
            return str(answer.error_code.name)

        return _patiently(produce)

    def end(self, epoch: int = 0, *, commit: bool) -> str:
        """EndTxn, asked again while the end before it is under way."""
        producer_id, producer_epoch = self.at(epoch)

        def end() -> str:
            answer = self.client.ask(
                "EndTxn",
                _END_TXN[self.version],
                transactional_id=self.transactional_id,
                producer_id=producer_id,
                producer_epoch=producer_epoch,
                committed=commit,
            )
            return str(answer.error_code.name)

        return _patiently(end)

    def commit(self, epoch: int = 0) -> str:
        return self.end(epoch, commit=True)

    def abort(self, epoch: int = 0) -> str:
        return self.end(epoch, commit=False)


def _patiently(ask: Callable[[], str]) -> str:
    return until(ask, lambda error: error != "concurrent_transactions")
