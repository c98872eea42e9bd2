"""Partitioners as users write them."""

import numpy as np

from spark_kafka_sink.partitioning.custom import RecordPartitioner


class ByLength(RecordPartitioner):
    """Bytes of key and value together."""

    def partition(self, topic, key, value, count):
        return (len(key or b"") + len(value or b"")) % count


class LastPartition:
    def partition(self, topic, columns, explicit, sizes, count, load):
        return np.full(len(columns), count - 1)


class Beyond:
    def partition(self, topic, columns, explicit, sizes, count, load):
        return np.arange(len(columns)) * count


class Negative:
    def partition(self, topic, columns, explicit, sizes, count, load):
        return -np.arange(len(columns))


class TooFew:
    def partition(self, topic, columns, explicit, sizes, count, load):
        return np.zeros(len(columns) - 1, int)


class Fractions:
    def partition(self, topic, columns, explicit, sizes, count, load):
        return np.full(len(columns), 0.5)


class NeedsArguments:
    def __init__(self, something):
        self.something = something


class NoMethod:
    pass
