"""Which ``ssl.*`` options go together, and what the error says where they do not."""

from __future__ import annotations

import ssl
import subprocess

import pytest

from spark_kafka_sink.common.config import ConfigWarning, ProducerConfig, security_rules
from spark_kafka_sink.common.config.security_rules import TLS_1_2, TLS_1_3
from spark_kafka_sink.schemas.registry.registry_options import ConfluentOptions
from spark_kafka_sink.testing.java import find_java
from tests.support import options as parsing
from tests.unit.security.tls_peers import client_context

SERVERS = {"bootstrap.servers": "broker:9092", "security.protocol": "SSL"}
BOTH = ("TLSv1.2", "TLSv1.3")
OLDER = "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"

PLAIN_LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p";'


def parse(options):
    return parsing.parse({**SERVERS, **options})


def faults(options):
    return parsing.faults({**SERVERS, **options}, "kafka.")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"ssl.truststore.password": "hunter2"},
         "kafka.ssl.truststore.password is given without kafka.ssl.truststore.location, whose password it is."),
        ({"ssl.truststore.location": "t", "ssl.truststore.certificates": "hunter2"},
         "kafka.ssl.truststore.certificates and kafka.ssl.truststore.location are both given; leave one of them out."),
        ({"ssl.keystore.password": "hunter2"},
         "kafka.ssl.keystore.password is given without kafka.ssl.keystore.location, whose password it is."),
        ({"ssl.keystore.location": "k", "ssl.keystore.key": "hunter2", "ssl.keystore.certificate.chain": "c"},
         "kafka.ssl.keystore.key and kafka.ssl.keystore.location are both given; leave one of them out."),
        ({"ssl.keystore.key": "hunter2"}, "kafka.ssl.keystore.key needs kafka.ssl.keystore.certificate.chain: the "
         "private key and its certificates come together."),
        ({"ssl.keystore.certificate.chain": "hunter2"}, "kafka.ssl.keystore.certificate.chain needs "
         "kafka.ssl.keystore.key: the private key and its certificates come together."),
        ({"ssl.keystore.key": ["hunter2"]}, "kafka.ssl.keystore.key must be a string, but is a list."),
        ({"ssl.truststore.type": "BCFKS"},
         "kafka.ssl.truststore.type must be one of JKS, PKCS12, PEM, but is 'BCFKS'."),
        ({"ssl.endpoint.identification.algorithm": "none"},
         "kafka.ssl.endpoint.identification.algorithm must be https or empty, but is 'none'."),
        ({"ssl.enabled.protocols": "TLSv1.1,TLSv1.3"}, "kafka.ssl.enabled.protocols has 'TLSv1.1'; TLSv1.2 and TLSv1.3 "
         "are the versions in use, leave the others out."),
        ({"ssl.enabled.protocols": "TLSv1,TLSv1.2"}, "kafka.ssl.enabled.protocols has 'TLSv1'; TLSv1.2 and TLSv1.3 "
         "are the versions in use, leave the others out."),
        ({"ssl.protocol": "TLSv1.1"},
         "kafka.ssl.protocol must be one of TLSv1.3, TLSv1.2, TLS, SSL, but is 'TLSv1.1'."),
        ({"ssl.protocol": "TLSv1.2", "ssl.enabled.protocols": "TLSv1.3"},
         "kafka.ssl.protocol is TLSv1.2, but kafka.ssl.enabled.protocols allows only TLSv1.3; leave one out."),
        ({"ssl.cipher.suites": "ECDHE-RSA-AES256-GCM-SHA384"}, "kafka.ssl.cipher.suites has "
         "'ECDHE-RSA-AES256-GCM-SHA384', which is not a cipher suite of TLSv1.2 or TLSv1.3; leave it out."),
        ({"ssl.cipher.suites": OLDER, "ssl.enabled.protocols": "TLSv1.3"}, "kafka.ssl.cipher.suites has no cipher "
         "suite of TLSv1.3, which kafka.ssl.enabled.protocols allows."),
    ],
)  # fmt: skip
def test_options_that_cannot_work_are_refused_with_what_to_write(given, text):
    assert faults(given) == (text,)


@pytest.mark.parametrize(
    ("name", "javas", "other"),
    [
        ("ssl.keymanager.algorithm", "SunX509", "PKIX"),
        ("ssl.trustmanager.algorithm", "PKIX", "SunX509"),
        ("ssl.provider", "SunJSSE", "BCJSSE"),
        ("ssl.engine.factory.class", "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory", "com.example.Own"),
        ("ssl.secure.random.implementation", None, "SHA1PRNG"),
    ],
)
def test_of_the_jvms_own_options_the_defaults_pass(name, javas, other):
    assert parse({name: javas}) == parse({})
    assert faults({name: other}) == (
        f"kafka.{name} is refused, because it needs a JVM: leave it out; TLS is Python's ssl here, not the JVM's.",
    )


@pytest.mark.parametrize(
    ("given", "enabled"),
    [
        ({}, BOTH),
        ({"ssl.enabled.protocols": "TLSv1.3,TLSv1.2"}, BOTH),
        ({"ssl.enabled.protocols": ""}, BOTH),
        ({"ssl.enabled.protocols": "TLSv1.3"}, ("TLSv1.3",)),
        ({"ssl.protocol": "TLS"}, BOTH),
        ({"ssl.protocol": "TLSv1.2"}, ("TLSv1.2",)),
        ({"ssl.cipher.suites": OLDER}, ("TLSv1.2",)),
        ({"ssl.cipher.suites": f"{OLDER},TLS_EMPTY_RENEGOTIATION_INFO_SCSV"}, ("TLSv1.2",)),
        ({"ssl.cipher.suites": ",".join(TLS_1_3)}, ("TLSv1.3",)),
        ({"ssl.cipher.suites": ",".join([OLDER, *TLS_1_3])}, BOTH),
        ({"ssl.cipher.suites": f"{OLDER},{TLS_1_3[0]}", "ssl.enabled.protocols": "TLSv1.2"}, ("TLSv1.2",)),
    ],
)
def test_the_allowed_versions(given, enabled):
    assert parse(given).ssl_enabled_protocols == enabled


def test_versions_that_java_has_disabled_are_ignored_with_a_warning():
    given = {**SERVERS, "ssl.enabled.protocols": "TLSv1.2,TLSv1.1,TLSv1"}
    with pytest.warns(ConfigWarning, match=r"^ssl.enabled.protocols has TLSv1, TLSv1.1, ignored"):
        assert ProducerConfig.parse(given).ssl_enabled_protocols == ("TLSv1.2",)


@pytest.mark.parametrize("protocol", [None, "SASL_PLAINTEXT"])
def test_options_of_tls_without_tls_are_warned_of(protocol):
    given = {"bootstrap.servers": "a:1", "security.protocol": protocol, "ssl.truststore.location": "/ca.pem"}
    sasl = {"sasl.mechanism": "PLAIN", "sasl.jaas.config": PLAIN_LOGIN} if protocol else {}
    words = f"ssl.truststore.location has no effect, as security.protocol is {protocol or 'PLAINTEXT'}; TLS needs SSL"
    with pytest.warns(ConfigWarning, match=words):
        ProducerConfig.parse(given | sasl)


def test_a_list_that_narrows_tls_1_3_is_refused_unless_python_can(monkeypatch):
    monkeypatch.setattr(security_rules, "NARROWS_TLS_1_3", True)
    assert parse({"ssl.cipher.suites": f"{OLDER},TLS_AES_256_GCM_SHA384"}).ssl_enabled_protocols == BOTH
    monkeypatch.setattr(security_rules, "NARROWS_TLS_1_3", False)
    assert faults({"ssl.cipher.suites": f"{OLDER},TLS_AES_256_GCM_SHA384"}) == (
        "kafka.ssl.cipher.suites leaves out TLS_CHACHA20_POLY1305_SHA256, TLS_AES_128_GCM_SHA256, which Python before "
        "3.15 cannot; name all three of TLSv1.3, or none of them to use TLSv1.2.",
    )


@pytest.mark.parametrize(
    "suites", [list(TLS_1_2), *([suite] for suite in list(TLS_1_2)[::8])], ids=lambda suites: str(len(suites))
)
def test_openssl_allows_the_named_suites_in_their_order_and_no_others(suites):
    context = client_context(ssl_cipher_suites=",".join(suites))
    assert context.maximum_version == ssl.TLSVersion.TLSv1_2
    allowed = [each["name"] for each in context.get_ciphers() if each["protocol"] != "TLSv1.3"]
    assert allowed == [TLS_1_2[suite] for suite in suites]


def test_the_names_are_those_of_openssl():
    lines = subprocess.run(
        ["openssl", "ciphers", "-stdname", "ALL:@SECLEVEL=0"], capture_output=True, check=True, text=True
    ).stdout.splitlines()
    names = {javas: openssls for javas, _, openssls, *_ in map(str.split, lines)}
    assert {suite: names[suite] for suite in TLS_1_2} == dict(TLS_1_2)
    assert set(TLS_1_3) <= set(names)


@pytest.mark.jvm
def test_the_table_has_every_cipher_suite_of_the_jvm(tmp_path):
    source = tmp_path / "Suites.java"
    source.write_text("""
        public class Suites {
            public static void main(String[] arguments) throws Exception {
                var context = javax.net.ssl.SSLContext.getDefault();
                for (String suite : context.getSupportedSSLParameters().getCipherSuites()) System.out.println(suite);
            }
        }
    """)
    done = subprocess.run([find_java(), source], capture_output=True, check=True, text=True, timeout=120)
    assert set(done.stdout.split()) - {"TLS_EMPTY_RENEGOTIATION_INFO_SCSV"} <= {*TLS_1_2, *TLS_1_3}


@pytest.mark.parametrize("blank", [" ", "\t", "\n", "\u00a0", "\0", "\x1f \u2003"])
@pytest.mark.parametrize(
    "name",
    ["ssl.endpoint.identification.algorithm", "transactional.id", "client.id", "client.rack",
     "sasl.kerberos.service.name", "sasl.oauthbearer.scope", "key.serializer", "partitioner.class"],
)  # fmt: skip
def test_incident_a_blank_value_switched_the_check_of_host_names_off(name, blank):
    """An empty one does what the page of options says. (Java takes blanks off first.)"""
    text = f"{name} is blank; give it a value or leave it out."
    assert [*faults({name: blank})] == [f"kafka.{text}"]
    if name.startswith("ssl."):
        found = []
        ConfluentOptions.parse({"schema.registry.url": "https://r", f"schema.registry.{name}": blank}, found)
        assert found == [f"schema.registry.{text}"]
        assert parse({name: ""}).ssl_endpoint_identification_algorithm == ""
        assert parse({name: " https\n"}).ssl_endpoint_identification_algorithm == "https"
