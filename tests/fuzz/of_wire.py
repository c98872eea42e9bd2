"""What brokers send: frames, responses, handshakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import cache
from io import BytesIO
from random import Random
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from kio.static.primitive import i8

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import ClusterSnapshot, Node, TopicPartition
from spark_kafka_sink.errors import KafkaError, NetworkError
from spark_kafka_sink.exactly_once.ledger_topic import (
    LEDGER_SETTINGS,
    SETTINGS,
    WantedLedger,
    broker_limit_ms,
    checked_configs,
    wanted_ledger,
)
from spark_kafka_sink.exactly_once.partition_log import PartitionLog
from spark_kafka_sink.exactly_once.sweep import _describe_each, _described, _listed_by
from spark_kafka_sink.network.api_versions import PRODUCE_FIRST_WITH_TOPIC_IDS, SPOKEN
from spark_kafka_sink.network.calls import Call, CallEnd, Calls
from spark_kafka_sink.network.connection import MAX_HANDSHAKE_FRAME_BYTES, FrameBuffer
from spark_kafka_sink.network.error_table import Action, action, broker_error
from spark_kafka_sink.network.handshake import _api_versions, authenticate
from spark_kafka_sink.network.login.sasl import sasl_mechanism
from spark_kafka_sink.network.login.scram import scram_exchange
from spark_kafka_sink.network.messages import (
    KioRequest,
    Response,
    decode_response,
    response_type,
    schema,
    throttle_time_ms,
)
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.network.metadata_api import parse_metadata
from spark_kafka_sink.network.rights import Operation, operations
from spark_kafka_sink.network.topics import NewTopic, create_topic, delete_topic, similar_topics
from spark_kafka_sink.producer.sender.produce_api import TopicIds, read_response
from spark_kafka_sink.producer.transactions.requests import (
    add_offsets,
    add_partitions,
    end_txn,
    identity_after,
    init_producer_id,
    producer_id,
    transaction_key,
    txn_offset_commit,
)
from spark_kafka_sink.producer.transactions.values import END_TXN_V2, ConsumerGroupMetadata, TransactionalIdentity
from spark_kafka_sink.spark.topic_limits import described_limit, limits_call
from spark_kafka_sink.tools.connection_check.check import _described_topic
from tests.properties.test_hostile_security import ALICE, configured, converse, honest, scram_messages
from tests.unit.login.scram_server import serve
from tests.unit.network.response_bytes import Shape

_PIECE: Final = 100
_VERSIONS: Final = [
    (api, version) for api, spoken in SPOKEN.items() for version in range(spoken.lowest, spoken.highest + 1)
]
_LOWEST_PRODUCE, _HIGHEST_PRODUCE = SPOKEN["produce"].lowest, SPOKEN["produce"].highest
_TOPIC_ID: Final = (1).to_bytes(16, "big")
_TOPIC_IDS: Final = TopicIds({"t": _TOPIC_ID}, {_TOPIC_ID: "t"})
_STEPS_OF_PLAIN: Final = 3


def frames(data: bytes) -> None:
    buffer = FrameBuffer("b:9092", MAX_HANDSHAKE_FRAME_BYTES)
    for start in range(0, len(data), _PIECE):
        for frame in buffer.feed(data[start : start + _PIECE]):
            assert 4 <= len(frame) <= len(data)


def frame_seeds() -> Sequence[bytes]:
    bodies = [b"\0\0\0\7", b"\0\0\0\1" + bytes(300), b"\0\0\0\2" + b"ab"]
    return [b"".join(len(body).to_bytes(4, "big") + body for body in bodies)]


class _Cluster:
    """Brokers that give each call the same response; its error codes end the call as they do in ``Calls``."""

    def __init__(self, body: Any) -> None:
        self.calls = self
        self.snapshot = ClusterSnapshot()
        self._body = body

    def call(self, call: Call, deadline: float) -> Any:
        self.ended(call)
        return self._body

    def run(self, calls: Iterable[Call], deadline: float) -> None:
        for call in calls:
            try:
                self.ended(call)
                call.end = CallEnd(Action.SUCCEED, self._body)
            except KafkaError as error:
                call.end = CallEnd(Action.FAIL, error=error)

    def ended(self, call: Call) -> None:
        worst = max(call.codes(self._body), key=lambda each: action(call.api, each.code), default=None)
        if worst is None:
            raise NetworkError("no results")
        if action(call.api, worst.code) is not Action.SUCCEED:
            raise broker_error(worst.code, worst.where, worst.message, call.api)

    def refresh(self, deadline: float) -> None:
        pass

    def disconnect(self, reason: KafkaError) -> None:
        pass

    def node_ids(self, deadline: float) -> list[int]:
        return [0]

    def topic_id(self, topic: str) -> None:
        return None

    def now(self) -> float:
        return 0.0


def _cluster(body: Any) -> Any:
    return _Cluster(body)


_NAME: Final = "name0"
_PARTITION: Final = TopicPartition(_NAME, 0)
_IDENTITY: Final = TransactionalIdentity(_NAME, 1, 1, END_TXN_V2)
_GROUP: Final = ConsumerGroupMetadata("group")


def _metadata(body: Any) -> None:
    snapshot = parse_metadata(body)
    snapshot.leader(_PARTITION)
    for topic in body.topics:
        list(_described_topic("topic", topic, (Operation.WRITE,), 0.0))
    similar_topics(_cluster(body), _NAME, 0.0)


def _coordinator(body: Any) -> None:
    config = ProducerConfig.parse({"bootstrap.servers": "127.0.0.1:9092"})
    requests: list[KioRequest] = []
    client: Any = SimpleNamespace(send=lambda node, request, now: requests.append(request))
    calls = Calls(client, Metadata(config, Random(0)), config, Random(0))
    for call in (init_producer_id(_IDENTITY, 1000), end_txn(_IDENTITY, True)):
        calls.start(call)
    calls._find_coordinators(Node(0, "b", 9092), [transaction_key(_NAME)], 0.0)
    for request in requests:
        request.on_complete(Response(0, body.__version__, body, None, 1.0, 1.0))


def _limits(body: Any) -> None:
    for result in body.results:
        limit = described_limit(result)
        assert isinstance(limit, KafkaError) or 0 < limit < 1 << 63
    _cluster(body).ended(limits_call([_NAME]))
    checked_configs(_cluster(body), _NAME, WantedLedger(1, {**SETTINGS, "min.insync.replicas": "1"}, False), 0.0)


def _broker_limits(body: Any) -> None:
    wanted_ledger(_cluster(body), 0.0)
    broker_limit_ms(_cluster(body), 0.0)


def _listed(body: Any) -> None:
    _listed_by(_cluster(body), 0, (), 0.0)


def _described_transactions(body: Any) -> None:
    _described(_cluster(body), 0, [_NAME], 0.0)
    _describe_each(_cluster(body), [_NAME], 0.0)


def _fetched(body: Any) -> None:
    for read_committed in (False, True):
        PartitionLog(_cluster(body), _PARTITION).fetch(0, 0.0, read_committed=read_committed)


def _offsets(body: Any) -> None:
    PartitionLog(_cluster(body), _PARTITION).offset_at(0, 0.0)


def _appended(body: Any) -> None:
    PartitionLog(_cluster(body), _PARTITION).append(b"", None, 0.0)


def _created(body: Any) -> None:
    create_topic(_cluster(body), NewTopic(_NAME), 0.0)


def _deleted(body: Any) -> None:
    delete_topic(_cluster(body), _NAME, 0.0)


def _of_transaction(call: Call) -> Read:
    def read(body: Any) -> None:
        _cluster(body).ended(call)
        identity_after(body, _IDENTITY.identity)

    return read


CONFIGS: Final = tuple(name.encode() for name in (*LEDGER_SETTINGS, "max.message.bytes", "transaction.max.timeout.ms"))


def _ignored(end: CallEnd) -> None:
    pass


def _operations(body: Any) -> None:
    operations(int(body.cluster_authorized_operations))


Read: TypeAlias = Callable[[Any], object]
_PARSERS: Final[dict[str, tuple[Read, ...]]] = {
    "metadata": (_metadata,),
    "api_versions": (lambda body: _api_versions("b:9092", body),),
    "sasl_handshake": (),  # ``handshake`` reads these two
    "sasl_authenticate": (),
    "find_coordinator": (_coordinator,),
    "init_producer_id": (_of_transaction(init_producer_id(_IDENTITY, 1000)), _of_transaction(producer_id(_ignored))),
    "add_partitions_to_txn": (_of_transaction(add_partitions(_IDENTITY, [_PARTITION])),),
    "add_offsets_to_txn": (_of_transaction(add_offsets(_IDENTITY, _GROUP, _ignored)),),
    "txn_offset_commit": (_of_transaction(txn_offset_commit(_IDENTITY, {}, _GROUP, _ignored)),),
    "end_txn": (_of_transaction(end_txn(_IDENTITY, True)),),
    "describe_configs": (_limits, _broker_limits),
    "create_topics": (_created,),
    "delete_topics": (_deleted,),
    "list_offsets": (_offsets,),
    "fetch": (_fetched,),
    "produce": (_appended,),
    "describe_cluster": (_operations,),
    "list_transactions": (_listed,),
    "describe_transactions": (_described_transactions,),
}
"""What reads the entity of an API, after its bytes have been read."""


def response(data: bytes) -> None:
    """The first two bytes say which API and version."""
    api, version = _VERSIONS[int.from_bytes(data[:2], "big") % len(_VERSIONS)]
    body = decode_response(data[2:], response_type(api, version))
    assert throttle_time_ms(body) is not None
    refused: list[KafkaError] = []
    for read in _PARSERS[api]:
        try:
            read(body)
        except KafkaError as error:
            refused.append(error)
    if refused:
        raise refused[0]


def response_seeds() -> Sequence[bytes]:
    shapes = [Shape(b"name", 2), Shape(b"name", 1), Shape(b"", 1, tags=2)]
    seeds = [
        number.to_bytes(2, "big") + shape.response(response_type(api, version))
        for number, (api, version) in enumerate(_VERSIONS)
        for shape in shapes
        if version in (SPOKEN[api].lowest, SPOKEN[api].highest)
    ]
    number = _VERSIONS.index(("describe_configs", SPOKEN["describe_configs"].highest))
    told = _configs({"max.message.bytes": "1048588", **SETTINGS, "transaction.max.timeout.ms": "900000"})
    return [*seeds, number.to_bytes(2, "big") + told]


def _configs(values: dict[str, str]) -> bytes:
    """A DescribeConfigs response, as a broker writes it, without a config's synonyms."""
    module = schema("describe_configs", SPOKEN["describe_configs"].highest).response
    buffer = BytesIO()
    buffer.write(b"\0")  # no tagged fields in the header
    configs = tuple(
        module.DescribeConfigsResourceResult(
            name=name, value=value, read_only=False, is_sensitive=False, synonyms=(), documentation=None
        )
        for name, value in values.items()
    )
    result = module.DescribeConfigsResult(
        error_code=ErrorCode.none, error_message=None, resource_type=i8(2), resource_name=_NAME, configs=configs
    )
    entity = module.DescribeConfigsResponse(throttle_time=timedelta(0), results=(result,))
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def produce_response(data: bytes) -> None:
    """The first byte says which version."""
    version = _LOWEST_PRODUCE + int.from_bytes(data[:1], "big") % (_HIGHEST_PRODUCE - _LOWEST_PRODUCE + 1)
    ids = _TOPIC_IDS if version >= PRODUCE_FIRST_WITH_TOPIC_IDS else None
    read_response(version, memoryview(data)[1:], topic_ids=ids)


def produce_seeds() -> Sequence[bytes]:
    versions = range(_LOWEST_PRODUCE, _HIGHEST_PRODUCE + 1)
    leaders = {("node_endpoints",): 1}
    shapes = [Shape(b"t", 1), Shape(b"t", 1, code=6, counts=leaders), Shape(b"t", 1, code=3, tags=1)]
    return [
        bytes([version - _LOWEST_PRODUCE]) + shape.response(response_type("produce", version))
        for version in versions
        for shape in shapes
    ]


def handshake(data: bytes) -> None:
    """The first byte says which response of the handshake it is."""
    converse("PLAIN", {int.from_bytes(data[:1], "big") % _STEPS_OF_PLAIN: data[1:]})


def handshake_seeds() -> Sequence[bytes]:
    config = configured("PLAIN")
    steps = authenticate("b:9092 (id: 1)", "b", config, sasl_mechanism(config))
    request, server = next(steps), serve("sha256", {})
    seeds = []
    for number in range(_STEPS_OF_PLAIN):
        body = honest(request, server, "PLAIN")
        seeds.append(bytes([number]) + body)
        try:
            request = steps.send(memoryview(body))
        except StopIteration:
            break
    return seeds


def scram(data: bytes) -> None:
    """The server's two messages, with a line end between them."""
    first, _, final = data.partition(b"\n")
    exchange = scram_exchange("sha256", ALICE, "nonce")
    next(exchange)
    exchange.send(first)
    try:
        exchange.send(final)
    except StopIteration:
        return
    raise AssertionError("SCRAM goes on after the server's last message")


@cache
def scram_seeds() -> Sequence[bytes]:
    return [b"\n".join(scram_messages()), b"r=nonce1,s=c2FsdA==,i=4096\ne=other-error"]
