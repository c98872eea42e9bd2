"""Which sessions a process keeps."""

import os
from dataclasses import replace

from spark_kafka_sink.exactly_once.session import session_for
from tests.support.waiting import DEADLINE_S, eventually

MANY = 30


def open_files():
    return len(os.listdir("/dev/fd"))


def use(settings):
    """The session, when it has a connection."""
    with session_for(settings) as session:
        session.cluster.node_ids(session.deadline(1_000 * DEADLINE_S))
        return session


def test_batch_jobs_with_names_of_their_own_do_not_keep_sessions_without_bound(query):
    settings = query.settings
    for number in range(MANY):
        use(replace(settings, name=f"batch-{number}"))
    many = open_files()
    for number in range(MANY, 3 * MANY):
        use(replace(settings, name=f"batch-{number}"))
    eventually(lambda: open_files() <= many)  # the broker in this process closes its ends a moment later


def test_a_session_in_use_is_kept_among_many_others(query):
    settings = query.settings
    first = use(settings)
    for number in range(MANY):
        use(replace(settings, name=f"batch-{number}"))
        assert use(settings) is first
