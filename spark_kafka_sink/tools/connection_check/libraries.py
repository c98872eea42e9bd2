"""Which Python and which libraries this process has, as findings: a worker may have others than the driver."""

from __future__ import annotations

import platform
import re
import ssl
from collections.abc import Iterator, Sequence
from importlib import metadata
from typing import Final

import spark_kafka_sink
from spark_kafka_sink.tools.connection_check.finding import Finding, Outcome

_PACKAGE: Final = "spark-kafka-sink"
_SUBJECT: Final = "libraries"
_NAME: Final = re.compile(r"[\w.-]+")


def required_libraries() -> tuple[str, ...]:
    """What the package requires, without extras; empty where its files were copied instead of installed."""
    try:
        required = metadata.requires(_PACKAGE) or []
    except metadata.PackageNotFoundError:
        return ()
    names = [_NAME.match(each) for each in required if "extra ==" not in each]
    return tuple(sorted(name[0] for name in names if name))


def library_findings(names: Sequence[str]) -> Iterator[Finding]:
    yield Finding(_SUBJECT, "Python", Outcome.OK, platform.python_version())
    yield Finding(_SUBJECT, "OpenSSL", Outcome.OK, ssl.OPENSSL_VERSION)
    yield Finding(_SUBJECT, _PACKAGE, Outcome.OK, spark_kafka_sink.__version__)
    for name in names:
        try:
            yield Finding(_SUBJECT, name, Outcome.OK, metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(_SUBJECT, name, Outcome.FAILED, "is not installed")
