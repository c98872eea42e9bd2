"""``driverCheck``: the driver connects to a broker before the tasks start, so that a wrong password is one error.

It is an error if a broker refuses a login or certificate, or lacks an API that the options need. It is also an error if
a port is not Kafka's, or not of this ``security.protocol``, or if no broker can be reached; the driver waits for a
broker, instead of each task. It is a warning if this machine lacks something that the executors may have: a file, or a
token to log in with.
"""

from __future__ import annotations

import logging
import math
from contextlib import closing
from dataclasses import replace
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
)
from spark_kafka_sink.network.connection import ApiVersions
from spark_kafka_sink.network.diagnosis import require
from spark_kafka_sink.network.login.token_login import RefusedLoginError
from spark_kafka_sink.network.name_lookup import NO_SUCH_NAME, bootstrap_servers
from spark_kafka_sink.network.rpc import Rpc
from spark_kafka_sink.spark.options import SinkOptions, with_prefix

_log = logging.getLogger("spark_kafka_sink.spark")

_LOOK_MS: Final = 300.0
"""The time between two looks at what the servers have responded."""

_SILENT_MS: Final = 10_000.0
"""The time after which the driver logs what it waits for."""

_WAITS: Final = (
    "The driver is waiting for a broker before it starts the tasks. It waits up to %.0f s (kafka.max.block.ms): %s"
)
_UNLESS: Final = "driverCheck=false if only the executors can reach the brokers or have the files"

_MAX_CHECKS: Final = 64
"""The most sets of options that a process remembers as checked. Older ones are checked again."""

_checks: dict[ProducerConfig, bool] = {}
"""The options that this process has checked, and whether a broker has accepted its login."""


def check_brokers(options: SinkOptions) -> bool:
    """Connects to a broker, once for each producer configuration of this process. Called on the driver, before the
    tasks.

    Returns whether the brokers have accepted this driver. Raises ``DriverCheckError`` for a refused login or
    certificate, a wrong port, or if no broker can be reached within max.block.ms, and ``UnsupportedVersionError`` if
    the brokers lack what the options need; the next write checks again. Anything else is one warning.
    """
    config = options.producer
    accepted = _checks.get(config)
    return remember(_checks, config, _check(config, SystemClock()) if accepted is None else accepted, _MAX_CHECKS)


def check_again(options: SinkOptions) -> None:
    """Has the next write checked again, because a write has failed, perhaps because its credentials are no longer
    valid."""
    _checks.pop(options.producer, None)


def _check(config: ProducerConfig, clock: Clock) -> bool:
    try:
        versions = _connect(config, clock)
    except KafkaError as error:
        text = with_prefix(clause(error), error)
        if not _is_error(error):
            _log.warning(
                "The driver could not check the connection to the brokers before the tasks (driverCheck): %s. The "
                "write goes on. Set %s.", text, _UNLESS
            )  # fmt: skip
            return False
        what = "log in" if isinstance(error, AuthenticationError) else "connect"
        raise DriverCheckError(
            f"No task was started, because the driver could not {what} to the brokers: {text}. Correct the "
            f"options, or set {_UNLESS}."
        ) from error
    require(config, versions)
    return True


def _is_error(error: KafkaError) -> bool:
    """Whether a broker or token endpoint refused the credentials or certificate, is not a broker, or cannot be reached.
    False if this machine has no credentials to send, or lacks a file."""
    if isinstance(error, LoginError):
        return isinstance(error, RefusedLoginError) or isinstance(error.__cause__, RefusedLoginError)
    return isinstance(error, AuthenticationError | WrongProtocolError | KafkaTimeoutError)


def _connect(config: ProducerConfig, clock: Clock) -> ApiVersions | None:
    """The versions of the first bootstrap server that accepts the login.

    Raises the permanent errors of ``Rpc.await_brokers``, ``ConfigError`` for stores that cannot be used here,
    ``LoginError`` if only a token is missing, and ``KafkaTimeoutError`` after max.block.ms, or, if none of the names
    exists, after bootstrap.resolve.timeout.ms.
    """
    began = clock.now()
    until, warn_at = began + config.max_block_ms, began + _SILENT_MS
    try:
        servers = bootstrap_servers(config)
    except ConfigError as error:  # no server has a canonical name
        raise KafkaTimeoutError(str(error)) from error
    named = replace(config, bootstrap_servers=servers, client_dns_lookup="use_all_dns_ips")
    with closing(_Bootstrap(named, clock)) as bootstrap:
        while True:
            try:
                bootstrap.await_brokers(min(until, clock.now() + _LOOK_MS))
                return bootstrap.any_api_versions()
            except KafkaTimeoutError as error:
                now = clock.now()
                if now >= until or (now >= began + config.bootstrap_resolve_timeout_ms and not bootstrap.exist()):
                    raise (LoginError(str(error)) if bootstrap.lacks_token() else error) from error.__cause__
                if now >= warn_at:
                    warn_at = math.inf
                    _log.warning(_WAITS, config.max_block_ms / 1000, error)


class _Bootstrap(Rpc):
    """The connections to the bootstrap servers, whose errors the check reports itself."""

    def __init__(self, config: ProducerConfig, clock: Clock) -> None:
        super().__init__(config, clock)
        self._client.should_warn = lambda: False

    def _errors(self) -> list[KafkaError | None]:
        """The error of each server's last connection."""
        return [self._client.last_error(node.id) for node in self.metadata.bootstrap_nodes]

    def exist(self) -> bool:
        """Whether one of the host names exists, or is still looked up."""
        return not all(NO_SUCH_NAME in str(error) for error in self._errors())

    def lacks_token(self) -> bool:
        """Whether a broker was reached, and only a token or ticket to log in with is missing."""
        causes = [error.__cause__ for error in self._errors() if error is not None]
        return self._client.waits_for_login or any(isinstance(cause, LoginError) for cause in causes)
