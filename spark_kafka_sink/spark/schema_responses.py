"""A registry's responses on the driver, which last for the application. Planning and commit use them."""

from __future__ import annotations

import uuid
from collections.abc import Sequence

from pyspark import SparkFiles
from pyspark.sql.datasource import WriterCommitMessage

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.schemas.formats.cached_registry import CachedRegistry
from spark_kafka_sink.schemas.registry.client import SchemaRegistry
from spark_kafka_sink.schemas.registry.registry_options import RegistryOptions
from spark_kafka_sink.schemas.registry.responses import ResponseFiles
from spark_kafka_sink.spark.commit_message import KafkaCommitMessage


def cached_registry(options: RegistryOptions) -> CachedRegistry:
    clock = SystemClock()
    return CachedRegistry(SchemaRegistry(options, clock), options, ResponseFiles(clock), _application())


def store_task_lookups(messages: Sequence[WriterCommitMessage | None], options: RegistryOptions) -> None:
    """What tasks asked the registry for is known to later planning processes."""
    asked = [each for message in messages if isinstance(message, KafkaCommitMessage) for each in message.asked_schemas]
    if asked:
        cached_registry(options).store_task_lookups(asked)


def is_first(text: str) -> bool:
    """Whether this application says ``text`` for the first time: its planning processes end after an idle minute."""
    files, key = ResponseFiles(SystemClock()), [_application(), text]
    said = bool(files.names(key))
    files.put_names(key, [text])
    return not said


def _application() -> str:
    """Spark tells these processes no application id, but a folder of the driver's own that is new in each run."""
    return SparkFiles._root_directory or uuid.uuid4().hex
