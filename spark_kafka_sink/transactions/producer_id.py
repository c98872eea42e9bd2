"""Getting a producer id, from any broker, before the first idempotent batch goes out (KIP-98).

Owned by the sender thread.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from enum import Enum
from types import ModuleType
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId
from kio.static.primitive import i16, i32Timedelta

from spark_kafka_sink.errors import KafkaError, NetworkError
from spark_kafka_sink.model import Node, ProducerIdentity
from spark_kafka_sink.network.backoff import ExponentialBackoff
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.codec import Response, kio_request
from spark_kafka_sink.network.error_table import Action, action, broker_error

_log = logging.getLogger("spark_kafka_sink.sender")

VERSIONS = (3, 5)  # 6 is KIP-939's, unstable up to Kafka 4.3


class Phase(Enum):
    NEEDED = "ask as soon as a broker is ready"
    ASKED = "a request is in flight"
    BACKING_OFF = "ask again at retry_at"
    GRANTED = "an identity waits to be taken"
    REFUSED = "the broker will never grant one"


class ProducerIdRequester:
    """One request at a time; ``take`` gives what was granted, ``error`` is a refusal that retries cannot mend."""

    def __init__(self, client: NetworkClient, backoff: ExponentialBackoff) -> None:
        self.phase = Phase.NEEDED
        self._identity: ProducerIdentity | None = None
        self.error: KafkaError | None = None
        self.retry_at = 0.0
        self._client = client
        self._backoff = backoff
        self._attempts = 0

    def ask(self, nodes: Iterable[Node], now: float) -> None:
        """Move on as far as possible now; any broker can answer."""
        if self.phase is Phase.BACKING_OFF and now >= self.retry_at:
            self.phase = Phase.NEEDED
        if self.phase is not Phase.NEEDED:
            return
        node = self._client.least_loaded_node(nodes, now)
        if node is not None and self._client.ready(node, now):
            self.phase = Phase.ASKED
            self._client.send(node.id, kio_request("init_producer_id", *VERSIONS, _make, self._answered), now)

    def take(self) -> ProducerIdentity | None:
        """What was granted, once; afterwards ``ask`` asks for another (the epochs of the first have run out)."""
        identity, self._identity = self._identity, None
        if identity is not None:
            self.phase = Phase.NEEDED
        return identity

    def _answered(self, response: Response) -> None:
        try:
            self._take_in(response)
        except Exception as error:
            _log.exception("An InitProducerId response could not be taken in")
            self._retry(error, response.completed_at)

    def _take_in(self, response: Response) -> None:
        if response.error is not None:
            self._retry(response.error, response.completed_at)
            return
        body: Any = response.body
        if body.error_code is ErrorCode.none and body.producer_id < 0:
            self._retry(NetworkError("InitProducerId was answered with no producer id"), response.completed_at)
            return
        if body.error_code is ErrorCode.none:
            self._identity = ProducerIdentity(body.producer_id, body.producer_epoch)
            self.phase = Phase.GRANTED
            self._attempts = 0
            _log.debug("Producer id %d, epoch %d", body.producer_id, body.producer_epoch)
            return
        error = broker_error(body.error_code, "InitProducerId")
        if action("init_producer_id", body.error_code) < Action.ABORT:
            self._retry(error, response.completed_at)
        else:
            self.error = error
            self.phase = Phase.REFUSED

    def _retry(self, error: Exception, now: float) -> None:
        _log.debug("InitProducerId is tried again: %s", error)
        self.retry_at = now + self._backoff.delay(self._attempts)
        self._attempts += 1
        self.phase = Phase.BACKING_OFF


def _make(module: ModuleType, version: int) -> Any:
    return module.InitProducerIdRequest(
        transactional_id=None,
        transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=2**31 - 1)),
        producer_id=ProducerId(-1),
        producer_epoch=i16(-1),
    )
