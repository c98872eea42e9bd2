import pytest

from spark_kafka_sink.schemas.registry.schema import Side, SubjectNameStrategy


@pytest.mark.parametrize(
    ("strategy", "key", "value"),
    [
        (SubjectNameStrategy.TOPIC, "orders-key", "orders-value"),
        (SubjectNameStrategy.RECORD, "shop.Order", "shop.Order"),
        (SubjectNameStrategy.TOPIC_RECORD, "orders-shop.Order", "orders-shop.Order"),
    ],
)
def test_subjects_are_those_of_javas_strategies(strategy, key, value):
    assert [strategy.subject("orders", side, "shop.Order") for side in Side] == [key, value]


def test_a_schema_without_a_name_has_a_subject_by_topic_only():
    assert SubjectNameStrategy.TOPIC.subject("orders", Side.VALUE, "") == "orders-value"
    assert [each.needs_record for each in SubjectNameStrategy] == [False, True, True]
    assert [each.needs_topic for each in SubjectNameStrategy] == [True, False, True]
