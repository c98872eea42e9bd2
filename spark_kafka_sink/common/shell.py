"""The options of commands that errors and log lines print, for a shell to run as they are."""

from __future__ import annotations

from shlex import quote

from spark_kafka_sink.common.config import ProducerConfig


def option(name: str, value: str) -> str:
    """``name value``, quoted; with ``=`` if the command would take the value for an option of its own."""
    return f"{name}{'=' if value.startswith('-') else ' '}{quote(value)}"


def server_options(config: ProducerConfig) -> str:
    """``--bootstrap-server`` and, if the brokers want more than that, ``--command-config``, as Kafka's tools have them.

    The file has the options of the write, ``kafka.`` in front of them or not.
    """
    hosts = ((f"[{host}]" if ":" in host else host, port) for host, port in config.bootstrap_servers)
    servers = option("--bootstrap-server", ",".join(f"{host}:{port}" for host, port in hosts))
    return servers if config.security_protocol == "PLAINTEXT" else f"{servers} --command-config client.properties"
