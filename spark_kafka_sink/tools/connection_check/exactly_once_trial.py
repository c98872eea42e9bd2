"""Goes through what exactly-once needs of the brokers, right by right and API by API, with a ledger and a transactional
id that are thrown away. It writes to the topic that it creates, and deletes it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Generator, Iterator
from typing import Final
from uuid import uuid4

from spark_kafka_sink.common.clock import Clock
from spark_kafka_sink.common.model import NO_IDENTITY, TopicPartition
from spark_kafka_sink.errors import BrokerError, KafkaError
from spark_kafka_sink.exactly_once.cluster import Cluster
from spark_kafka_sink.exactly_once.errors import ExactlyOnceError
from spark_kafka_sink.exactly_once.ledger_format import barrier_record, encode_batch
from spark_kafka_sink.exactly_once.ledger_topic import (
    PARTITIONS,
    WantedLedger,
    by_hand,
    checked_configs,
    create_ledger,
    fewest_replicas,
    wanted_ledger,
)
from spark_kafka_sink.exactly_once.partition_log import PartitionLog
from spark_kafka_sink.exactly_once.requirements import TRANSACTION_APIS, missing_transaction_apis
from spark_kafka_sink.exactly_once.sweep import CannotListError, describe_open, list_matching
from spark_kafka_sink.exactly_once.values import DRIVER_TIMEOUT_MS, OpenTransaction, driver_id
from spark_kafka_sink.network.api_versions import camel_case
from spark_kafka_sink.network.error_table import FORBIDDEN
from spark_kafka_sink.network.messages import API_KEYS
from spark_kafka_sink.network.topics import why_not_created
from spark_kafka_sink.producer.transactions.committer import Committer, EndVerdict
from spark_kafka_sink.producer.transactions.values import END_TXN_V1, END_TXN_V2, TransactionalIdentity
from spark_kafka_sink.records.batch import TRANSACTIONAL, BatchHeader
from spark_kafka_sink.tools.connection_check.check import CheckRequest
from spark_kafka_sink.tools.connection_check.findings import Finding, Outcome
from spark_kafka_sink.tools.connection_check.throw_away import throw_away_name, thrown_away

_log = logging.getLogger("spark_kafka_sink.check")

DEFAULT_PREFIX: Final = "spark-kafka-sink"
_SUBJECT: Final = "exactly-once"
_ID_RIGHTS: Final = "WRITE on the transactional id"
_TOPIC_RIGHTS: Final = "WRITE on the topic"
_SWEEP: Final = "sweep"
DELETE: Final = "delete"


def try_exactly_once(request: CheckRequest, clock: Clock, suffix: str = "") -> Generator[Finding, None, None]:
    """The findings, as they come; the first failure ends them. Each step takes at most max.block.ms.

    The names are those of ``request`` with ``suffix`` (default: a random one) appended, so prefixed ACLs for the real
    names also cover them. Everything created is removed, also after an error or when the iterator is closed.
    """
    trial = _Trial(request, clock, suffix or f"check-{uuid4().hex[:8]}")
    try:
        yield from trial.findings()
    finally:
        trial.close()


class _Trial:
    def __init__(self, request: CheckRequest, clock: Clock, suffix: str) -> None:
        self._ledger = request.ledger_topic
        self._topic = throw_away_name(self._ledger, suffix)
        self._id = driver_id(f"{request.transactional_id_prefix or DEFAULT_PREFIX}-{suffix}")
        self._timeout_ms = request.config.max_block_ms
        self._clock = clock
        self._cluster = Cluster(request.config, clock)
        self._committer = Committer(self._cluster, DRIVER_TIMEOUT_MS)
        self._log = PartitionLog(self._cluster, TopicPartition(self._topic, 0))
        self._step = ""
        self._began = clock.now()
        self._may_exist = False
        self._open: TransactionalIdentity | None = None

    def findings(self) -> Iterator[Finding]:
        try:
            yield from self._steps()
        except KafkaError as error:
            yield self._finding(Outcome.FAILED, str(error))
        if self._open is not None:
            self._abort_open()
        if self._may_exist:
            yield self._delete()

    def close(self) -> None:
        """Removes what is left, and closes the connections. Only warns of what cannot be removed."""
        try:
            if self._open is not None:
                self._abort_open()
            if self._may_exist and (left := self._delete()).outcome is not Outcome.OK:
                _log.warning("%s", left.text)
        finally:
            self._cluster.close()

    def _steps(self) -> Iterator[Finding]:
        yield from self._versions()
        wanted = yield from self._create()
        yield self._settings(wanted)
        yield from self._write_and_read()
        identity = yield from self._initialise()
        identity, sequence = yield from self._commit(identity)
        yield from self._abort(identity, sequence)

    def _versions(self) -> Iterator[Finding]:
        self._begin("versions")
        self._cluster.await_brokers(self._deadline())
        versions = self._cluster.any_api_versions()
        if versions is None:
            raise KafkaError("the connection to the broker was lost")
        if missing := list(missing_transaction_apis(versions)):
            raise KafkaError(
                f"APIs of transactions are missing: {'; '.join(missing)}. Exactly-once is not possible here"
            )
        texts = [f"{camel_case(api)} v{versions.pick(API_KEYS[api], *ours)}" for api, ours in TRANSACTION_APIS]
        yield self._finding(Outcome.OK, ", ".join(texts))

    # The ledger

    def _create(self) -> Generator[Finding, None, WantedLedger]:
        self._begin("create")
        wanted = wanted_ledger(self._cluster, self._deadline())
        self._may_exist = True
        try:
            made = create_ledger(self._cluster, self._topic, wanted, self._deadline())
        except ExactlyOnceError as error:
            if not isinstance(refusal := error.__cause__, BrokerError) or refusal.code not in FORBIDDEN:
                raise  # the topic may have been created in spite of the error
            self._may_exist = False
            raise ExactlyOnceError(
                f"{self._topic}, which this check would throw away, cannot be created: {why_not_created(refusal)}. "
                f"Without that right, create {self._ledger} by hand ({by_hand(wanted)}), and check it with "
                "`spark-kafka-sink check --transactional-id-prefix`, without --exactly-once."
            ) from refusal
        text = f"CreateTopics of {self._topic} (CREATE on the topic or the cluster), {2 * PARTITIONS} partitions, "
        if made.refusal:
            replicas = fewest_replicas(self._cluster, self._topic, self._deadline())
            text += made.told(wanted, self._configs(wanted), replicas)
        else:
            text += "with all settings"
        yield self._finding(Outcome.OK, text)
        return wanted

    def _settings(self, wanted: WantedLedger) -> Finding:
        self._begin("settings")
        configs = self._configs(wanted)
        told = ", ".join(f"{name}={configs[name]}" for name in wanted.settings if configs.get(name) is not None)
        unknown = [name for name in wanted.settings if configs.get(name) is None]
        text = f"DescribeConfigs (DESCRIBE_CONFIGS on the topic): {told}"
        return self._finding(Outcome.OK, text + (f"; not told: {', '.join(unknown)}" if unknown else ""))

    def _configs(self, wanted: WantedLedger) -> dict[str, str | None]:
        return checked_configs(self._cluster, self._topic, wanted, self._deadline())

    def _write_and_read(self) -> Iterator[Finding]:
        self._begin("write")
        now = self._clock.epoch_ms()
        header = BatchHeader(attributes=0, record_count=1, base_timestamp=now, max_timestamp=now)
        end = self._log.append(encode_batch(header, [barrier_record(self._id)]), None, self._deadline()) + 1
        yield self._finding(Outcome.OK, f"Produce ({_TOPIC_RIGHTS})")
        self._begin("read")
        self._records_before(end, read_committed=False)
        yield self._finding(Outcome.OK, "ListOffsets, Fetch (READ on the topic)")

    def _records_before(self, end: int, *, read_committed: bool) -> int:
        """How many data batches there are up to offset ``end``, which is waited for."""
        batches = self._log.batches_before(end, self._deadline(), read_committed=read_committed)
        return sum(not batch.header.is_control for batch in batches)

    # Transactions

    def _initialise(self) -> Generator[Finding, None, TransactionalIdentity]:
        self._begin("initialise")
        unknown = TransactionalIdentity(self._id, *NO_IDENTITY, END_TXN_V1)
        identity = self._committer.init_producer_id(unknown, self._timeout_ms)
        version = 2 if identity.end_txn_version >= END_TXN_V2 else 1
        yield self._finding(Outcome.OK, f"InitProducerId of {self._id} ({_ID_RIGHTS}), transactions version {version}")
        return identity

    def _append(self, identity: TransactionalIdentity, sequence: int) -> Generator[Finding, None, int]:
        """A record in a transaction of the id. Returns the offset behind it."""
        self._begin("add")
        self._open = identity
        if identity.end_txn_version < END_TXN_V2:
            self._committer.add_partitions(identity, [self._log.partition], self._timeout_ms)
            yield self._finding(Outcome.OK, f"AddPartitionsToTxn ({_ID_RIGHTS}, {_TOPIC_RIGHTS})")
        else:
            yield self._finding(Outcome.OK, "AddPartitionsToTxn is not needed: Produce does it")
        self._begin("produce")
        now = self._clock.epoch_ms()
        header = BatchHeader(
            attributes=TRANSACTIONAL, record_count=1, base_timestamp=now, max_timestamp=now,
            producer_id=identity.producer_id, producer_epoch=identity.epoch, base_sequence=sequence,
        )  # fmt: skip
        offset = self._log.append(encode_batch(header, [barrier_record(self._id)]), identity, self._deadline())
        yield self._finding(Outcome.OK, f"Produce in a transaction ({_ID_RIGHTS}, {_TOPIC_RIGHTS})")
        return offset + 1

    def _commit(self, identity: TransactionalIdentity) -> Generator[Finding, None, tuple[TransactionalIdentity, int]]:
        """Returns the identity of the next transaction and its first sequence."""
        end = yield from self._append(identity, 0)
        self._begin("commit")
        after = self._end(commit=True)
        if (count := self._records_before(end, read_committed=True)) != 2:
            raise KafkaError(f"a read_committed reader sees {count} batches of 2 after EndTxn has committed")
        yield self._finding(Outcome.OK, f"EndTxn ({_ID_RIGHTS}); read_committed readers see the record")
        return after, 0 if after.epoch != identity.epoch else 1

    def _abort(self, identity: TransactionalIdentity, sequence: int) -> Iterator[Finding]:
        end = yield from self._append(identity, sequence)
        self._begin(_SWEEP)
        yield self._finding(Outcome.OK, self._sweep_text())
        self._begin("abort")
        self._end(commit=False)
        if (count := self._records_before(end, read_committed=True)) != 2:
            raise KafkaError(f"a read_committed reader sees {count} batches of 2 after EndTxn has aborted")
        yield self._finding(Outcome.OK, f"EndTxn ({_ID_RIGHTS}); read_committed readers do not see the record")

    def _end(self, *, commit: bool) -> TransactionalIdentity:
        assert self._open is not None
        (outcome,) = self._committer.end([(self._open, commit)], self._timeout_ms)
        if outcome.verdict is not (EndVerdict.COMMITTED if commit else EndVerdict.ABORTED) or outcome.identity is None:
            raise outcome.error or KafkaError(f"EndTxn of {self._id}: {outcome.verdict.value}")
        self._open = None
        return outcome.identity

    def _sweep_text(self) -> str:
        """How transactions of dead runs would be found, while one is open."""
        try:
            if self._shows(list_matching(self._cluster, re.compile(re.escape(self._id)), self._deadline())):
                return "ListTransactions and DescribeTransactions find the open transaction (DESCRIBE on its id)"
            reason = "ListTransactions does not show the open transaction"
        except CannotListError as error:
            reason = str(error)
        try:
            if self._shows(describe_open(self._cluster, [self._id], self._deadline())):
                return f"{reason}: those of dead runs are looked up by the ids of tasks (DescribeTransactions)"
            shown = "DescribeTransactions does not show it either"
        except KafkaError as error:
            shown = str(error)
        return (
            f"{reason}, and {shown}: those of dead runs are ended by the brokers after kafka.transaction.timeout.ms. "
            "Until then read_committed readers wait; no row is lost or written twice"
        )

    def _shows(self, found: list[OpenTransaction]) -> bool:
        return self._open is not None and any(each.key == self._open.key for each in found)

    # Removal

    def _abort_open(self) -> None:
        """Only shortens the time until the brokers end the transaction (``DRIVER_TIMEOUT_MS``)."""
        assert self._open is not None
        opened, self._open = self._open, None
        self._committer.end([(opened, False)], self._timeout_ms)

    def _delete(self) -> Finding:
        self._begin(DELETE)
        self._may_exist = False
        return self._finding(*thrown_away(self._cluster, self._topic, self._deadline()))

    def _begin(self, step: str) -> None:
        self._step, self._began = step, self._clock.now()

    def _deadline(self) -> float:
        return self._clock.now() + self._timeout_ms

    def _finding(self, outcome: Outcome, text: str) -> Finding:
        return Finding(_SUBJECT, self._step, outcome, text, self._clock.now() - self._began)
