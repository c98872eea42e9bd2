"""Python imports this in every process that has this folder in its PYTHONPATH: Spark's drivers, daemons and workers."""

from tests.histories import hooks

hooks.install()
