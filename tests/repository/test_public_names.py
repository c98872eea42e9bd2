"""The list of public names that the changelog is compared with."""

import subprocess
import sys

from tests.repository.files import ROOT


def test_it_has_each_kind_of_name_once():
    listed = subprocess.run([sys.executable, ROOT / "docs/public_names.py"], check=True, capture_output=True, text=True)
    names = listed.stdout.splitlines()
    assert names == sorted(set(names))
    assert {
        "name KafkaProducer", "name KafkaProducer.send", "name write_kafka", "name TestBroker.create_topic",
        "name KafkaTimeoutError", "name ReplayMismatchError", "option sink topic (default ; a string)",
        "command check --bootstrap-server HOST:PORT", "metric record-send-rate", "metric spark_kafka_sink_rows_total",
        "extra protobuf",
    } <= set(names)  # fmt: skip
    assert {name.split(maxsplit=2)[1] for name in names if name.startswith("option")} == {"sink", "kafka", "registry"}
