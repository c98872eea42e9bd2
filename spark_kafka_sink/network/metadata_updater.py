"""Keeps the metadata fresh: one step of the sender's loop (Java: ``NetworkClient.DefaultMetadataUpdater``)."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection
from typing import Any, Protocol

from spark_kafka_sink.errors import BrokerError, KafkaError, NetworkError, unexpected
from spark_kafka_sink.network.client import NetworkClient
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.network.metadata_messages import metadata_request, parse_metadata
from spark_kafka_sink.network.requests import Response

_REBOOTSTRAP_REQUIRED = 129

_log = logging.getLogger("spark_kafka_sink.network")


class TopicsInUse(Protocol):
    """Who knows for which topics something still waits to be sent: the accumulator."""

    def topics_in_use(self) -> Collection[str]: ...


class MetadataUpdater:
    """Owned by the sender thread."""

    def __init__(self, metadata: Metadata, in_use: TopicsInUse | None = None) -> None:
        self._metadata = metadata
        self._in_use = in_use

    def maybe_update(self, client: NetworkClient, now: float) -> float:
        """Sends a Metadata request when one is due; call it once a turn, before requests fill the connections.

        Returns the moment (ms) of the next call that can make a difference, ``inf`` when an event will tell.
        """
        metadata = self._metadata
        for node, error in client.drain_disconnects():
            metadata.note_connection_error(node, error, now)
        due = metadata.next_update(now)
        if due > now:
            return due
        nodes = metadata.candidates(now)
        node_to_ask = client.least_loaded_node(nodes, now)
        if node_to_ask is None:
            return now + min((client.ready_delay(node, now) for node in nodes), default=math.inf)
        if not client.ready(node_to_ask, now):
            return now + client.ready_delay(node_to_ask, now)
        topics = metadata.request_for(now, self._in_use.topics_in_use() if self._in_use is not None else ())
        request = metadata_request(topics, metadata.config.allow_auto_topic_creation, self._completed)
        client.send(node_to_ask.id, request, now)
        return math.inf

    def _completed(self, response: Response) -> None:
        if response.error is not None:
            self._metadata.failed(response.error, response.completed_at)
            return
        try:
            self._answered(response.body, response.completed_at)
        except KafkaError as error:
            self._metadata.failed(error, response.completed_at)
        except Exception as error:
            _log.exception("A Metadata response could not be taken in")
            self._metadata.failed(unexpected(error), response.completed_at)

    def _answered(self, body: Any, now: float) -> None:
        code = int(getattr(body, "error_code", 0))
        if code:
            if code == _REBOOTSTRAP_REQUIRED:
                self._metadata.rebootstrap()
            name = body.error_code.name.upper()
            raise BrokerError(code, name, f"The broker refused the metadata request: {name}")
        snapshot = parse_metadata(body)
        if not snapshot.nodes:
            raise NetworkError("The broker's metadata names no brokers")
        self._metadata.updated(snapshot, now)
