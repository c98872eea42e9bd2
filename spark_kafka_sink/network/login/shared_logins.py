"""One login per set of credentials in a process, shared by its clients (Java: ``LoginManager``)."""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable
from dataclasses import dataclass, fields
from random import Random
from typing import Any

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.network.login.token_login import CredentialSource, T, TokenLogin


@dataclass(slots=True)
class _Shared:
    login: TokenLogin[Any]
    users: int


class SharedLogins:
    """Counts the users of each login; the last one ends it. Any thread may call its methods."""

    def __init__(self) -> None:
        self._begin()
        # In the child of a fork, threads and a lock that may be held are the parent's.
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._shared: dict[Hashable, _Shared] = {}

    def acquire(self, config: ProducerConfig, source: CredentialSource[T]) -> TokenLogin[T]:
        """``source``: of the login, if this is its first user."""
        key = _credentials(config)
        with self._lock:
            shared = self._shared.get(key)
            if shared is None:
                shared = self._shared[key] = _Shared(TokenLogin(config, source, SystemClock(), Random()), 0)
            shared.users += 1
            return shared.login

    def release(self, config: ProducerConfig) -> None:
        key = _credentials(config)
        with self._lock:
            shared = self._shared.get(key)
            if shared is None:
                return  # acquired before a fork
            shared.users -= 1
            if shared.users:
                return
            del self._shared[key]
        shared.login.close()


SHARED_LOGINS = SharedLogins()


def _credentials(config: ProducerConfig) -> Hashable:
    """The options that a login depends on. Tokens may depend on the brokers' names too (AWS regions)."""
    sasl = [getattr(config, field.name) for field in fields(config) if field.name.startswith("sasl_")]
    return (config.bootstrap_servers, config.config_providers, *sasl)
