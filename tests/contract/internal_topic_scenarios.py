"""Topics of the brokers' own, and their description in pages: what Kafka 4.1.1 and TestBroker must both answer."""

from typing import Any

from spark_kafka_sink.testing.broker.state.config import as_text
from spark_kafka_sink.testing.broker.state.internal_topics import INTERNAL_TOPICS
from tests.contract.plain_client import PlainClient, batch
from tests.contract.scenario import Scenario, Steps, name, new_topic
from tests.support.waiting import eventually

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
SET_ON_TOPIC = 1
DEPENDS_ON_NODES = "min.insync.replicas"
LONGEST_PAGE = 2000


def internal_topics(client: PlainClient) -> Steps:
    make_internal_topics(client)
    good, topic, transactional_id = batch([b"x"]), new_topic(client), name("id")
    identity = client.init_producer_id(transactional_id)

    def produce(to: str, index: int = 0, client: PlainClient = client) -> str:
        data = [{"name": to, "partition_data": [{"index": index, "records": good}]}]
        answer = client.ask("Produce", 9, acks=-1, timeout=1000, topic_data=data)
        return str(answer.responses[0].partition_responses[0].error_code.name)

    def create(topic: str) -> tuple[str, str | None]:
        asked = {"name": topic, "num_partitions": 1, "replication_factor": 1, "configs": []}
        answer = client.ask("CreateTopics", 5, topics=[asked], timeout=10_000).topics[0]
        return answer.error_code.name, answer.error_message

    with PlainClient(client.address, "__admin_client") as admin:
        keyless = produce(OFFSETS, client=admin)
    described = client.ask("Metadata", 9, topics=[{"name": each} for each in (OFFSETS, TRANSACTIONS, topic)]).topics
    return [
        ("Metadata", {each.name: each.is_internal for each in described}, told(topic)),
        ("settings", [own_settings(client, each) for each in (OFFSETS, TRANSACTIONS)], wanted_settings()),
        ("a client writes", [produce(OFFSETS), produce(TRANSACTIONS)], ["invalid_topic_exception"] * 2),
        ("to a partition that is not there", produce(OFFSETS, 999), "unknown_topic_or_partition"),
        ("an admin client may, with keys", keyless, "invalid_record"),
        (
            "in a transaction",
            add_partitions(client, transactional_id, identity, (topic, TRANSACTIONS)),
            {topic: "operation_not_attempted", TRANSACTIONS: "topic_authorization_failed"},
        ),
        (
            "created by a client",
            create("__cluster_metadata"),
            ("invalid_request", "Creation of internal topic __cluster_metadata is prohibited."),
        ),
        ("created again", create(OFFSETS)[0], "topic_already_exists"),
    ]


def make_internal_topics(client: PlainClient) -> None:
    for key_type in (0, 1):
        client.ask_patiently("FindCoordinator", 3, key=name("key"), key_type=key_type)
    for each in (OFFSETS, TRANSACTIONS):
        eventually(lambda each=each: own_settings(client, each))  # type: ignore[misc]


def told(topic: str) -> dict[str, bool]:
    return {OFFSETS: True, TRANSACTIONS: True, topic: False}


def own_settings(client: PlainClient, topic: str) -> dict[str, str]:
    asked = [{"resource_type": 2, "resource_name": topic, "configuration_keys": None}]
    (described,) = client.ask("DescribeConfigs", 4, resources=asked).results
    own = {each.name: each.value for each in described.configs if each.config_source == SET_ON_TOPIC}
    return {key: own[key] for key in sorted(own) if key != DEPENDS_ON_NODES}


def wanted_settings() -> list[dict[str, str]]:
    every = [INTERNAL_TOPICS[each].configs for each in (OFFSETS, TRANSACTIONS)]
    return [{key: as_text(each[key]) for key in sorted(each) if key != DEPENDS_ON_NODES} for each in every]


def add_partitions(
    client: PlainClient, transactional_id: str, identity: tuple[int, int], topics: tuple[str, ...]
) -> dict[str, str]:
    answer = client.ask(
        "AddPartitionsToTxn",
        3,
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=identity[0],
        v3_and_below_producer_epoch=identity[1],
        v3_and_below_topics=[{"name": each, "partitions": [0]} for each in topics],
    )
    rows = answer.results_by_topic_v3_and_below
    return {row.name: each.partition_error_code.name for row in rows for each in row.results_by_partition}


def topics_in_pages(client: PlainClient) -> Steps:
    make_internal_topics(client)
    topic = new_topic(client)
    extended = [{"name": topic, "count": 5, "assignments": None}]
    client.ask("CreatePartitions", 3, topics=extended, timeout=10_000)

    def page(*topics: str, limit: int = LONGEST_PAGE, cursor: tuple[str, int] | None = None) -> Any:
        at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
        asked = [{"name": each} for each in topics]
        return client.ask("DescribeTopicPartitions", 0, topics=asked, response_partition_limit=limit, cursor=at)

    def told(answer: Any) -> tuple[object, object]:
        rows = [
            (each.name, each.error_code.name, [part.partition_index for part in each.partitions])
            for each in answer.topics
        ]
        following = answer.next_cursor
        return rows, following and (following.topic_name, following.partition_index)

    eventually(lambda: len(page(topic).topics[0].partitions) == 5)
    every = page()
    (partition, *_) = page(topic).topics[0].partitions
    operations = {each.topic_authorized_operations for each in page(topic, "zz").topics}
    return [
        (
            "internal",
            {each.name: each.is_internal for each in page(OFFSETS, topic).topics},
            {OFFSETS: True, topic: False},
        ),
        ("a partition", (partition.leader_id, len(partition.replica_nodes), len(partition.isr_nodes)), (1, 1, 1)),
        ("rights", operations, {0b110111111000}),
        ("all topics", {OFFSETS, TRANSACTIONS, topic} <= {each.name for each in every.topics}, True),
        ("in order", [each.name for each in every.topics], sorted(each.name for each in every.topics)),
        ("as many as asked for", told(page(topic, limit=2)), ([(topic, "none", [0, 1])], (topic, 2))),
        ("the next page", told(page(topic, limit=2, cursor=(topic, 2))), ([(topic, "none", [2, 3])], (topic, 4))),
        ("the last page", told(page(topic, limit=2, cursor=(topic, 4))), ([(topic, "none", [4])], None)),
        ("at least one", told(page(topic, limit=-7)), ([(topic, "none", [0])], (topic, 1))),
        (
            "the next topic",
            told(page(topic, "zz", limit=5)),
            ([(topic, "none", [0, 1, 2, 3, 4])], ("zz", 0)),
        ),
        ("past a topic", told(page(topic, "zz", cursor=("zz", 0))), ([("zz", "unknown_topic_or_partition", [])], None)),
        ("from a topic not asked for", told(page("zz", cursor=("z", 0))), ([("zz", "invalid_request", [])], None)),
        ("an illegal name", told(page("a b")), ([("a b", "invalid_topic_exception", [])], None)),
        ("before the first", told(page(topic, cursor=(topic, -1))), ([(topic, "invalid_request", [])], None)),
    ]


INTERNAL_TOPIC_SCENARIOS: tuple[Scenario, ...] = (internal_topics, topics_in_pages)
