"""Text to paste in public: without secrets, users, host names and addresses."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from ipaddress import ip_address
from typing import Final

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.config.option import Password
from spark_kafka_sink.common.config.table import OPTIONS_BY_NAME
from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network.login.credentials import jaas_options, username
from spark_kafka_sink.spark.options import KAFKA_PREFIX

_SHORTEST_SECRET: Final = 3
_NOT_SECRET: Final = ("username", "principal")
_SECRET: Final = re.compile(
    r"-----BEGIN [^-]+-----.*?-----END [^-]+-----|\beyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?"  # PEM, a JWT
    r"|(?P<label>\b(?:Bearer|Basic) |(?:password|passphrase|secret|token)[\"']? ?[=:] ?"
    r"|(?:key|assertion|jaas\.config)=)"
    r"(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s,;&]+)",
    re.IGNORECASE,
)
"""Secrets by what they look like, beside those of the options."""

_URL: Final = re.compile(
    r"\b(?P<scheme>[a-z][a-z0-9+.-]*://)(?:[^\s\"<>]*@)?(?P<host>[^\s/?#@'\"<>]+)(?P<rest>[/?#][^\s'\"<>]*)?",
    re.IGNORECASE,
)
_USER: Final = re.compile(
    r"(?<=\bUser:)[^\s;)'\"]+"  # a principal, which is a whole distinguished name with mutual TLS
    r"|(?P<label>\b(?:username|principal)=)(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s,;&]+)"
    r"|(?<=/home/)[^\s/]+|(?<=/Users/)[^\s/]+|(?<![\w.+-])[\w.+-]+@[\w.-]*\w"
)
_ADDRESS: Final = re.compile(
    r"(?<![\w.])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7})(?![\w.]*\w)"
)
_LABEL: Final = r"[A-Za-z0-9_](?:[\w-]*\w)?"
_NAME: Final = rf"{_LABEL}(?:\.{_LABEL})*"
_EVIDENT_HOST: Final = re.compile(
    rf"(?<![\w.-])(?:{_NAME}(?=:\d{{2,5}}\b)|(?<=://){_NAME}"  # a port, a URL
    rf"|{_NAME}(?=/<host \d+>)|(?<=\(){_NAME}(?= executor )|(?<=UnknownHostException: ){_NAME})(?![\w-])"  # Java, Spark
)
_PERHAPS_HOST: Final = re.compile(rf"(?<![\w.-])(?:{_LABEL}\.)+[A-Za-z][\w-]*\w(?![\w-])")
_NO_HOST: Final = re.compile(r"\d+|.*\.(?:py|scala|java)")  # a time, a line of a file
_NO_HOST_EITHER: Final = re.compile(
    r"(?:org|java|javax|scala|py4j|pyspark|spark_kafka_sink|sun|jdk)\..*"
    r"|spark\.(?:sql|driver|executor|python|pyspark|task|stage|scheduler|hadoop|streaming|connect|jars|submit)\..*"
    r"|.*\.(?:py|scala|java|properties|pem|jks|p12|jar|json|txt|keytab|conf)|kafka-[\w-]+\.sh"
    r"|.*\.(?:ms|bytes|enable|replicas|ratio|listeners|factor)"  # settings of topics and brokers
    r"|.*\.[A-Z]\w*[a-z]\w*"  # a class
)
"""Names with a dot that are no host's."""


class Scrubber:
    """Replaces them; a host by the same number wherever it occurs. ``hosts``: those that are known. Unknown ones are
    found by what they look like, so that rather too much is replaced than too little.
    """

    def __init__(self, config: ProducerConfig, hosts: Iterable[str]) -> None:
        secrets = {" ".join(each.split()) for each in _secrets(config)}
        self._secrets = _any_of(re.escape(each) for each in secrets if len(each) >= _SHORTEST_SECRET)
        self._users = _any_of(_as_word(each) for each in [username(config)] if each)
        self._hosts = _any_of(_as_word(each) for each in hosts if each)
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> str:
        """The text, on one line."""
        text = self._secrets.sub("<secret>", " ".join(text.split()))
        text = _SECRET.sub(lambda found: f"{found['label'] or ''}<secret>", _URL.sub(_without_path, text))
        text = _USER.sub(lambda found: f"{found['label'] or ''}<user>", self._users.sub("<user>", text))
        text = _ADDRESS.sub(self._address, self._hosts.sub(self._host, text))
        text = _EVIDENT_HOST.sub(self._evident_host, text)
        # The host of a server that was told with its port is told without it, too.
        text = _any_of(map(_as_word, self._numbers)).sub(self._host, text)
        return _PERHAPS_HOST.sub(self._perhaps_host, text)

    def _host(self, found: re.Match[str]) -> str:
        return f"<host {self._numbers.setdefault(found[0].lower(), len(self._numbers) + 1)}>"

    def _address(self, found: re.Match[str]) -> str:
        try:
            ip_address(found[0])
        except ValueError:  # a time of day
            return found[0]
        return self._host(found)

    def _evident_host(self, found: re.Match[str]) -> str:
        return found[0] if _NO_HOST.fullmatch(found[0]) else self._host(found)

    def _perhaps_host(self, found: re.Match[str]) -> str:
        name = found[0].removeprefix(KAFKA_PREFIX)
        return found[0] if name in OPTIONS_BY_NAME or _NO_HOST_EITHER.fullmatch(name) else self._host(found)


def _secrets(config: ProducerConfig) -> Iterator[str]:
    with suppress(KafkaError):  # a placeholder without a value
        config = config.with_credentials("")
    yield from (value.value for each in fields(config) if isinstance(value := getattr(config, each.name), Password))
    with suppress(KafkaError):
        yield from (value for name, value in jaas_options(config).items() if name.lower() not in _NOT_SECRET)


def _without_path(found: re.Match[str]) -> str:
    """What follows the host may hold a token, and what stands before it a user."""
    return f"{found['scheme']}{found['host']}{'/…' if (found['rest'] or '/') != '/' else ''}"


def _as_word(text: str) -> str:
    return rf"(?<![\w.-]){re.escape(text)}(?![\w-]| \d+>)"  # not the word in "<host 1>"


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """A pattern of one of them, the longest first; of none if there are none."""
    longest_first = sorted(patterns, key=len, reverse=True)
    return re.compile("|".join(longest_first) or r"(?!)", re.IGNORECASE)
