"""Limits that an operator sets in the environment of a process and that no option can widen.

Users who may set options, but not run code (SQL on a shared server), could otherwise read files and variables of driver
and executors through options, and send credentials to any URL. Java's system properties for it are
``org.apache.kafka.automatic.config.providers`` (CVE-2024-31141) and ``org.apache.kafka.sasl.oauthbearer.allowed.urls``
and ``….allowed.files`` (CVE-2025-27817). Each variable is a list with commas. One that is not set limits nothing; one
that is empty or ``none`` allows nothing. They are read when options are parsed, and again when a value is used.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

PROVIDERS: Final = "SPARK_KAFKA_SINK_AUTOMATIC_CONFIG_PROVIDERS"
FILES: Final = "SPARK_KAFKA_SINK_ALLOWED_FILES"
URLS: Final = "SPARK_KAFKA_SINK_ALLOWED_URLS"
CLASSES: Final = "SPARK_KAFKA_SINK_ALLOWED_CLASSES"


def provider_fault(simple_name: str) -> str | None:
    """Why a config provider such as ``FileConfigProvider`` must not be used, None if it may.

    The text follows the placeholder or option. In the variable, the name may have Java's package.
    """
    allowed = _allowlist(PROVIDERS)
    if allowed is None or simple_name in {name.rpartition(".")[2] for name in allowed}:
        return None
    return f"needs {simple_name}, which {_does_not_allow(PROVIDERS)}"


def file_fault(path: str) -> str | None:
    """Why a file that an option names must not be read, None if it may; follows the option's name. Shows no value.

    A file is allowed by its absolute path or by that of a folder above it. Links are followed: users who may write to
    such a folder decide what is in it. A path with ``..`` is refused, because behind a link it leads out of the folder.
    """
    allowed = _allowlist(FILES)
    if allowed is None:
        return None
    file = Path(os.path.abspath(path))
    if ".." not in Path(path).parts and any(file.is_relative_to(os.path.normpath(folder)) for folder in allowed):
        return None
    return f"names a file that {_does_not_allow(FILES)}"


def path_of_url(url: str) -> str:
    """The path in a ``file:`` URL. Both ``file_fault`` and reading use it, so that what is read is what is checked."""
    return unquote(urlsplit(url).path)


def url_fault(url: str) -> str | None:
    """Why no request may be sent to a URL, None if one may; follows the option's name. Shows no value.

    As in Java, whole URLs are compared, except for a slash at the end: a prefix would allow other hosts or paths.
    """
    allowed = _allowlist(URLS)
    if allowed is None or url.strip().rstrip("/") in {other.rstrip("/") for other in allowed}:
        return None
    return f"has a URL that {_does_not_allow(URLS)}"


def class_fault(name: str) -> str | None:
    """Why a class ``package.module:Class``, or a source of tokens, must not be loaded; follows the option's name."""
    allowed = _allowlist(CLASSES)
    if allowed is None or name in allowed:
        return None
    return f"names {name!r}, which {_does_not_allow(CLASSES)}"


def _allowlist(variable: str) -> frozenset[str] | None:
    text = os.environ.get(variable)
    return None if text is None else frozenset(name.strip() for name in text.split(",")) - {"", "none"}


def _does_not_allow(variable: str) -> str:
    return f"the environment variable {variable} of this process does not allow"
