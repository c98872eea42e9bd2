"""docs/api.md has every public name, and an example of what a user calls."""

import re

import spark_kafka_sink
from tests.repository.files import ROOT

PAGE = (ROOT / "docs/api.md").read_text()
SHOWN = re.findall(r"^::: ([\w.]+)$", PAGE, re.MULTILINE)
CODE = "\n".join(re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE))
RETURNED = {
    "Delivery",
    "PartitionInfo",
    "PreparedTransaction",
    "RecordMetadata",
    "SendReceipt",
    "WriteResult",
    "WrittenBatch",
}


def test_every_public_name_is_on_the_page():
    assert set(spark_kafka_sink.__all__) <= {path.rpartition(".")[2] for path in SHOWN}


def test_what_a_user_calls_has_an_example():
    called = {path.rpartition(".")[2] for path in SHOWN} - RETURNED
    called = {name for name in called if not name.endswith("Error")}
    assert len(called) > 20
    assert [name for name in sorted(called) if not re.search(rf"\b{name}\(", CODE)] == []
