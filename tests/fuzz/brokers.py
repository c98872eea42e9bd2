"""What brokers send: frames, responses, handshakes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import cache
from random import Random
from types import SimpleNamespace
from typing import Any, Final, TypeAlias

from kio.schema.errors import ErrorCode
from kio.static.primitive import i8

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.common.model import ClusterSnapshot, Node, TopicPartition
from spark_kafka_sink.errors import KafkaError, NetworkError, SaslAuthenticationError, WrongProtocolError
from spark_kafka_sink.exactly_once import ledger_topic
from spark_kafka_sink.exactly_once.ledger import PartitionLog
from spark_kafka_sink.exactly_once.sweep import _describe, _descriptions, _list_by
from spark_kafka_sink.network.api_versions import PRODUCE_FIRST_WITH_TOPIC_IDS, SUPPORTED_VERSIONS
from spark_kafka_sink.network.calls import Call, CallEnd, Calls
from spark_kafka_sink.network.connection import MAX_HANDSHAKE_FRAME_BYTES, FrameBuffer
from spark_kafka_sink.network.error_table import Action, action, broker_error
from spark_kafka_sink.network.handshake import _api_versions, authenticate
from spark_kafka_sink.network.login.kerberos import _without_layer
from spark_kafka_sink.network.login.oauthbearer import OAuthBearer
from spark_kafka_sink.network.login.passwords import Credentials, scram_exchange
from spark_kafka_sink.network.login.sasl import LoginStep
from spark_kafka_sink.network.login.token_login import Token
from spark_kafka_sink.network.messages import (
    API_KEYS,
    Response,
    decode_response,
    response_type,
    schema,
    throttle_time_ms,
)
from spark_kafka_sink.network.metadata import Metadata
from spark_kafka_sink.network.metadata_api import Operation, operations, parse_metadata
from spark_kafka_sink.network.topics import (
    MAX_MESSAGE_BYTES,
    TOPIC,
    NewTopic,
    closest_topics,
    create_topic,
    delete_topic,
    describe_configs,
    topic_metadata,
)
from spark_kafka_sink.producer import transaction_requests as requests
from spark_kafka_sink.producer.produce_api import TopicIds, read_response
from spark_kafka_sink.producer.transaction_requests import END_TXN_V2, ConsumerGroupMetadata, TransactionalIdentity
from spark_kafka_sink.spark.validate import limit_of
from spark_kafka_sink.tools.connection_check import _describe_topic
from tests.fuzz.target import Target, picked
from tests.support.scripted_network import api_versions_response, response_frame
from tests.unit.login.scram_server import Refused, serve
from tests.unit.login.test_oauthbearer import configured
from tests.unit.network.response_bytes import Shape
from tests.unit.network.test_sasl_handshake import RANGES, authenticated, shaken, steps
from tests.unit.security.test_stores import SECRET

_PIECE: Final = 100


def _frames(data: bytes) -> None:
    buffer = FrameBuffer("b:9092", MAX_HANDSHAKE_FRAME_BYTES)
    for start in range(0, len(data), _PIECE):
        for frame in buffer.feed(data[start : start + _PIECE]):
            assert 4 <= len(frame) <= len(data)


# -- responses --


class _Cluster:
    """Brokers that give each call the same response; its error codes end the call as they do in ``Calls``."""

    def __init__(self, body: Any) -> None:
        self.calls = self
        self.snapshot = ClusterSnapshot()
        self.body = body

    def call(self, call: Call, deadline: float) -> Any:
        self.ended(call)
        return self.body

    def run(self, calls: Iterable[Call], deadline: float) -> None:
        for call in calls:
            try:
                self.ended(call)
                call.end = CallEnd(Action.SUCCEED, self.body)
            except KafkaError as error:
                call.end = CallEnd(Action.FAIL, error=error)

    def ended(self, call: Call) -> None:
        worst = max(call.codes(self.body), key=lambda each: action(call.api, each.code), default=None)
        if worst is None:
            raise NetworkError("no results")
        if action(call.api, worst.code) is not Action.SUCCEED:
            raise broker_error(worst.code, worst.where, worst.message, call.api)

    def node_ids(self, deadline: float) -> list[int]:
        return [0]

    def refresh(self, given: object) -> None:
        pass

    disconnect = topic_id = refresh

    def now(self) -> float:
        return 0.0


_VERSIONS: Final = [
    (api, version) for api, spoken in SUPPORTED_VERSIONS.items() for version in range(spoken.lowest, spoken.highest + 1)
]
_NAME: Final = "name0"
_PARTITION: Final = TopicPartition(_NAME, 0)
_IDENTITY: Final = TransactionalIdentity(_NAME, 1, 1, END_TXN_V2)
_GROUP: Final = ConsumerGroupMetadata("group")
_LEDGER: Final = ledger_topic.LedgerTopic(1, {**ledger_topic.SETTINGS, "min.insync.replicas": "1"})


def _metadata(cluster: Any) -> None:
    parse_metadata(cluster.body).leader(_PARTITION)
    for topic in cluster.body.topics:
        list(_describe_topic("topic", topic, (Operation.WRITE,), 0.0))


def _coordinator(cluster: Any) -> None:
    config = ProducerConfig.parse({"bootstrap.servers": "127.0.0.1:9092"})
    asked: list[Any] = []
    client: Any = SimpleNamespace(send=lambda node, request, now: asked.append(request))
    calls = Calls(client, Metadata(config, Random(0), client, SystemClock(), None), config, Random(0))
    for call in (requests.init_producer_id(_IDENTITY, 1000), requests.end_txn(_IDENTITY, True)):
        calls.start(call, None)
    calls._find_coordinators(Node(0, "b", 9092), [requests.transaction_key(_NAME)], 0.0)
    for request in asked:
        request.on_complete(Response(0, cluster.body.__version__, cluster.body, None, 1.0, 1.0))


def _limit(cluster: Any) -> None:
    for configs in describe_configs(cluster, TOPIC, [_NAME], [MAX_MESSAGE_BYTES], 0.0).values():
        limit = limit_of(configs)
        assert isinstance(limit, KafkaError) or 0 < limit < 1 << 63


def _ignored(end: CallEnd) -> None:
    pass


Read: TypeAlias = Callable[[Any], object]


def _transactional(call: Call) -> tuple[Read, ...]:
    identity = _IDENTITY.identity
    return lambda cluster: cluster.ended(call), lambda cluster: requests.identity_after(cluster.body, identity)


_READERS: Final[dict[str, tuple[Read, ...]]] = {
    "metadata": (_metadata, lambda cluster: closest_topics(topic_metadata(cluster, None, 0.0).topics, _NAME)),
    "api_versions": (lambda cluster: _api_versions("b:9092", cluster.body),),
    "sasl_handshake": (),  # the target ``handshakes`` reads these two
    "sasl_authenticate": (),
    "find_coordinator": (_coordinator,),
    "init_producer_id": (
        *_transactional(requests.init_producer_id(_IDENTITY, 1000)), *_transactional(requests.producer_id(_ignored)),
    ),
    "add_partitions_to_txn": _transactional(requests.add_partitions(_IDENTITY, [_PARTITION])),
    "add_offsets_to_txn": _transactional(requests.add_offsets(_IDENTITY, _GROUP, _ignored)),
    "txn_offset_commit": _transactional(requests.txn_offset_commit(_IDENTITY, {}, _GROUP, _ignored)),
    "end_txn": _transactional(requests.end_txn(_IDENTITY, True)),
    "describe_configs": (
        _limit, lambda cluster: ledger_topic.checked_configs(cluster, _NAME, _LEDGER, 0.0),
        lambda cluster: ledger_topic.wanted_ledger(cluster, 0.0),
        lambda cluster: ledger_topic.broker_limit_ms(cluster, 0.0),
    ),
    "create_topics": (lambda cluster: create_topic(cluster, NewTopic(_NAME), 0.0),),
    "delete_topics": (lambda cluster: delete_topic(cluster, _NAME, 0.0),),
    "list_offsets": (lambda cluster: PartitionLog(cluster, _PARTITION).earliest(0.0),),
    "fetch": (
        lambda cluster: PartitionLog(cluster, _PARTITION).fetch(0, 0.0, read_committed=False),
        lambda cluster: PartitionLog(cluster, _PARTITION).fetch(0, 0.0, read_committed=True),
    ),
    "produce": (lambda cluster: PartitionLog(cluster, _PARTITION).append(b"", None, 0.0),),
    "describe_cluster": (lambda cluster: operations(int(cluster.body.cluster_authorized_operations)),),
    "list_transactions": (lambda cluster: _list_by(cluster, 0, (), 0.0),),
    "describe_transactions": (
        lambda cluster: _describe(cluster, 0, [_NAME], 0.0), lambda cluster: _descriptions(cluster, 0, [_NAME], 0.0),
    ),
}  # fmt: skip
"""What reads the entity of an API, after its bytes have been read."""


def _response(data: bytes) -> None:
    """The first two bytes say which API and version."""
    api, version = picked(_VERSIONS, data, size=2)
    body = decode_response(data[2:], response_type(api, version))
    assert throttle_time_ms(body) is not None
    refused: list[KafkaError] = []
    for read in _READERS[api]:
        try:
            read(_Cluster(body))
        except KafkaError as error:
            refused.append(error)
    if refused:
        raise refused[0]


def _responses() -> Sequence[bytes]:
    shapes = [Shape(b"name", 2), Shape(b"name", 1), Shape(b"", 1, tags=2)]
    seeds = [
        number.to_bytes(2, "big") + shape.response(response_type(api, version))
        for number, (api, version) in enumerate(_VERSIONS)
        for shape in shapes
        if version in (SUPPORTED_VERSIONS[api].lowest, SUPPORTED_VERSIONS[api].highest)
    ]
    number = _VERSIONS.index(("describe_configs", SUPPORTED_VERSIONS["describe_configs"].highest))
    return [*seeds, number.to_bytes(2, "big") + _described_configs()]


def _described_configs() -> bytes:
    """A DescribeConfigs response, as a broker writes it, without a config's synonyms."""
    module = schema("describe_configs", SUPPORTED_VERSIONS["describe_configs"].highest).response
    values = {"max.message.bytes": "1048588", **ledger_topic.SETTINGS, "transaction.max.timeout.ms": "900000"}
    unused = {"read_only": False, "is_sensitive": False, "synonyms": (), "documentation": None}
    configs = tuple(
        module.DescribeConfigsResourceResult(name=name, value=value, **unused) for name, value in values.items()
    )
    result = module.DescribeConfigsResult(
        error_code=ErrorCode.none, error_message=None, resource_type=i8(2), resource_name=_NAME, configs=configs
    )
    entity = module.DescribeConfigsResponse(throttle_time=timedelta(0), results=(result,))
    return response_frame(0, entity)[8:]


_PRODUCE_VERSIONS: Final = range(SUPPORTED_VERSIONS["produce"].lowest, SUPPORTED_VERSIONS["produce"].highest + 1)
_TOPIC_ID: Final = (1).to_bytes(16, "big")
_TOPIC_IDS: Final = TopicIds({"t": _TOPIC_ID}, {_TOPIC_ID: "t"})


def _produce_response(data: bytes) -> None:
    """The first byte says which version."""
    version = picked(_PRODUCE_VERSIONS, data)
    ids = _TOPIC_IDS if version >= PRODUCE_FIRST_WITH_TOPIC_IDS else None
    read_response(version, memoryview(data)[1:], topic_ids=ids)


def _produce_responses() -> Sequence[bytes]:
    leaders = {("node_endpoints",): 1}
    shapes = [Shape(b"t", 1), Shape(b"t", 1, code=6, counts=leaders), Shape(b"t", 1, code=3, tags=1)]
    return [
        bytes([number]) + shape.response(response_type("produce", version))
        for number, version in enumerate(_PRODUCE_VERSIONS)
        for shape in shapes
    ]


# -- logins --

_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256")
_MOST_STEPS: Final = 20


def _converse(mechanism: str, replaced: int | None, body: bytes) -> list[bytes]:
    """ApiVersions and SASL with an honest broker but for one response. Returns its responses."""
    handshake, server = steps(mechanism, authenticate), serve("sha256", {"alice": "hunter2"})
    next(server)
    request = next(handshake)
    responses: list[bytes] = []
    while len(responses) < _MOST_STEPS:
        honest = _honest(request, server, mechanism)
        responses.append(body if len(responses) == replaced else honest)
        try:
            request = handshake.send(memoryview(responses[-1]))
        except StopIteration:
            return responses
    raise AssertionError("the handshake does not end")


def _honest(request: Any, server: Any, mechanism: str) -> bytes:
    """The response's body, from the bytes after the correlation id."""
    api, version = request.__api_key__, request.__version__
    if api == API_KEYS["api_versions"]:
        asked: Any = SimpleNamespace(module=schema("api_versions", version), version=version)
        return response_frame(0, api_versions_response(asked, RANGES))[8:]
    if api == API_KEYS["sasl_handshake"]:
        return bytes(shaken(mechanisms=(mechanism,)))
    if mechanism == "PLAIN":
        return bytes(authenticated(lifetime_ms=1000))
    try:
        return bytes(authenticated(server.send(request.auth_bytes)))
    except (AssertionError, Refused, StopIteration):
        return bytes(authenticated(code=ErrorCode.sasl_authentication_failed))


def _handshake(data: bytes) -> None:
    """The first two bytes say which mechanism, and which of the broker's responses is replaced."""
    _converse(picked(_MECHANISMS, data), picked(range(5), data[1:]), data[2:])


def _handshakes() -> Sequence[bytes]:
    return [
        bytes([mechanism, number]) + body
        for mechanism, name in enumerate(_MECHANISMS)
        for number, body in enumerate(_converse(name, None, b""))
    ]


_ALICE: Final = Credentials("alice", SECRET)


def log_in(first: bytes, final: bytes) -> None:
    """The client's part of SCRAM, with the server's two messages."""
    exchange = scram_exchange("sha256", _ALICE, "nonce")
    next(exchange)
    exchange.send(first)
    try:
        exchange.send(final)
    except StopIteration:
        return
    raise AssertionError("SCRAM goes on after the server's last message")


@cache
def scram_messages() -> tuple[bytes, bytes]:
    """server-first and server-final of an honest server."""
    server = serve("sha256", {"alice": SECRET})
    next(server)
    exchange = scram_exchange("sha256", _ALICE, "nonce")
    first = server.send(next(exchange))
    return first, server.send(exchange.send(first))


def _scram(data: bytes) -> None:
    """A line end is between the messages."""
    first, _, final = data.partition(b"\n")
    log_in(first, final)


def _oauth_challenge(data: bytes) -> None:
    """The broker's response to a token: empty if it accepts the token, else why not."""
    step: LoginStep[Token] = LoginStep("a token")
    step.succeed(Token("hunter2", 1e15, None))
    source: Any = None
    mechanism = OAuthBearer(configured("hunter2"), source)
    login: Any = SimpleNamespace(token=lambda: step)
    mechanism._login = login
    exchange = mechanism.exchange("b")
    next(exchange)
    assert b"hunter2" in exchange.send(b"")
    try:
        assert exchange.send(data) == b"\1"
        exchange.send(b"")
    except SaslAuthenticationError as error:
        if str(error).isprintable():
            raise
        raise AssertionError("a broker's text can control a terminal") from error
    except StopIteration:
        return
    raise AssertionError("OAUTHBEARER goes on after the broker's reason")


def _kerberos_offer(data: bytes) -> None:
    """The layers that a broker offers, as Kerberos has unwrapped them."""
    assert _without_layer(data, "orders@REALM") == b"\1\0\0\0orders@REALM"


_CONFIGS: Final = (*_LEDGER.settings, "max.message.bytes", "transaction.max.timeout.ms")
_FRAMES: Final = b"\0\0\0\4\0\0\0\7" + b"\0\0\1\x30\0\0\0\1" + bytes(300) + b"\0\0\0\6\0\0\0\2ab"

TARGETS: Final = (
    Target("frames", (_frames,), lambda: [_FRAMES], (WrongProtocolError,), (b"HTTP", b"\x15\x03")),
    Target("responses", (_response,), _responses, (KafkaError,), (b"name0", *map(str.encode, _CONFIGS))),
    Target("produce-responses", (_produce_response,), _produce_responses, (NetworkError,)),
    Target("handshakes", (_handshake,), _handshakes, (KafkaError,), secret="hunter2"),
    Target(
        "scram", (_scram,), lambda: [b"\n".join(scram_messages()), b"r=nonce1,s=c2FsdA==,i=4096\ne=other-error"],
        (SaslAuthenticationError,), (b"r=nonce", b"s=", b"i=4096", b"v=", b"e=", b"m=", b",", b"\n"), secret=SECRET,
    ),
    Target(
        "oauth-challenges", (_oauth_challenge,),
        lambda: ["", '{"status":"invalid_token","scope":"kafka","openid-configuration":"https://idp"}'],
        (SaslAuthenticationError,), secret="hunter2",
    ),
    Target(
        "kerberos-offers", (_kerberos_offer,), lambda: [b"\7\0\x10\0", b"\1\0\0\0"], (SaslAuthenticationError,)
    ),
)  # fmt: skip
