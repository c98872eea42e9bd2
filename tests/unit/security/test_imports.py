"""A job without TLS does not pay for its libraries at every start of a worker."""

import subprocess
import sys

from tests.waiting import DEADLINE_S


def test_the_libraries_of_certificates_and_tokens_are_imported_only_where_they_are_used():
    code = (
        "import sys, spark_kafka_sink.producer.producer, spark_kafka_sink.spark.writers\n"
        "print(*sorted({'cryptography', 'asn1crypto', 'urllib3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=DEADLINE_S)
    assert done.stdout.split() == []
