"""A job without TLS does not pay for its libraries at every start of a worker."""

import subprocess
import sys

import pytest

from tests.support.waiting import DEADLINE_S


def test_the_libraries_of_certificates_and_tokens_are_imported_only_where_they_are_used():
    code = (
        "import sys, spark_kafka_sink.producer.producer, spark_kafka_sink.spark.writers\n"
        "print(*sorted({'cryptography', 'asn1crypto', 'urllib3'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=DEADLINE_S)
    assert done.stdout.split() == []


@pytest.mark.parametrize(
    ("mechanism", "jaas"),
    [
        ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule required username=u password=p;"),
        ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule required username=u password=p;"),
        ("OAUTHBEARER", "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"),
        ("GSSAPI", "com.sun.security.auth.module.Krb5LoginModule required useTicketCache=true;"),
    ],
)
def test_parsing_the_options_of_a_mechanism_imports_no_library_of_its_login(mechanism, jaas):
    options = {
        "bootstrap.servers": "b:1", "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism,
        "sasl.jaas.config": jaas, "sasl.kerberos.service.name": "kafka",
    }  # fmt: skip
    if mechanism == "OAUTHBEARER":
        options["sasl.token.provider"] = "azure"
    code = (
        "import sys; from spark_kafka_sink.common.config import ProducerConfig\n"
        f"ProducerConfig.parse({options!r})\n"
        "unwanted = {'cryptography', 'asn1crypto', 'urllib3', 'gssapi', 'botocore', 'azure', 'kio', 'pyarrow'}\n"
        "print(*sorted(unwanted & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True, timeout=DEADLINE_S)
    assert done.stdout.split() == []
