"""Faults that a soak plants into the product to see that its checker finds them: one for each class.

``workloads.PLANTED`` names the fault of a process. Of the producer, its ``send`` is changed; of the sink, what it does
with the rows of a task, and what it tells Spark after a commit.
"""

from __future__ import annotations

import os

from tests.soak.workloads import PLANTED

NOT_TRUE = (
    "The write is not committed. Run the job again (in foreachBatch, start the query again): it writes the batch again."
)


def _lost(batches):
    """The first row of each batch is left out."""
    return (batch.slice(1) for batch in batches)


def _reordered(batches):
    """The rows of each batch are turned around."""
    import pyarrow as pa

    return (batch.take(pa.array(reversed(range(batch.num_rows)))) for batch in batches)


_OF_ROWS = {"lost": _lost, "reordered": _reordered}


def change_sink_write(module):
    """``SinkWrite``, if a fault of it is planted."""
    fault, sink_write = os.environ.get(PLANTED, ""), module.SinkWrite
    write, end = sink_write.write, sink_write.end

    def faulty_write(self, batches):
        return write(self, _OF_ROWS[fault](batches))

    def faulty_end(self, *arguments):
        """A commit that has succeeded tells Spark that it failed, unless it has found the write committed before."""
        outcome = end(self, *arguments)
        if not outcome.replayed:
            raise module.KafkaError(NOT_TRUE)
        return outcome

    if fault in _OF_ROWS:
        sink_write.write = faulty_write
    elif fault == "told wrongly":
        sink_write.end = faulty_end


def change_producer(module):
    """``KafkaProducer``, if its fault is planted: each record with a certain last digit of its value is sent twice."""
    if os.environ.get(PLANTED) != "doubled":
        return
    send = module.KafkaProducer.send

    def faulty_send(self, record, callback=None):
        if record.value.endswith(b"7"):
            send(self, record)
        return send(self, record, callback)

    module.KafkaProducer.send = faulty_send
