"""``max.message.bytes`` of topics (DescribeConfigs)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import ModuleType
from typing import Any, Final

from spark_kafka_sink.errors import KafkaError
from spark_kafka_sink.network.calls import Call, CallHandler, CodeAt
from spark_kafka_sink.network.rpc import Rpc, timeout_error

MAX_MESSAGE_BYTES: Final = "max.message.bytes"

_VERSIONS: Final = (1, 4)
_TOPIC: Final = 2


def max_message_bytes_call(topic: str, ended: CallHandler | None = None) -> Call:
    """Needs the right DESCRIBE_CONFIGS on the topic."""

    def make(module: ModuleType, version: int) -> Any:
        resource = module.request.DescribeConfigsResource
        wanted = resource(resource_type=_TOPIC, resource_name=topic, configuration_keys=(MAX_MESSAGE_BYTES,))
        return module.DescribeConfigsRequest(resources=(wanted,))

    def codes(body: Any) -> list[CodeAt]:
        return [CodeAt(f"DescribeConfigs of {topic}", each.error_code, each.error_message) for each in body.results]

    return Call("describe_configs", _VERSIONS, None, make, codes, ended)


def described_limit(body: Any) -> int | None:
    """The topic's ``max.message.bytes`` in a response; None if the response lacks it."""
    values = [config.value for each in body.results for config in each.configs if config.name == MAX_MESSAGE_BYTES]
    return int(values[0]) if values and values[0] else None


def look_up_limits(rpc: Rpc, topics: Sequence[str], deadline: float) -> Mapping[str, int | KafkaError]:
    """The limit of each topic, or why it is not known."""
    began = rpc.now()
    rpc.await_brokers(deadline)
    calls = {topic: max_message_bytes_call(topic) for topic in topics}
    rpc.run(calls.values(), deadline)
    return {topic: _outcome(call, deadline - began) for topic, call in calls.items()}


def _outcome(call: Call, timeout_ms: float) -> int | KafkaError:
    if call.end is None:
        return timeout_error(call, timeout_ms)
    if call.end.error is not None:
        return call.end.error
    limit = described_limit(call.end.body)
    return KafkaError("the response does not have it") if limit is None else limit
