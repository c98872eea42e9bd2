"""``driverCheck``: the driver connects to a broker before the tasks start, so that a wrong password is one error.

It is an error if a broker refuses a login or certificate, or lacks an API that the options need. It is also an error if
a port is not Kafka's, or not of this ``security.protocol``, or if no broker can be reached; the driver waits for a
broker, instead of each task. It is a warning if this machine lacks something that the executors may have: a file, or a
token to log in with.
"""

from __future__ import annotations

import logging
import math
import os
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Final

from spark_kafka_sink.common.clock import Clock, SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.recently_used import remember
from spark_kafka_sink.errors import (
    AuthenticationError,
    ConfigError,
    DriverCheckError,
    KafkaError,
    KafkaTimeoutError,
    LoginError,
    WrongProtocolError,
    clause,
    own_copy,
)
from spark_kafka_sink.network.connection import ApiVersions
from spark_kafka_sink.network.diagnosis import require
from spark_kafka_sink.network.login.token_login import RefusedLoginError
from spark_kafka_sink.network.name_lookup import NO_SUCH_NAME, bootstrap_servers
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.network.selector import Selector
from spark_kafka_sink.spark.options import SinkOptions, with_prefix

_log = logging.getLogger("spark_kafka_sink.spark")

_HEAD_START_MS: Final = 300.0
"""The time that each bootstrap server has to respond before the next one is tried, too."""

_SILENT_MS: Final = 10_000.0
"""The time after which the driver logs what it waits for."""

_AGAIN_MS: Final = 600_000.0
"""The time for which later writes skip the check after it ended in a warning, unless one of them fails."""

_WAITS: Final = (
    "The driver is waiting for a broker before it starts the tasks. It waits up to %.0f s (kafka.max.block.ms): %s"
)
_UNLESS: Final = "driverCheck=false if only the executors can reach the brokers or have the files"

_MAX_CHECKS: Final = 64
"""The most sets of options that a process remembers as checked. Older ones are checked again."""


@dataclass(slots=True)
class _KnownCheck:
    """The check of one set of options. ``valid_until``: when the options are checked again (monotonic ms). ``lock`` is
    held during a check.

    ``failed_at`` and ``error``: the time and error of the last check that failed. Threads that waited for this check
    get its error.
    """

    lock: Lock = field(default_factory=Lock)
    valid_until: float = -math.inf
    warned: bool = False
    failed_at: float = -math.inf
    error: DriverCheckError | None = None


_lock = Lock()
_checks: dict[ProducerConfig, _KnownCheck] = {}


def _forget_checks() -> None:
    """Makes new locks in the child of a fork, because a lock may be held by a thread that the child does not have."""
    global _lock
    _lock = Lock()
    _checks.clear()


os.register_at_fork(after_in_child=_forget_checks)


def check_brokers(options: SinkOptions) -> bool:
    """Connects to a broker, once for each producer configuration of this process. Called on the driver, before the
    tasks.

    Returns whether the brokers have accepted this driver. Raises ``DriverCheckError`` for a refused login or
    certificate, a wrong port, or if no broker can be reached within max.block.ms, and ``UnsupportedVersionError`` if
    the brokers lack what the options need; the next write checks again. Anything else is one warning.
    """
    return _check(options.producer, SystemClock())


def check_again(options: SinkOptions) -> None:
    """Has the next write checked again, because a write has failed, perhaps because its credentials are no longer
    valid."""
    with _lock:
        check = _checks.get(options.producer)
    if check is not None:
        check.valid_until = -math.inf


def _find_check(config: ProducerConfig) -> _KnownCheck:
    with _lock:
        return remember(_checks, config, _checks.get(config) or _KnownCheck(), _MAX_CHECKS)


def _check(config: ProducerConfig, clock: Clock) -> bool:
    asked_at, check = clock.now(), _find_check(config)
    with check.lock:
        if check.error is not None and asked_at <= check.failed_at:
            raise own_copy(check.error)
        if clock.now() < check.valid_until:
            return check.valid_until == math.inf
        try:
            versions = _connect(config, clock)
        except KafkaError as error:
            text = with_prefix(clause(error), error)
            if _is_error(error):
                what = "log in" if isinstance(error, AuthenticationError) else "connect"
                check.failed_at = clock.now()
                check.error = DriverCheckError(
                    f"No task was started, because the driver could not {what} to the brokers: {text}. Correct the "
                    f"options, or set {_UNLESS}."
                )
                check.error.__cause__ = error
                raise own_copy(check.error) from error
            check.valid_until = clock.now() + _AGAIN_MS
            if not check.warned:
                check.warned = True
                _log.warning(
                    "The driver could not check the connection to the brokers before the tasks (driverCheck): %s. The "
                    "write goes on. Set %s.", text, _UNLESS
                )  # fmt: skip
            return False
        require(config, versions)
        check.valid_until = math.inf
        return True


def _is_error(error: KafkaError) -> bool:
    """Whether a broker or token endpoint refused the credentials or certificate, is not a broker, or cannot be reached.
    False if this machine has no credentials to send, or lacks a file."""
    if isinstance(error, LoginError):
        return isinstance(error, RefusedLoginError) or isinstance(error.__cause__, RefusedLoginError)
    return isinstance(error, AuthenticationError | WrongProtocolError | KafkaTimeoutError)


def _connect(config: ProducerConfig, clock: Clock) -> ApiVersions | None:
    """The versions of the first bootstrap server that accepts the login.

    Raises the error of ``_Bootstrap.is_accepted``, ``ConfigError`` for stores that cannot be used here, ``LoginError``
    if only a token is missing, and ``KafkaTimeoutError`` with the last error of each server: after max.block.ms, or, if
    none of the names exists, after bootstrap.resolve.timeout.ms.
    """
    began = clock.now()
    until, warn_at = began + config.max_block_ms, began + _SILENT_MS
    try:
        servers = bootstrap_servers(config)
    except ConfigError as error:  # no server has a canonical name
        raise KafkaTimeoutError(str(error)) from error
    with ExitStack() as stack:
        transport = Selector(config.send_buffer_bytes, config.receive_buffer_bytes)
        stack.callback(transport.shutdown)  # even if a store cannot be loaded
        named = replace(config, bootstrap_servers=servers, client_dns_lookup="use_all_dns_ips")
        bootstrap = stack.enter_context(closing(_Bootstrap(named, clock, transport)))
        while (now := clock.now()) < until:
            if bootstrap.run_until(bootstrap.is_accepted, min(_HEAD_START_MS, until - now)):
                return bootstrap.any_api_versions()
            if now >= began + config.bootstrap_resolve_timeout_ms and not bootstrap.exist():
                break
            if now >= warn_at:
                warn_at = math.inf
                _log.warning(_WAITS, config.max_block_ms / 1000, bootstrap.obstacles())
        raise bootstrap.unreachable()


class _Bootstrap(Rpc):
    """The bootstrap servers, each with a connection, for a check that reports their errors itself."""

    def __init__(self, config: ProducerConfig, clock: Clock, transport: Selector) -> None:
        super().__init__(config, clock, transport)
        self._client.should_warn = lambda: False
        self._nodes = self.metadata.bootstrap_nodes
        self._began = clock.now()

    def is_accepted(self) -> bool:
        """Whether a server has accepted the login. They are tried one after the other, without waiting for one that
        does not respond.

        Raises the first ``AuthenticationError``, and ``WrongProtocolError`` if each server ends with one.
        """
        client, now = self._client, self._clock.now()
        for node in self._nodes:
            if (refused := client.authentication_error(node, now)) is not None:
                raise refused
        wrong = [each for each in self._errors() if isinstance(each, WrongProtocolError)]
        if len(wrong) == len(self._nodes):
            raise wrong[0]
        others = 1 + int((now - self._began) // _HEAD_START_MS)
        failed = [node for node in self._nodes if client.has_failed(node.id)]
        tried = [*failed, *[node for node in self._nodes if node not in failed][:others]]
        return any(client.ready(node, now) for node in tried)

    def _errors(self) -> list[KafkaError | None]:
        """The error of each server's last connection."""
        return [self._client.last_error(node.id) for node in self._nodes]

    def exist(self) -> bool:
        """Whether one of the host names exists, or is still looked up."""
        return not all(NO_SUCH_NAME in str(error) for error in self._errors())

    def obstacles(self) -> str:
        """The reason why each server does not respond, as one text."""
        now = self._clock.now()
        reasons = [(node, self._client.why_waiting(node, now)) for node in self._nodes]
        return "; ".join(f"{node} was not tried" if why is None else why.text for node, why in reasons)

    def unreachable(self) -> KafkaError:
        """The error if no server can be reached. A ``LoginError`` if only a token is missing."""
        known = [error for error in self._errors() if error is not None]
        lacks_token = self._client.waits_for_login or any(isinstance(error.__cause__, LoginError) for error in known)
        error = (LoginError if lacks_token else KafkaTimeoutError)(self.obstacles())
        error.__cause__ = known[0] if known else None
        return error
