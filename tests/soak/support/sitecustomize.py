"""Python imports this in every process that has this folder in its PYTHONPATH: Spark's drivers, daemons and workers."""

from tests.soak import hooks

hooks.install()
