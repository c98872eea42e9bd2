"""The application that a process of the driver writes for: its name, and the file that its processes share."""

from __future__ import annotations

import uuid
from contextvars import ContextVar
from typing import Any, Final

from pyspark import SparkFiles

from spark_kafka_sink.schemas.registry.cache import ApplicationFile, application_file
from spark_kafka_sink.spark.caller_job import is_connect

_PROCESS: Final = uuid.uuid4().hex
_callers: Final = ContextVar("application", default=_PROCESS)
"""The name of a run without a known folder, for example in the process that calls ``write_kafka``."""


def name_application(session: Any) -> None:
    """Names the run that this thread writes for: a process may stop its session and start another one."""
    run = session.session_id if is_connect(session) else session.sparkContext.applicationId
    _callers.set(f"{_PROCESS} {run}")


def application_name() -> str:
    """A name of the run. Spark's Python processes do not get the application id, but a folder that is new in each
    run."""
    return SparkFiles._root_directory or _callers.get()


def shared_file() -> ApplicationFile:
    return application_file(application_name())


def is_first(text: str) -> bool:
    """Whether this application logs ``text`` for the first time, even if an earlier planning process has ended."""
    file, key = shared_file(), ("said", text)
    if file.get(key):
        return False
    file.add(key, True)
    return True
