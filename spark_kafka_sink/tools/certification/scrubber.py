"""Removes secrets, users, host names and addresses from text that will be pasted in public."""

from __future__ import annotations

import getpass
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
_BOOLEANS: Final = ("true", "false")
_SECRET: Final = re.compile(
    r"-----BEGIN [^-]+-----(?:.*?-----END [^-]+-----|(?: |\\[nr])*[\w+/=].*)"  # PEM, which may be cut
    r"|\beyJ[\w-]+\.[\w-]+(?:\.[\w-]*)?"  # a JWT
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"  # an access key of AWS
    r"|(?P<label>authorization[\"']? ?[=:] ?(?:(?:Bearer|Basic|Digest|Negotiate|ApiKey|AWS4-HMAC-SHA256) )?"
    r"|\b(?:Bearer|Basic) "
    r"|(?:password|passwd|pwd|passphrase|secret|token|signature|credential|api[._-]?key|user\.info)[\"']? ?[=:] ?"
    r"|(?:key|assertion|jaas\.config|\bsig)=)"
    r"(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s,;&]+)",
    re.IGNORECASE,
)
"""Finds secrets by what they look like. Those of the options are found by their values."""

_URL: Final = re.compile(
    r"\b(?P<scheme>[a-z][a-z0-9+.-]*://)(?:[^\s\"<>]*@)?(?P<host>[^\s/?#@'\"<>]+)(?P<rest>[/?#][^\s'\"<>]*)?",
    re.IGNORECASE,
)
_USERS_OF_SERVICES: Final = (
    "admin", "airflow", "app", "data", "databricks", "hadoop", "hdfs", "hive", "java", "jovyan", "kafka", "python",
    "root", "runner", "spark", "test", "ubuntu", "user", "yarn", "zeppelin",
)  # fmt: skip
"""Users of images and services. Such a name identifies no person, and is a word of many texts."""

_AFTER_USER: Final = (
    "agent|and|application|as|at|by|can|cannot|class|code|could|defined|did|do|does|for|from|has|id|in|info|is|may|must"
    "|name|names|not|of|on|or|principal|quota|that|the|to|was|who|will|with"
)
"""Words that follow "user" in texts and are not its name. A word that is missing here is replaced in the verdict."""

_USER: Final = re.compile(
    r"(?P<principal>\bUser: ?)[^\s;)'\"]+"  # a whole distinguished name with mutual TLS
    r"|\barn:aws[\w-]*:[^\s,;)'\"]+"  # has the account, and the user or role
    r"|(?P<label>\b(?:[Uu]ser(?:[_ -]?[Nn]ame)?|[Pp]rincipal)(?:[\"']? ?[=:] ?| (?=[\"'])))"
    r"(?:\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|[^\s,;&]+)"
    rf"|(?<=\b[Uu]ser )(?!(?:{_AFTER_USER})\b)[\w.@-]*\w"
    r"|(?<=/home/)[^\s/'\"]+|(?<=/user/)[^\s/'\"]+|(?<=/Users/)[^\s/'\"]+|(?<=\\Users\\)[^\s\\'\"]+"
    r"|(?<![\w.+/-])[\w.+-]+/[\w.-]+@[\w.-]*\w|(?<![\w.+-])[\w.+-]+@[\w.-]*\w"  # a service of Kerberos, an address
)
_ADDRESS: Final = re.compile(
    r"(?<![\w.])(?:\d{1,3}(?:\.\d{1,3}){3}|[0-9A-Fa-f]{0,4}(?::[0-9A-Fa-f]{0,4}){2,7})(?![\w.]*\w)"
)
_LABEL: Final = r"[A-Za-z0-9_](?:[\w-]*\w)?"
_NAME: Final = rf"{_LABEL}(?:\.{_LABEL})*"
_EVIDENT_HOST: Final = re.compile(
    rf"(?:(?<![\w.-])(?:{_NAME}(?=:\d{{2,5}}\b)|(?<=://){_NAME}"  # a port, a URL
    rf"|{_NAME}(?=/<host \d+>)|(?<=\(){_NAME}(?= executor ))"  # Java, Spark
    rf"|(?P<label>\b(?:UnknownHostException: |executor \S+ on (?:host )?|on host:? |resolve host:? |host=))"
    rf"(?P<name>{_NAME}))(?![\w-])"
)
_PERHAPS_HOST: Final = re.compile(rf"(?<![\w.-])(?:{_LABEL}\.)+[A-Za-z][\w-]*\w(?![\w-])")
_SOURCE_FILE: Final = r"[\w-]+\.(?:py|scala|java)"  # a name with more dots is a host of Paraguay, .py
_NO_HOST: Final = re.compile(rf"\d+|{_SOURCE_FILE}")  # a time, a line of a file
_NO_HOST_EITHER: Final = re.compile(
    r"org\.(?:apache|codehaus|eclipse|json4s|rocksdb|scalatest|slf4j|sparkproject|xerial)\..*"
    r"|(?:java|javax|jdk|sun)\.(?:base|internal|io|lang|management|math|misc|net|nio|reflect|security|sql|text|time"
    r"|util|xml)(?:\..*)?"
    r"|scala\.(?:collection|concurrent|io|math|reflect|runtime|util)\..*"
    r"|pyspark\.(?:cloudpickle|core|daemon|errors|java_gateway|pandas|serializers|sql|util|worker)(?:\..*)?"
    r"|py4j\.(?:java_gateway|protocol)(?:\..*)?|spark_kafka_sink\..*"
    r"|spark\.(?:sql|driver|executor|python|pyspark|task|stage|scheduler|hadoop|streaming|connect|jars|submit)\..*"
    rf"|{_SOURCE_FILE}|.*\.(?:properties|pem|jks|p12|jar|json|txt|keytab|conf)|kafka-[\w-]+\.sh"
    # settings of topics and brokers
    r"|.*\.(?:ms|bytes|enable|replicas|ratio|listeners|factor|policy|type|version|partitions|dirs|isr)"
    r"|.*\.[A-Z]\w*[a-z]\w*"  # a class
)
"""Names with a dot that are not host names: classes, packages, files and settings."""


class Scrubber:
    """Replaces secrets, users, host names and addresses in texts. A host gets the same number in all of them.

    ``hosts`` and ``users``: the known names, besides the user in ``config``. Unknown ones are found by what they look
    like, and in doubt a name is replaced. ``mark`` and ``prefixes``: names that contain the mark, and the prefixes
    themselves, are not taken for host names.
    """

    def __init__(
        self,
        config: ProducerConfig,
        hosts: Iterable[str],
        users: Iterable[str],
        mark: str,
        prefixes: Iterable[str],
    ) -> None:
        secrets = {" ".join(each.split()) for each in _secrets(config)}
        self._secrets = _any_of(_as_secret(each) for each in secrets if len(each) >= _SHORTEST_SECRET)
        self._users = _any_of(_as_word(each) for each in [*users, *_users(config)] if each)
        self._hosts = _any_of(_as_word(each) for each in hosts if each)
        names = [rf"(?<![\w.-]){re.escape(each)}(?!\.?[\w-])" for each in prefixes]
        of_this_run = rf"[\w.-]*{re.escape(mark)}(?:[\w.-]*\w)?"
        self._kept_or_host = re.compile(rf"(?P<kept>{'|'.join([of_this_run, *names])})|{_PERHAPS_HOST.pattern}")
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> str:
        """Returns the text without them, on one line."""
        text = self._secrets.sub("<secret>", " ".join(text.split()))
        text = _SECRET.sub(lambda found: f"{found['label'] or ''}<secret>", _URL.sub(_without_path, text))
        text = _USER.sub(_without_user, self._users.sub("<user>", text))
        text = _ADDRESS.sub(self._address, self._hosts.sub(self._host, text))
        text = _EVIDENT_HOST.sub(self._evident_host, text)
        # A host that was recognised by its port is also replaced where it has none.
        text = _any_of(map(_as_word, self._numbers)).sub(self._host, text)
        return self._kept_or_host.sub(self._kept_or_perhaps_host, text)

    def _host(self, found: re.Match[str]) -> str:
        return self._numbered(found[0])

    def _numbered(self, name: str) -> str:
        return f"<host {self._numbers.setdefault(name.lower(), len(self._numbers) + 1)}>"

    def _address(self, found: re.Match[str]) -> str:
        try:
            ip_address(found[0])
        except ValueError:  # a time of day
            return found[0]
        return self._host(found)

    def _evident_host(self, found: re.Match[str]) -> str:
        if found["label"]:
            return f"{found['label']}{self._numbered(found['name'])}"
        return found[0] if _NO_HOST.fullmatch(found[0]) else self._host(found)

    def _kept_or_perhaps_host(self, found: re.Match[str]) -> str:
        name = found[0].removeprefix(KAFKA_PREFIX)
        return (
            found[0]
            if found["kept"] or name in OPTIONS_BY_NAME or _NO_HOST_EITHER.fullmatch(name)
            else self._host(found)
        )


def process_user() -> str:
    """The name of the user that runs this process, or "" if there is none, or the user is one of a service."""
    with suppress(OSError, KeyError, ImportError):  # a container may run as a user without a name
        if (user := getpass.getuser()) not in _USERS_OF_SERVICES:
            return user
    return ""


def _users(config: ProducerConfig) -> Iterator[str | None]:
    yield config.sasl_oauthbearer_client_credentials_client_id
    yield username(config)
    with suppress(KafkaError):  # a placeholder without a value
        options = jaas_options(config)
        yield from (options.get(name) for name in _NOT_SECRET)


def _secrets(config: ProducerConfig) -> Iterator[str]:
    with suppress(KafkaError):  # a placeholder without a value
        config = config.with_credentials("")
    yield from (value.value for each in fields(config) if isinstance(value := getattr(config, each.name), Password))
    with suppress(KafkaError):
        for name, value in jaas_options(config).items():
            if name.lower() not in _NOT_SECRET and value.lower() not in _BOOLEANS:
                yield value


def _without_path(found: re.Match[str]) -> str:
    """The URL without user and path, because a path or query may contain a token."""
    return f"{found['scheme']}{found['host']}{'/…' if (found['rest'] or '/') != '/' else ''}"


def _without_user(found: re.Match[str]) -> str:
    return f"{found['label'] or found['principal'] or ''}<user>"


def _as_word(text: str) -> str:
    """A pattern of the text as a whole word, but not of the word "host" in "<host 1>"."""
    return rf"(?<![\w.-]){re.escape(text)}(?![\w-]| \d+>)"


def _as_secret(text: str) -> str:
    """A pattern of the text wherever it is. One of letters alone is perhaps a word, such as "kafka", which is part of
    names that are no secret: it is found as a whole word.
    """
    secret = re.escape(text)
    return rf"(?<![\w.-]){secret}(?!\.?[\w-])" if text.isalpha() else secret


def _any_of(patterns: Iterable[str]) -> re.Pattern[str]:
    """A pattern that finds any of the patterns, the longest first. Without patterns it finds nothing."""
    longest_first = sorted(patterns, key=len, reverse=True)
    return re.compile("|".join(longest_first) or r"(?!)", re.IGNORECASE)
