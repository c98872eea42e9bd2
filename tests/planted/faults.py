"""The faults: past incidents and slips that are easy to make, each with the test that finds it."""

from __future__ import annotations

from typing import NamedTuple


class Fault(NamedTuple):
    """``was`` stands once in ``file``, and ``becomes`` takes its place. ``test``: fails then, and only then."""

    name: str
    file: str
    was: str
    becomes: str
    test: str


FAULTS = (
    # The engine
    Fault("a claimed batch is closed although it still lingers", "producer/accumulator/accumulator.py",
          "head.claimed and self.retry_at <= now and self._may_go(head, send_all)", "head.claimed",
          "tests/unit/accumulator/test_accumulator.py"),
    Fault("publishing a batch that has come due wakes nobody", "producer/accumulator/accumulator.py",
          "batch.payload is not None or batch.due or len(queue.batches) > 1", "batch.payload is not None",
          "tests/unit/accumulator/test_accumulator.py"),
    Fault("a batch that is given back keeps its rows' size", "producer/accumulator/accumulator.py",
          "            batch.count, batch.size = count, size\n", "            batch.count = count\n",
          "tests/unit/accumulator tests/properties/test_accumulator_machine.py"),
    Fault("batches expire one linger late", "producer/accumulator/accumulator.py",
          "head.created + timeout <= now:\n                    expired",
          "head.created + timeout < now:\n                    expired",
          "tests/unit/accumulator/test_accumulator.py"),
    Fault("the memory of an expired batch is reused while its request is in flight (KAFKA-19012)",
          "producer/accumulator/producer_batch.py", "        self.payload = payload\n",
          "        pool = globals().setdefault('POOL', [])\n"
          "        free = next((each for each in pool if each[0].done), None)\n"
          "        if free is None:\n"
          "            pool.append(free := [self, bytearray(1 << 20)])\n"
          "        size, free[0] = sum(map(len, payload)), self\n"
          "        free[1][:size] = b''.join(payload)\n"
          "        self.payload = [memoryview(free[1])[:size]]\n",
          "tests/unit/sender/test_buffers_in_flight.py"),
    Fault("the next sequence does not wrap", "producer/transactions/sequences.py",
          "_SEQUENCE_MASK = 0x7FFFFFFF", "_SEQUENCE_MASK = 0xFFFFFFFF",
          "tests/unit/sender tests/properties/test_sequences_machine.py"),
    Fault("a partition's first batch is not sent alone", "producer/transactions/sequences.py",
          "state.alone = self.idempotent and not state.known", "state.alone = False",
          "tests/unit/sender tests/properties/test_sequences_machine.py"),
    Fault("an address that was lost comes first again", "network/name_lookup.py",
          "        self._lost = self._taken\n", "        self._lost = None\n",
          "tests/unit/network"),
    Fault("an interrupt out of a with block delivers what was buffered", "producer/producer.py",
          "isinstance(error, KeyboardInterrupt) and not self._engine.is_inherited", "False",
          "tests/unit/producer"),
    Fault("an unknown error code is an exception", "network/error_table.py",
          "    return ErrorCode.unknown_server_error\n\n\ndef known", "    raise ValueError(number)\n\n\ndef known",
          "tests/unit/network"),
    Fault("all records of a buffer have the time of its first", "producer/append/pending.py",
          "        if self._epoch_s() >= pending.next_ms_at:\n", "        if not index:\n",
          "tests/unit/append tests/unit/producer"),
    Fault("backoffs are 0 where an option says so", "common/backoff.py",
          "LEAST_MS: Final = 1.0", "LEAST_MS: Final = 1e-9", "tests/unit/test_backoff.py"),
    Fault("murmur2 has another seed", "producer/partitioning/key_hashes.py", "0x9747B28C", "0x9747B28D",
          "tests/unit/partitioning tests/properties/test_key_hash_properties.py"),
    Fault("varints lose the last bit of a byte", "records/sizes.py",
          "encoded.append(value & 0x7F | 0x80)", "encoded.append(value & 0x3F | 0x80)",
          "tests/unit/records"),
    Fault("a topic's largest record is that of the whole append", "producer/append/rows.py",
          "largest = int(sizes.max()) if len(known.names) == 1 else sizes", "largest = int(sizes.max())",
          "tests/unit/append/test_topics.py"),
    Fault("records that the application names a partition for go elsewhere", "producer/append/rows.py",
          "    partitions[missing] = NOT_GIVEN\n    return partitions.astype(np.int32)",
          "    partitions[:] = NOT_GIVEN\n    return partitions.astype(np.int32)",
          "tests/unit/append tests/unit/producer"),
    # Exactly-once and the sink
    Fault("rows with other headers have the same checksum", "exactly_once/checksum.py",
          ", (columns.headers, _BY_HEADERS))", ")", "tests/unit/exactly_once/test_checksum.py"),
    Fault("an older batch is written again", "exactly_once/decisions.py",
          "    if write_id.number < entry.number:\n        return Comparison.OLDER\n", "",
          "tests/unit/exactly_once/test_decisions.py"),
    Fault("a batch with lost rows counts as committed", "exactly_once/decisions.py",
          "    return Comparison.SAME_PARTLY_LOST if lost else Comparison.SAME", "    return Comparison.SAME",
          "tests/unit/exactly_once/test_decisions.py"),
    Fault("a topic that was created again during the task is not noticed", "exactly_once/task.py",
          "        if recreated:\n", "        if False:\n", "tests/unit/exactly_once"),
    Fault("a failing task leaves its transaction open", "exactly_once/task.py",
          "self._aborts = self._init(engine).end_txn_version >= END_TXN_V2", "self._init(engine)",
          "tests/unit/exactly_once"),
    Fault("a retried task without rows leaves the earlier attempt open", "exactly_once/task.py",
          "elif self._replaces_attempt and self.writes:", "elif False:", "tests/unit/exactly_once"),
    Fault("rows that only get dead letters are left out of the checksum", "spark/dead_letters/writer.py",
          "        self._end.count(topics, columns, partitions)\n", "", "tests/unit/spark"),
    Fault("a task reports before its rows are acknowledged", "spark/write.py",
          "                self._engine.flush()\n                self.receipt.wait(", "                str(",
          "tests/unit/spark/test_write.py"),
    Fault("a row's number in an error forgets the batches before", "spark/pipeline.py",
          "            first_row += batch.num_rows\n", "", "tests/unit/spark"),
    # Hostile peers, secrets, bytes
    Fault("an encoded response is decoded", "network/login/http.py",
          "        raise HttpExchangeError(HttpFault.ENCODED)\n", "        pass\n",
          "tests/unit/schema_registry/test_client.py tests/unit/login"),
    Fault("frames of 100 MiB before the login", "network/connection.py",
          "MAX_HANDSHAKE_FRAME_BYTES = 1024 * 1024", "MAX_HANDSHAKE_FRAME_BYTES = MAX_FRAME_BYTES",
          "tests/unit/network"),
    Fault("line ends of peers reach the log", "common/foreign_text.py",
          "char if char.isprintable() else ascii(char)[1:-1]", "char", "tests/unit/test_foreign_text.py"),
    Fault("the driver connects for every micro-batch", "spark/driver_check.py",
          "        check.valid_until = math.inf\n", "", "tests/unit/spark/test_driver_check.py"),
    Fault("a token that only executors can fetch is a refused login", "spark/driver_check.py",
          "    if isinstance(error, LoginError):\n", "    if False:\n", "tests/unit/spark/test_driver_check.py"),
    Fault("continuous processing starts from a checkpoint that micro-batches have used", "spark/checkpoint.py",
          "{_OFFSETS}\") <= _last_number", "{_OFFSETS}\") < _last_number", "tests/unit/spark/test_checkpoint.py"),
    Fault("an epoch is committed whose rows no task has written", "spark/sink_write.py",
          "    if silent:\n", "    if False:\n", "tests/unit/spark/test_sink_write.py"),
    Fault("the exporter takes any number of connections", "tools/exporter/prometheus.py",
          "is_taken = len(self._began) < MOST_CONNECTIONS", "is_taken = True",
          "tests/unit/monitoring/test_exporter.py"),
    Fault("--verbose makes the loggers of others verbose", "tools/cli/main.py",
          "logging.basicConfig(level=logging.INFO,", "logging.basicConfig(level=logging.DEBUG,",
          "tests/unit/cli/test_main.py"),
    Fault("a login in a registry's URL may have a slash", "schemas/registry/registry_options.py",
          "        if not _PATH.isdisjoint(login):\n", "        if False:\n",
          "tests/unit/schema_registry/test_registry_options.py"),
    Fault("bytes at the top of an Avro schema have a length with a registry", "schemas/encoding/avro.py",
          'is_raw = for_registry and parsed.type == "bytes"', "is_raw = False",
          "tests/unit/formats tests/unit/encoding"),
    Fault("rules of a schema are ignored", "schemas/formats/subject_schemas.py",
          "    if found.rules:\n", "    if False:\n", "tests/unit/formats"),
    Fault("a class option may name a function", "common/config/python_class.py",
          "    if not isinstance(found, type):\n", "    if False:\n", "tests/unit/partitioning/test_loading.py"),
    Fault("the words map_entry in a comment count", "schemas/formats/protoc.py",
          "return any(found[1] for found in _MAP_ENTRY.finditer(text))", 'return "map_entry" in text',
          "tests/unit/formats"),
    Fault("a certificate's host name is not checked", "network/security/tls_context.py",
          "    if not config.ssl_endpoint_identification_algorithm:\n", "    if True:\n",
          "tests/unit/security tests/unit/network/test_tls_connections.py"),
)  # fmt: skip
