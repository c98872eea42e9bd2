"""Refuses a write whose tasks have the transactional ids of another write, whose sweep would abort its transactions.

A job with txnAppId and transactionalIdPrefix is one whose ids do not begin with its name. With ``orders`` and
``nightly`` they begin with ``orders-nightly``, as do those of a query with transactionalIdPrefix ``orders-nightly``.
The two have drivers of their own, so neither fences the other. Under transactions v1 a task does not notice that its
transaction was aborted in mid-write, and its next rows begin another one.
"""

from __future__ import annotations

from spark_kafka_sink.exactly_once.session import Session
from spark_kafka_sink.exactly_once.sweep import is_known
from spark_kafka_sink.exactly_once.values import driver_id


def shared_ids(session: Session, deadline: float) -> str:
    """A clause that names the other write, or "". Planning asks before it aborts anything; commit asks again before the
    decision, because the other one may have started since. A decided batch is committed whatever the answer is: that
    names its own transactions. Brokers before Kafka 3.0 cannot tell.
    """
    settings = session.settings
    other = driver_id(settings.prefix)
    if settings.prefix == settings.name or not is_known(session.cluster, other, deadline):
        return ""
    return (
        f"its tasks' transactional ids begin with {settings.prefix}-, and so do those of a query that has "
        f"transactionalIdPrefix {settings.prefix} (the brokers know its driver's id, {other}). Each would end the "
        "other's transactions: give one of them another transactionalIdPrefix. If that query no longer exists, the "
        "brokers forget the id transactional.id.expiration.ms (7 days) after its last use"
    )
