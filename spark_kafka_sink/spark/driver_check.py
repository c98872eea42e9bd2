"""``driverCheck``: the driver connects to a broker before the tasks start, so that a wrong password is one error.

What a broker refuses is an error: a login, a certificate, or an API that the options need. So is a port that is not
Kafka's, or not that of ``security.protocol``. What may be different on the executors is a warning: no way to the
brokers, no such host name, a file that the driver does not have.
"""

from __future__ import annotations

import logging
import math
import os
from dataclasses import dataclass, field
from random import Random
from threading import Lock
from typing import TYPE_CHECKING, Final

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import Node
from spark_kafka_sink.errors import (
    AuthenticationError,
    DriverCheckError,
    KafkaError,
    KafkaTimeoutError,
    LoginError,
    WrongProtocolError,
    clause,
)
from spark_kafka_sink.spark.options import SinkOptions, with_prefix

if TYPE_CHECKING:
    from spark_kafka_sink.network.connection import ApiVersions

_log = logging.getLogger("spark_kafka_sink.spark")

LIMIT_MS: Final = 5_000.0
"""The longest check, over all bootstrap servers; ``max.block.ms`` if that is less."""

_HEAD_START_MS: Final = 300.0
"""How long the next bootstrap server waits for one that does not respond."""

_AGAIN_MS: Final = 600_000.0
"""How long writes do without a check after one that ended with a warning, unless one of them fails."""

_MOST_KEPT: Final = 64
"""Sets of options per process. A session with more has its oldest ones checked again."""


@dataclass(slots=True)
class _Check:
    """``valid_until``: when the options are checked again (monotonic ms). ``lock`` is held during a check."""

    lock: Lock = field(default_factory=Lock)
    valid_until: float = -math.inf
    warned: bool = False


_lock = Lock()
_checks: dict[ProducerConfig, _Check] = {}


def _forget_checks() -> None:
    """In the child of a fork: a lock may be held by a thread that the child does not have."""
    global _lock
    _lock = Lock()
    _checks.clear()


os.register_at_fork(after_in_child=_forget_checks)


def check_brokers(options: SinkOptions) -> None:
    """On the driver, before the tasks: connects once for each producer configuration of this process.

    Raises ``DriverCheckError`` for a refused login or certificate or a wrong port, and ``UnsupportedVersionError`` if
    the brokers lack what the options need; the next write checks again. Anything else is one warning. Exactly-once and
    topics that topicCreation looks up need a connection of their own, so nothing is checked here.
    """
    if options.driver_check and options.exactly_once is None and not options.plans_topics:
        _check(options.producer, _find_check(options.producer), SystemClock())


def check_again(options: SinkOptions) -> None:
    """A write has failed, perhaps because its credentials are no longer valid: the next one is checked again."""
    with _lock:
        check = _checks.get(options.producer)
    if check is not None:
        check.valid_until = -math.inf


def _find_check(config: ProducerConfig) -> _Check:
    with _lock:
        check = _checks.pop(config) if config in _checks else _Check()
        _checks[config] = check
        while len(_checks) > _MOST_KEPT:
            del _checks[next(iter(_checks))]
    return check


def _check(config: ProducerConfig, check: _Check, clock: Clock) -> None:
    from spark_kafka_sink.network.diagnosis import require

    with check.lock:
        if clock.now() < check.valid_until:
            return
        try:
            versions = _connect(config, clock)
        except KafkaError as error:
            if _is_refusal(error):
                what = "connect" if isinstance(error, WrongProtocolError) else "log in"
                raise DriverCheckError(
                    f"No task was started, because the driver could not {what} to the brokers: {clause(error)}. "
                    f"Correct the options, or set driverCheck=false if the executors can {what} and only the driver "
                    "cannot."
                ) from error
            check.valid_until = clock.now() + _AGAIN_MS
            if not check.warned:
                check.warned = True
                _log.warning(
                    "The driver could not check the connection to the brokers before the tasks (driverCheck): %s. The "
                    "write goes on; its tasks wait up to %.0f s for a broker (kafka.max.block.ms). Set "
                    "driverCheck=false if only executors have a way to the brokers, or the files.",
                    with_prefix(str(error), error).rstrip("."),
                    config.max_block_ms / 1000,
                )
            return
        require(config, versions)
        check.valid_until = math.inf


def _is_refusal(error: KafkaError) -> bool:
    """Whether a broker or token endpoint refused the credentials or certificate, or is not a broker. False if this
    machine has no credentials to send."""
    from spark_kafka_sink.network.login.token_login import RefusedLoginError

    if isinstance(error, LoginError):
        return isinstance(error, RefusedLoginError) or isinstance(error.__cause__, RefusedLoginError)
    return isinstance(error, AuthenticationError | WrongProtocolError)


def _connect(config: ProducerConfig, clock: Clock) -> ApiVersions | None:
    """The versions of the first bootstrap server that accepts the login; they are tried one after the other, without
    waiting for one that does not respond.

    Raises the first ``AuthenticationError``, ``WrongProtocolError`` if each server ends with one, ``ConfigError`` for
    stores that cannot be used here, and ``KafkaTimeoutError`` with the last error of each server.
    """
    from spark_kafka_sink.network.client import NetworkClient
    from spark_kafka_sink.network.name_lookup import bootstrap_servers
    from spark_kafka_sink.network.selector import Selector

    began = clock.now()
    limit_ms = min(LIMIT_MS, config.max_block_ms)
    transport = Selector(config.send_buffer_bytes, config.receive_buffer_bytes)
    client = None
    try:
        client = NetworkClient(config.with_client_id("adminclient"), transport, Random(), warns=False)
        servers = enumerate(bootstrap_servers(config))
        nodes = [Node(-1 - index, host, port) for index, (host, port) in servers]
        while (now := clock.now()) < began + limit_ms:
            left = [node for node in nodes if not client.has_failed(node.id)]
            if not left:
                break
            others = int((now - began) // _HEAD_START_MS)
            tried = left[: 1 + others]
            if any(client.ready(node, now) for node in tried):
                return client.any_api_versions()
            wake_at = min(began + limit_ms, began + (1 + others) * _HEAD_START_MS, client.next_deadline(now))
            delay = min(client.ready_delay(node, now) for node in tried)
            events = transport.poll(min(wake_at - now, delay))
            now = clock.now()
            client.handle(events, now)
            client.expire(now)
            for node in nodes:
                if (refused := client.authentication_error(node, now)) is not None:
                    raise refused
        errors = [client.last_error(node.id) for node in nodes]
        if isinstance(errors[0], WrongProtocolError) and all(isinstance(error, WrongProtocolError) for error in errors):
            raise errors[0]
        raise KafkaTimeoutError("; ".join(client.obstacle(node, now) or f"{node} was not tried" for node in nodes))
    finally:
        if client is not None:
            client.close()
        transport.shutdown()
