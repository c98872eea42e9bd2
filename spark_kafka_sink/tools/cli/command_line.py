"""The common parts of the commands: the parser, arguments of several commands, a producer's options, and their
warnings."""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from spark_kafka_sink.common.config import ProducerConfig, config_warnings_to
from spark_kafka_sink.common.config.option import did_you_mean
from spark_kafka_sink.common.config.providers import parse_properties
from spark_kafka_sink.common.model import text_fault
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.kafka08.options import overridden, parse_either_name

_NEGATIVE_NUMBER: Final = re.compile(r"-\.?[0-9]")

VERBOSE = ("-v", "--verbose")

_LARGEST = 1e9
"""The largest number, in seconds or hours longer than any wait; ``time.sleep`` does not accept infinity."""

OTHERS_CAN_READ = "Other users of this machine can read a command line, so write passwords"
_AFTER_NAME = re.compile(r"[^\w.-]")


class CommandParser(argparse.ArgumentParser):
    """A parser, also used for its subcommands."""

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Reports an unknown flag first, because argparse would only report missing required arguments."""
        words = list(sys.argv[1:] if args is None else args)
        flags = [flag for action in self._actions for flag in action.option_strings]
        for word in self._flags_among(words):
            name = word.partition("=")[0]
            if not any(flag.startswith(name) or (flag == name[:2] and name[1] != "-") for flag in flags):
                self.error(f"unknown option {name}{did_you_mean(name, flags)}")
        return super().parse_known_args(words, namespace)

    def _flags_among(self, words: Sequence[str]) -> Iterable[str]:
        """The flags among the words that belong to this parser, not to a subcommand's."""
        if self._subparsers is not None:
            words = list(takewhile(_is_flag, words))
        return (word for word in takewhile(lambda word: word != "--", words) if _is_flag(word))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            names = [str(choice) for choice in action.choices]
            advice = did_you_mean(str(value), names) or f"; choose from {', '.join(names)}"
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{advice}")


def _is_flag(word: str) -> bool:
    """Whether argparse takes the word for an option; words with blanks and negative numbers are values."""
    return len(word) > 1 and word[0] == "-" and " " not in word and not _NEGATIVE_NUMBER.match(word)


def add_pairs(
    parser: argparse._ActionsContainer, *flags: str, text: str, dest: str | None = None, value: str = "VALUE"
) -> None:
    """A repeatable argument NAME=VALUE, parsed to a list of (name, value)."""
    parser.add_argument(
        *flags, type=_pair, action="append", default=[], metavar=f"NAME={value}", help=text, dest=dest
    )  # fmt: skip


def at_least_one(text: str) -> int:
    """Argument type: a whole number of at least 1."""
    if not text.isdecimal() or (number := int(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return number


def above_zero(text: str) -> float:
    """Argument type: a number above 0, such as seconds."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number <= _LARGEST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number above 0")
    return number


def _pair(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        shown = _AFTER_NAME.split(text, maxsplit=1)[0]  # after the name may stand a password
        raise argparse.ArgumentTypeError(f"{shown!r} is not of the form NAME=VALUE")
    return name, value


def add_cluster(command: argparse.ArgumentParser) -> None:
    """Adds the arguments of the cluster, for ``client_config``."""
    command.add_argument(
        "--bootstrap-server", metavar="HOST:PORT",
        help="brokers, separated by commas (default: bootstrap.servers of --command-config)",
    )  # fmt: skip


def add_client_options(command: argparse.ArgumentParser, config: str = "", pairs: str = "") -> None:
    """Adds the options of a Kafka client, which are the same for every command. ``config``, ``pairs``: earlier names of
    the flags."""
    overrides = "overrides --command-config"
    add_pairs(
        command, *filter(None, (pairs, "--command-property")), dest="client_properties",
        text=f"an option of Kafka's producer (page Options of the documentation), such as security.protocol=SSL; "
        f"may be repeated, and {overrides}. {OTHERS_CAN_READ} to a file",
    )  # fmt: skip
    command.add_argument(
        *filter(None, (config, "--command-config")), type=Path, metavar="FILE", dest="client_config",
        help="a .properties file with such options (TLS, SASL, passwords), as for Kafka's own tools",
    )  # fmt: skip


def add_spark_options(group: argparse._ActionsContainer) -> None:
    """Adds the options of a session that a command starts."""
    group.add_argument("--master", help="Spark's master, as for spark-submit (default: that of spark-defaults.conf)")
    group.add_argument("--remote", metavar="URL", help="a Spark Connect server (sc://host) instead of a master")
    add_pairs(group, "--conf", text="a Spark property, as for spark-submit; may be repeated")


def spark_settings(arguments: argparse.Namespace) -> dict[str, str]:
    """The Spark properties of ``add_spark_options``."""
    settings = dict(arguments.conf)
    for name in ("master", "remote"):
        if (value := getattr(arguments, name)) is not None:
            settings[f"spark.{name}"] = value
    return settings


def checked_names(names: Mapping[str, tuple[str | None, str]]) -> None:
    """Raises ``ConfigError`` for names that no request can carry, before anything is sent or created. ``names``: flag →
    its text, None if it is not given, and what will be appended to it.
    """
    errors = []
    for option, (name, suffix) in names.items():
        if name == "":
            errors.append(f"{option} is empty: give a name, or leave the option out.")
        elif name is not None and (fault := text_fault(name)) is not None:
            errors.append(f"{option} {fault}.")
        elif name is not None and (fault := text_fault(name + suffix)) is not None:
            errors.append(f"{option} is too long: a transactional id with it {fault}.")
    if errors:
        raise ConfigError(errors)


def client_options(arguments: argparse.Namespace) -> dict[str, object]:
    """The options of file and properties, which override the file. Raises ``ConfigError`` for an unreadable file."""
    path: Path | None = arguments.client_config
    try:
        in_file = {} if path is None else read_properties(path)
    except OSError as error:
        raise ConfigError([f"--command-config {path} cannot be read: {error.strerror}."]) from error
    server = getattr(arguments, "bootstrap_server", None)  # the demo has an option of its own
    flags = {**dict(arguments.client_properties), **({} if server is None else {"bootstrap.servers": server})}
    given = overridden(in_file, flags)
    return {name.removeprefix("kafka."): value for name, value in given.items()}  # jobs write the prefix


def client_config(arguments: argparse.Namespace) -> ProducerConfig:
    """The configuration of ``client_options``. Raises ``ConfigError``."""
    options = client_options(arguments)
    if not {"bootstrap.servers", "metadata.broker.list"} & options.keys():
        raise ConfigError(["--bootstrap-server is required, or bootstrap.servers in the file of --command-config."])
    return parse_either_name(options)


def read_properties(path: Path) -> dict[str, str]:
    """The options in a .properties file, name → value. Raises ``OSError``."""
    return parse_properties(path.read_bytes().decode("latin-1"))


def plain_config_warnings() -> AbstractContextManager[None]:
    """Prints a ``ConfigWarning`` as ``warning: <text>`` to stderr, without Python's file and source line."""
    return config_warnings_to(lambda text: print(f"warning: {text}", file=sys.stderr))
