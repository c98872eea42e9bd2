"""How the commands that produce take a producer's options: from a file, one by one, and by flags of their own."""

from __future__ import annotations

import argparse
from pathlib import Path

from spark_kafka_sink.cli.properties import read_properties
from spark_kafka_sink.errors import ConfigError

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def add_producer_options(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--bootstrap-server", required=True, metavar="HOST:PORT", help="one or more brokers, separated by commas"
    )
    command.add_argument("--topic", required=True, help="where the records go")
    command.add_argument(
        "--request-required-acks", metavar="ACKS", choices=("all", "-1", "0", "1"),
        help="who must have a record: all in-sync replicas (all, the default), the leader (1), nobody (0)",
    )  # fmt: skip
    command.add_argument(
        "--compression-codec", nargs="?", const="gzip", choices=_CODECS, metavar="CODEC",
        help=f"{', '.join(_CODECS)} (default: none; without a value: gzip)",
    )  # fmt: skip
    command.add_argument(
        "--producer-property", type=name_and_value, action="append", default=[], metavar="NAME=VALUE",
        help="any option of Kafka's producer (docs/options.md); may be given several times",
    )  # fmt: skip
    command.add_argument(
        "--producer.config", type=Path, metavar="FILE", dest="producer_config",
        help="a .properties file of such options; --producer-property wins over it, the flags here over both",
    )  # fmt: skip


def producer_config(arguments: argparse.Namespace) -> dict[str, object]:
    """The options together, later ones winning: file, properties, flags. ``ConfigError`` for a file that is not there.

    Serializers of the JVM are left out of a file: what these commands send are bytes already.
    """
    config: dict[str, object] = {}
    if arguments.producer_config is not None:
        config.update(_without_serializers(arguments.producer_config))
    config.update(arguments.producer_property)
    config["bootstrap.servers"] = arguments.bootstrap_server
    if arguments.request_required_acks is not None:
        config["acks"] = arguments.request_required_acks
    if arguments.compression_codec is not None:
        config["compression.type"] = arguments.compression_codec
    return config


def name_and_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAME=VALUE")
    return name, value


def _without_serializers(path: Path) -> dict[str, str]:
    try:
        entries = read_properties(path)
    except OSError as error:
        raise ConfigError([f"--producer.config {path} cannot be read: {error.strerror}."]) from error
    return {name: value for name, value in entries.items() if name not in ("key.serializer", "value.serializer")}
