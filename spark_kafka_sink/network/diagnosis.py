"""What to look at when a connection attempt has failed: for the sink's errors and for ``spark-kafka-sink check``."""

from __future__ import annotations

from spark_kafka_sink.config import ProducerConfig
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
    if failed is None or failed.step not in (ConnectionStep.DNS, ConnectionStep.TCP):
        return ""
    name = "bootstrap.servers" if failed.bootstrap else "the broker's own advertised.listeners, which it tells clients"
    if failed.step is ConnectionStep.DNS:
        return f"see {name}: does this machine's name server know the name?"
    return f"see {name}: does the broker run, are host and port right, does a firewall stand between?"


def diagnosis(error: BaseException, config: ProducerConfig) -> str:
    """For an error that comes from a connection attempt: its step, the option and the command that tries each step.

    Else empty.
    """
    failed = failed_step(error)
    if failed is None:
        return ""
    servers = ",".join(f"{host}:{port}" for host, port in config.bootstrap_servers)
    look_at = f"; {said}" if isinstance(error, KafkaError) and (said := advice(error)) else ""
    options = "" if config.security_protocol == "PLAINTEXT" else " --command-config client.properties"
    explained = " (client.properties: the kafka.* options, without kafka. before their names)" if options else ""
    return (
        f"The connection to {failed.server} failed at step {failed.step.value}{look_at}. To try each step from this "
        f"machine: spark-kafka-sink check --bootstrap-server {servers}{options}{explained}"
    )
