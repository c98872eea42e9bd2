"""``ProducerIdRequester``: InitProducerId of an idempotent producer without transactions, to any broker (KIP-98)."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from datetime import timedelta
from types import ModuleType
from typing import Any

from kio.schema.errors import ErrorCode
from kio.schema.types import ProducerId
from kio.static.primitive import i16, i32Timedelta

from spark_kafka_sink.clock import NEVER
from spark_kafka_sink.errors import KafkaError, NetworkError
from spark_kafka_sink.model import Node, ProducerIdentity
from spark_kafka_sink.network.backoff import ExponentialBackoff
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.codec import KioRequest, Response
from spark_kafka_sink.network.error_table import Action, action, broker_error

_log = logging.getLogger("spark_kafka_sink.sender")

VERSIONS = (3, 5)  # 6 is KIP-939's, unstable up to Kafka 4.3


class ProducerIdRequester:
    """One request at a time. ``error``: the broker refuses for good. Owned by the sender thread."""

    def __init__(self, client: NetworkClient, backoff: ExponentialBackoff) -> None:
        self.error: KafkaError | None = None
        self._granted: ProducerIdentity | None = None
        self._in_flight = False
        self._retry_at = 0.0
        self._attempts = 0
        self._client = client
        self._backoff = backoff

    def request(self, nodes: Iterable[Node], now: float) -> float:
        """Send a request if a broker is ready; returns when to call again (monotonic ms)."""
        if self._in_flight or self._granted is not None or self.error is not None:
            return NEVER
        if now < self._retry_at:
            return self._retry_at
        node = self._client.least_loaded_node(nodes, now)
        if node is None or not self._client.ready(node, now):
            return now + min((self._client.ready_delay(each, now) for each in nodes), default=NEVER)
        self._in_flight = True
        self._client.send(node.id, KioRequest("init_producer_id", VERSIONS, _make, self._completed), now)
        return NEVER

    def take(self) -> ProducerIdentity | None:
        """The granted identity, once. The next ``request`` gets another one."""
        granted, self._granted = self._granted, None
        return granted

    def _completed(self, response: Response) -> None:
        self._in_flight = False
        try:
            self._handle(response)
        except Exception as error:
            _log.exception("An InitProducerId response could not be handled")
            self._retry(error, response.completed_at)

    def _handle(self, response: Response) -> None:
        body: Any = response.body
        if response.error is not None:
            self._retry(response.error, response.completed_at)
        elif body.error_code is not ErrorCode.none:
            error = broker_error(body.error_code, "InitProducerId")
            if action("init_producer_id", body.error_code) < Action.ABORT:
                self._retry(error, response.completed_at)
            else:
                self.error = error
        elif body.producer_id < 0:
            self._retry(NetworkError("InitProducerId was answered with no producer id"), response.completed_at)
        else:
            self._granted = ProducerIdentity(body.producer_id, body.producer_epoch)
            self._attempts = 0
            _log.debug("Producer id %d, epoch %d", body.producer_id, body.producer_epoch)

    def _retry(self, error: Exception, now: float) -> None:
        _log.debug("Retrying InitProducerId: %s", error)
        self._retry_at = now + self._backoff.delay(self._attempts)
        self._attempts += 1


def _make(module: ModuleType, version: int) -> Any:
    return module.InitProducerIdRequest(
        transactional_id=None,
        transaction_timeout=i32Timedelta.parse(timedelta(milliseconds=2**31 - 1)),
        producer_id=ProducerId(-1),
        producer_epoch=i16(-1),
    )
