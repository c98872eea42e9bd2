"""The options of commands that errors and log lines print, for a shell to run as they are."""

from __future__ import annotations

from shlex import quote

from spark_kafka_sink.common.config import ProducerConfig


def option(name: str, value: str) -> str:
    """The text ``name value``, quoted. It has ``=`` if the command would otherwise take the value for an option."""
    return f"{name}{'=' if value.startswith('-') else ' '}{quote(value)}"


def server_options(config: ProducerConfig) -> str:
    """The options ``--bootstrap-server`` and, if the brokers need more options than this, ``--command-config`` of
    Kafka's tools.

    The file has the options of the write, ``kafka.`` in front of them or not.
    """
    hosts = ((f"[{host}]" if ":" in host else host, port) for host, port in config.bootstrap_servers)
    servers = option("--bootstrap-server", ",".join(f"{host}:{port}" for host, port in hosts))
    return servers if config.security_protocol == "PLAINTEXT" else f"{servers} --command-config client.properties"
