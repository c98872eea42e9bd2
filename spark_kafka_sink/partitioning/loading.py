"""From ``partitioner.class`` to a partitioner."""

from __future__ import annotations

from importlib import import_module
from random import Random

from spark_kafka_sink.config import ProducerConfig
from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.partitioning.custom import Checked, RecordPartitioner, RowByRow
from spark_kafka_sink.partitioning.default import BuiltInPartitioner
from spark_kafka_sink.partitioning.keyed import KEY_PARTITIONS
from spark_kafka_sink.partitioning.partitioner import Partitioner
from spark_kafka_sink.partitioning.round_robin import RoundRobinPartitioner


def load_partitioner(config: ProducerConfig, random: Random) -> Partitioner:
    """The partitioner that ``config`` names.

    A ``package.module:Class`` is imported here and made without arguments: a ``RecordPartitioner``, or anything with
    ``Partitioner``'s method. Raises ``ConfigError`` when that cannot be done.
    """
    name = config.partitioner_class
    if name == "round_robin":
        return RoundRobinPartitioner()
    if name in KEY_PARTITIONS:
        return BuiltInPartitioner(
            config.batch_size,
            config.partitioner_adaptive_partitioning_enable,
            random,
            config.partitioner_ignore_keys,
            KEY_PARTITIONS[name],
        )
    made = _made(name)
    if isinstance(made, RecordPartitioner):
        return Checked(name, RowByRow(made))
    if not callable(getattr(made, "partition", None)):
        raise ConfigError(
            [f"partitioner.class {name} is no partitioner: it needs the method of Partitioner or RecordPartitioner."]
        )
    return Checked(name, made)


def _made(name: str) -> Partitioner | RecordPartitioner:
    module, _, path = name.partition(":")
    try:
        made: Partitioner | RecordPartitioner = getattr(import_module(module), path)()
    except Exception as error:  # the user's module and constructor may raise anything
        raise ConfigError([f"partitioner.class {name} cannot be loaded: {error!r}."]) from error
    return made
