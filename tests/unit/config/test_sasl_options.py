"""Which SASL options go together, and what the error says where they do not; no error shows a password."""

import pytest

from spark_kafka_sink.common.config import ConfigWarning, ProducerConfig
from spark_kafka_sink.common.config.option import Password
from tests.support.options import fault, parse

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
IAM = "software.amazon.msk.auth.iam.IAMLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
USER = 'required username="alice" password="hunter2";'
SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


def sasl(mechanism=None, jaas=None, protocol="SASL_PLAINTEXT"):
    given = {"security.protocol": protocol, "sasl.mechanism": mechanism, "sasl.jaas.config": jaas}
    return {"bootstrap.servers": "localhost:9092", **given}


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [("PLAIN", PLAIN), ("PLAIN", SCRAM), *((scram, SCRAM) for scram in SCRAMS), ("PLAIN", f"kafkashaded.{PLAIN}")],
)
def test_a_mechanism_takes_the_login_modules_that_it_takes_in_java(mechanism, module):
    config = parse(sasl(mechanism, f"{module} {USER}"))
    assert (config.security_protocol, config.sasl_mechanism) == ("SASL_PLAINTEXT", mechanism)
    assert config.sasl_jaas_config == Password(f"{module} {USER}")


@pytest.mark.parametrize(
    ("mechanism", "jaas", "reason"),
    [
        (None, None, "sasl.mechanism is not set, and its default is GSSAPI (Kerberos); set it to PLAIN, "
         "SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI."),
        (None, f"{PLAIN} {USER}", "sasl.mechanism is not set, and its default is GSSAPI (Kerberos); set "
         "it to PLAIN."),
        (None, f"{SCRAM} {USER}", "sasl.mechanism is not set, and its default is GSSAPI (Kerberos); set "
         "it to SCRAM-SHA-256 or SCRAM-SHA-512."),
        (None, f"{OAUTH} required;", "sasl.mechanism is not set, and its default is GSSAPI (Kerberos); "
         "set it to OAUTHBEARER."),
        ("SCRAM-SHA-1", f"{SCRAM} {USER}", "sasl.mechanism must be PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or "
         "GSSAPI, or the name of an entry point of the group spark_kafka_sink.sasl, but is 'SCRAM-SHA-1'; did you "
         "mean SCRAM-SHA-512?"),
        ("PLAIN", None, f'sasl.jaas.config is required with PLAIN: {PLAIN} required username="…" password="…";'),
        ("PLAIN", f"{PLAIN} {USER[:-1]}", "sasl.jaas.config must end with ';'."),
        ("PLAIN", f'{PLAIN} required user="a";', f"sasl.jaas.config has no username and no password; write {PLAIN} "
         'required username="…" password="…";'),
        ("PLAIN", f'{PLAIN} required username="a" password="\\0hunter2";', "sasl.jaas.config has a NUL character (\\0) "
         "in its username or password: is a backslash not doubled?"),
        ("SCRAM-SHA-256", f"{PLAIN} {USER}", f"sasl.jaas.config has {PLAIN}, which does not log in with SCRAM-SHA-256; "
         f'write {SCRAM} required username="…" password="…";, or set sasl.mechanism=PLAIN'),
        ("PLAIN", f"hunter2 {USER}", "sasl.jaas.config has a class that is not a known login module, which does not "
         f'log in with PLAIN; write {PLAIN} required username="…" password="…";'),
        ("PLAIN", f"{OAUTH} required;", f"sasl.jaas.config has {OAUTH}, which does not log in with PLAIN; write "
         f'{PLAIN} required username="…" password="…";, or set sasl.mechanism=OAUTHBEARER'),
        ("OAUTHBEARER", f"{IAM} required;", f"sasl.jaas.config has {IAM}, which does not log in with OAUTHBEARER; "
         f'write {OAUTH} required clientId="…" clientSecret="…";, or set sasl.mechanism=AWS_MSK_IAM'),
    ],
)  # fmt: skip
def test_options_that_cannot_log_in_are_refused_with_what_to_write(mechanism, jaas, reason):
    assert fault(sasl(mechanism, jaas)) == reason


def test_without_credentials_the_error_says_that_sparks_tokens_cannot_be_used():
    assert "Delegation tokens that Spark fetches cannot be used" in fault(sasl("SCRAM-SHA-512"), "kafka.")


def test_without_a_sasl_protocol_the_options_have_no_effect_and_a_warning_says_so():
    with pytest.warns(ConfigWarning, match=r"^sasl\.mechanism has no effect, as security\.protocol is PLAINTEXT"):
        config = ProducerConfig.parse(sasl("GSSAPI", "no JAAS at all", "PLAINTEXT"))
    assert config.security_protocol == "PLAINTEXT"


def test_a_brokers_name_of_the_option_is_refused_with_the_clients():
    name = "listener.name.clients.plain.sasl.jaas.config"
    assert fault({**sasl("PLAIN", f"{PLAIN} {USER}"), name: USER}) == (
        f"{name} is an option of brokers; write sasl.jaas.config."
    )


@pytest.mark.parametrize("entry", ["SASL_PLAINTEXT://localhost:1", "CLIENTS://localhost:1"])
def test_a_bootstrap_entry_may_begin_with_the_protocol_or_a_listener(entry):
    config = parse({**sasl("PLAIN", f"{PLAIN} {USER}"), "bootstrap.servers": entry})
    assert config.bootstrap_servers == (("localhost", 1),)
