"""What the lowest pyarrow cannot do."""

import pytest

from spark_kafka_sink.records.encode import CAN_JOIN

with_views = pytest.mark.skipif(not CAN_JOIN, reason="pyarrow 18: few operations on views, run ends of lists")
