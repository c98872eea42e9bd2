"""What the driver does with receiptsPath: it probes it before the first row, and writes to it after a commit."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from spark_kafka_sink.common.foreign_text import clause
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage, WriterCommitMessage
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.python_process import announce

_probed: set[str] = set()


def probe_receipts(options: SinkOptions) -> None:
    """Checks that the path can be written, once per path, when a writer is pickled. Raises ``ReceiptsPathError``."""
    path = options.receipts_path
    if path is None or path in _probed:
        return
    from spark_kafka_sink.exactly_once.errors import ReceiptsPathError
    from spark_kafka_sink.exactly_once.receipts import probe

    try:
        probe(path)
    except (OSError, ValueError) as error:
        raise ReceiptsPathError(
            f"receiptsPath {path} cannot be written on the driver: {clause(error)}. No row was written. Set it to a "
            "directory that the driver can write to."
        ) from error
    _probed.add(path)


def keep_receipts(messages: Sequence[WriterCommitMessage | None], options: SinkOptions, job: str = "") -> None:
    """Writes the receipts of a committed batch. Its rows are visible, so a failure is only a warning.

    ``job``: as in ``write_lines``.
    """
    path = options.receipts_path
    if path is None:
        return
    from spark_kafka_sink.exactly_once.receipts import write_lines

    commits = [message for message in messages if isinstance(message, KafkaCommitMessage)]
    try:
        lacking = _lacking(commits, path)
        write_lines(path, (each for message in commits for each in message.receipts), job)
    except Exception as error:
        lacking = f"receiptsPath {path} could not be written: {error}"
    if lacking:
        where = f" receiptsTopic {options.receipts_topic} has them." if options.receipts_topic is not None else ""
        announce(f"All rows are committed, but {lacking}.{where}", logging.WARNING)


def _lacking(commits: Sequence[KafkaCommitMessage], path: str) -> str:
    """The tasks without receipts, because an earlier run wrote their rows; "" if the file exists."""
    from spark_kafka_sink.exactly_once.receipts import has_lines

    reports = [message.report for message in commits if not message.receipts]
    earlier = [report for report in reports if report is not None and report.share.rows.count]
    if not earlier or has_lines(path, earlier[0].write_id.query, earlier[0].write_id.number):
        return ""
    return (
        f"receiptsPath {path} lacks the receipts of {len(earlier)} tasks of {earlier[0].write_id}: an earlier run "
        "wrote their rows, and another process committed them"
    )
