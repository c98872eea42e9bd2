"""What to look at when a connection attempt has failed: for the sink's errors and for ``spark-kafka-sink check``."""

from __future__ import annotations

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.errors import ConnectionStep, FailedStep, KafkaError


def failed_step(error: BaseException | None) -> FailedStep | None:
    """The failed connection attempt behind an error: its own, or that of one of its causes."""
    while error is not None:
        if isinstance(error, KafkaError) and error.failed_step is not None:
            return error.failed_step
        error = error.__cause__
    return None


def advice(error: KafkaError) -> str:
    """The option to look at; empty if the error's text names it, as those of TLS, ApiVersions and SASL do."""
    failed = failed_step(error)
    return "" if failed is None else _look_at(failed)


def diagnosis(error: BaseException, command: str) -> str:
    """The failed step, what to look at and ``command``, which tries each step. Empty if no connection failed."""
    failed = failed_step(error)
    if failed is None:
        return ""
    look_at = _look_at(failed)
    more = f"; {look_at}" if look_at else "."
    return (
        f"The connection to {failed.server} failed at step {failed.step.value}{more} "
        f"To try each step from this machine: {command}"
    )


def check_command(config: ProducerConfig, topic: str | None = None) -> str:
    """The command that checks the connection of a write."""
    servers = ",".join(f"{host}:{port}" for host, port in config.bootstrap_servers)
    command = f"spark-kafka-sink check --bootstrap-server {servers}"
    if topic is not None:
        command += f" --topic {topic}"
    if config.security_protocol == "PLAINTEXT":
        return command
    return f"{command} --command-config client.properties (a file with the kafka.* options, without the prefix kafka.)"


def _look_at(failed: FailedStep) -> str:
    """The option; empty for the steps whose errors name it."""
    if failed.step not in (ConnectionStep.DNS, ConnectionStep.TCP):
        return ""
    name = "bootstrap.servers" if failed.bootstrap else "the broker's advertised.listeners"
    if failed.step is ConnectionStep.DNS:
        return f"see {name}: can this machine resolve the host name?"
    return f"see {name}: is the broker running, are host and port right, is there a firewall in between?"
