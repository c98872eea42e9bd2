"""Every connection of an exactly-once write carries a client id: a broker that cannot read an empty one closed those of
the ledger and of the commit, while plain writes worked.
"""

from __future__ import annotations

from tests.unit.exactly_once.runs import Query, committed
from tests.unit.exactly_once.test_protocol import EACH_ONCE, ROWS


def client_ids(broker, query):
    """By all requests of a batch that is aborted, the same batch again, and its replay."""
    query.abort(query.tasks(query.plan(), 0, ROWS))
    query.run(0, ROWS)
    query.run(0, ROWS)
    assert committed(broker) == EACH_ONCE
    apis = {seen.api for seen in broker.requests}
    assert {"ApiVersions", "Metadata", "FindCoordinator", "InitProducerId", "EndTxn", "Fetch", "Produce"} <= apis
    return {seen.client_id for seen in broker.requests}


def test_a_broker_that_cannot_read_an_empty_client_id_gets_a_generated_one(broker, query):
    ids = client_ids(broker, query)
    assert all(each.startswith(("producer-", "adminclient-")) for each in ids), ids


def test_the_client_id_of_the_write_is_on_each_connection(broker):
    assert client_ids(broker, Query(broker.bootstrap_servers, options={"client.id": "nightly"})) == {"nightly"}
