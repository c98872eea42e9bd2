"""Partitioners as users write them."""

from typing import ClassVar

import numpy as np

from spark_kafka_sink.producer.partitioner import RecordPartitioner


class ByLength(RecordPartitioner):
    """Bytes of key and value together."""

    def partition(self, topic, key, key_bytes, value, value_bytes, cluster):
        return (len(key_bytes or b"") + len(value_bytes or b"")) % cluster.partition_counts[topic]


class Noted(RecordPartitioner):
    """By the first character of the value that was given to ``send``."""

    calls: ClassVar[list[tuple]] = []

    def configure(self, config):
        self.calls.append(("configure", config["client.id"]))

    def partition(self, topic, key, key_bytes, value, value_bytes, cluster):
        available = tuple(each.partition for each in cluster.available_partitions(topic))
        self.calls.append((topic, key, key_bytes, value, value_bytes, available))
        return int(str(value)[0])

    def close(self):
        self.calls.append(("close",))


class RaisesForKeys(RecordPartitioner):
    def partition(self, topic, key, key_bytes, value, value_bytes, cluster):
        if key is not None:
            raise LookupError(f"no region for {key!r}")
        return 1


class Sticky(RecordPartitioner):
    """The next partition with each new batch."""

    def __init__(self):
        self.current = 0
        self.left = []

    def partition(self, topic, key, key_bytes, value, value_bytes, cluster):
        return self.current

    def on_new_batch(self, topic, cluster, previous):
        self.left.append(previous)
        self.current = (previous + 1) % cluster.partition_counts[topic]


class LastPartition:
    def partition(self, topic, columns, named, sizes, count, load):
        return np.full(len(columns), count - 1)


class Beyond:
    def partition(self, topic, columns, named, sizes, count, load):
        return np.arange(len(columns)) * count


class Negative:
    def partition(self, topic, columns, named, sizes, count, load):
        return -np.arange(len(columns))


class TooFew:
    def partition(self, topic, columns, named, sizes, count, load):
        return np.zeros(len(columns) - 1, int)


class Fractions:
    def partition(self, topic, columns, named, sizes, count, load):
        return np.full(len(columns), 0.5)


class NeedsArguments:
    def __init__(self, something):
        self.something = something

    def partition(self, *_): ...


class NoMethod:
    pass


class Raises:
    """Over columns; raises ``error``."""

    error: ClassVar[BaseException] = LookupError("no region")

    def partition(self, topic, columns, named, sizes, count, load):
        raise self.error
