"""Which SASL options go together, and what the error says where they do not; no error shows a password."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.common.config import ConfigWarning, ProducerConfig
from spark_kafka_sink.common.config.option import Password
from spark_kafka_sink.common.config.security_rules import JaasError, parse_jaas
from spark_kafka_sink.network.login.kerberos import KRB5_EXAMPLE
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


# GSSAPI: which options of ``Krb5LoginModule`` log in, and the service name.

KRB5 = "com.sun.security.auth.module.Krb5LoginModule"
KEYTAB = f'{KRB5} required useKeyTab=true storeKey=true keyTab="/etc/orders.keytab" principal="orders@EXAMPLE.COM";'
TICKETS = f"{KRB5} required useTicketCache=true doNotPrompt=true;"
SERVICE = "sasl.kerberos.service.name"


def gssapi(jaas, **others):
    return {
        "bootstrap.servers": "broker:9092", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "GSSAPI",
        "sasl.jaas.config": jaas, SERVICE: "kafka", **others,
    }  # fmt: skip


@pytest.mark.parametrize("jaas", [KEYTAB, TICKETS, KEYTAB.replace("storeKey", "useTicketCache")])
def test_a_keytab_or_a_ticket_cache_is_accepted(jaas):
    config = parse(gssapi(jaas))
    assert (config.sasl_mechanism, config.sasl_kerberos_service_name) == ("GSSAPI", "kafka")


def test_gssapi_is_the_default_mechanism_as_in_java():
    options = gssapi(KEYTAB)
    del options["sasl.mechanism"]
    assert parse(options).sasl_mechanism == "GSSAPI"


def test_the_service_name_may_stand_in_the_login_module():
    assert parse(gssapi(f'{KEYTAB[:-1]} serviceName="kafka";', **{SERVICE: None})).sasl_kerberos_service_name is None
    assert parse(gssapi(f'{KEYTAB[:-1]} serviceName="kafka";')).sasl_kerberos_service_name == "kafka"


@pytest.mark.parametrize(
    ("jaas", "reason"),
    [
        (None, f"is required with GSSAPI: {KRB5_EXAMPLE}"),
        (f"{KRB5} "
         "required;", f"has neither a keytab nor a ticket cache; write {KRB5_EXAMPLE} or, to use the tickets of "
         f"kinit, {KRB5} required useTicketCache=true;"),
        (f"{KRB5} required useKeyTab=true;", "has useKeyTab=true, but no keyTab and no principal; write "
         f"{KRB5_EXAMPLE}"),
        (f'{KRB5} required useKeyTab=true keyTab="/secret";', "has useKeyTab=true, but no principal; write "
         f"{KRB5_EXAMPLE}"),
        (f"{TICKETS[:-1]} isInitiator=false;", "has isInitiator=false, which is for brokers; leave it out"),
        ('com.ibm.security.auth.module.Krb5LoginModule required useKeytab="file:///secret" credsType=both;',
         "has com.ibm.security.auth.module.Krb5LoginModule, which does not log in with GSSAPI; write "
         f"{KRB5_EXAMPLE}"),
    ],
)  # fmt: skip
def test_a_login_module_that_cannot_log_in_is_refused_with_what_to_write(jaas, reason):
    assert fault(gssapi(jaas)) == f"sasl.jaas.config {reason}"


def test_the_service_name_is_required_and_two_must_agree():
    assert fault(gssapi(KEYTAB, **{SERVICE: None})) == (
        f"{SERVICE} is required with GSSAPI: the first part of the brokers' principals, most often kafka."
    )
    assert fault(gssapi(f"{KEYTAB[:-1]} serviceName=other;")) == (
        f"{SERVICE} is not the serviceName in sasl.jaas.config; leave one of them out."
    )


# Which options of OAUTHBEARER go together.

PACKAGE = "org.apache.kafka.common.security.oauthbearer."
MODULE = OAUTH
HANDLER = "sasl.login.callback.handler.class"
URL = "sasl.oauthbearer.token.endpoint.url"
RETRIEVER = "sasl.oauthbearer.jwt.retriever.class"
CLIENT = 'clientId="me" clientSecret="hunter2"'
EXAMPLE = f'{MODULE} required clientId="…" clientSecret="…";'


def oauth(jaas=f"{MODULE} required {CLIENT};", **others):
    return {
        "bootstrap.servers": "broker:9092", "security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": jaas, HANDLER: f"{PACKAGE}OAuthBearerLoginCallbackHandler", URL: "https://idp/token",
        **others,
    }  # fmt: skip


def parsed(**others):
    return ProducerConfig.parse(oauth(**others))


@pytest.mark.parametrize("prefix", ["", "kafkashaded."])
@pytest.mark.parametrize("room", ["", "secured."])
def test_both_names_of_the_login_handler_are_known_also_databricks_copies(room, prefix):
    config = parsed(**{HANDLER: f"{prefix}{PACKAGE}{room}OAuthBearerLoginCallbackHandler"})
    assert config.sasl_oauthbearer_jwt_retriever_class == f"{PACKAGE}ClientCredentialsJwtRetriever"


@pytest.mark.parametrize(
    ("given", "retriever"),
    [
        ({}, "ClientCredentialsJwtRetriever"),
        ({RETRIEVER: f"{PACKAGE}DefaultJwtRetriever"}, "ClientCredentialsJwtRetriever"),
        ({URL: "file:///run/token"}, "FileJwtRetriever"),
        ({URL: "file:/run/token", RETRIEVER: f"{PACKAGE}FileJwtRetriever"}, "FileJwtRetriever"),
        ({RETRIEVER: f"{PACKAGE}JwtBearerJwtRetriever", "sasl.oauthbearer.assertion.file": "/a"},
         "JwtBearerJwtRetriever"),
        ({RETRIEVER: f"{PACKAGE}JwtBearerJwtRetriever", "sasl.oauthbearer.assertion.private.key.file": "/k"},
         "JwtBearerJwtRetriever"),
    ],
)  # fmt: skip
def test_the_default_retriever_goes_by_the_url(given, retriever):
    assert parsed(**given).sasl_oauthbearer_jwt_retriever_class == f"{PACKAGE}{retriever}"


def test_credentials_may_come_from_options_of_kafka_4_without_a_login_module():
    names = "sasl.oauthbearer.client.credentials.client"
    config = parsed(jaas=None, **{f"{names}.id": "me", f"{names}.secret": "hunter2"})
    assert config.sasl_oauthbearer_client_credentials_client_id == "me"
    assert "hunter2" not in repr(config)


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({HANDLER: None}, f"{HANDLER} is required with OAUTHBEARER: {PACKAGE}OAuthBearerLoginCallbackHandler."),
        ({HANDLER: "io.strimzi.Login"}, f"{HANDLER} is 'io.strimzi.Login', a class that only a JVM can run; write "
         f"{PACKAGE}OAuthBearerLoginCallbackHandler and the identity provider's {URL}."),
        ({URL: None}, f"{URL} is required with OAUTHBEARER: the identity provider's URL for tokens, or file:/path."),
        ({URL: "idp/token"}, f"{URL} must begin with https://, http:// or file:/."),
        ({"jaas": f'{MODULE} required clientId="me";'}, "sasl.oauthbearer.client.credentials.client.secret is required "
         f"with OAUTHBEARER, or clientSecret in sasl.jaas.config: {EXAMPLE}"),
        ({RETRIEVER: f"{PACKAGE}FileJwtRetriever"}, f"{RETRIEVER} is FileJwtRetriever, which needs a file: URL in "
         f"{URL}."),
        ({URL: "file:/t", RETRIEVER: f"{PACKAGE}JwtBearerJwtRetriever"}, f"{RETRIEVER} is JwtBearerJwtRetriever, which "
         f"needs an http or https URL in {URL}."),
        ({RETRIEVER: f"{PACKAGE}JwtBearerJwtRetriever"}, f"{RETRIEVER} is JwtBearerJwtRetriever, which needs "
         "sasl.oauthbearer.assertion.private.key.file or sasl.oauthbearer.assertion.file."),
        ({"jaas": f'{MODULE} required {CLIENT} extension_auth="x";'}, "sasl.jaas.config has extension_auth, "
         "but the name of an extension has only letters and is not auth."),
        ({"jaas": f'{MODULE} required {CLIENT} extension_a_b="x";'}, "sasl.jaas.config has extension_a_b, but "
         "the name of an extension has only letters and is not auth."),
        ({"jaas": f'{MODULE} required {CLIENT} extension_a="\\001";'}, "sasl.jaas.config has extension_a, whose value "
         "is empty or has control characters or others outside ASCII."),
        ({"sasl.login.refresh.window.factor": "1.5"}, "sasl.login.refresh.window.factor must be a number from 0.5 to "
         "1.0, but is '1.5'."),
        ({"sasl.login.refresh.window.factor": "nan"}, "sasl.login.refresh.window.factor must be a number from 0.5 to "
         "1.0, but is 'nan'."),
        ({"sasl.oauthbearer.assertion.algorithm": "none"}, "sasl.oauthbearer.assertion.algorithm must be one of RS256, "
         "ES256, but is 'none'."),
    ],
)  # fmt: skip
def test_options_of_oauthbearer_that_cannot_log_in_are_refused_with_what_to_write(given, reason):
    assert fault(oauth(**given)) == reason


def test_an_unknown_retriever_is_refused_with_the_known_ones():
    assert fault(oauth(**{RETRIEVER: "com.example.Mine"})).startswith(
        f"{RETRIEVER} must be one of {PACKAGE}DefaultJwtRetriever, "
    )


# ``sasl.jaas.config`` is read as Java's parser reads it, and no error shows a part of it.


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="alice" password="p";', {"username": "alice", "password": "p"}),
        (f"{PLAIN} Required username='alice' password='p\"q';", {"username": "alice", "password": 'p"q'}),
        (
            f"{PLAIN} sufficient\n  username=alice\n  password=pw1.x-y_$;",
            {"username": "alice", "password": "pw1.x-y_$"},
        ),
        (f'{PLAIN} required password="a\\"b\\\\c\\td\\101\\477";', {"password": 'a"b\\c\tdA\x277'}),
        (f'{PLAIN} required // a comment; "\n /* an\nother */ password="//p/*;";', {"password": "//p/*;"}),
        (f'{PLAIN} required / a single slash too\n password="p";', {"password": "p"}),
        (f'{PLAIN} required "password" = "p" password="last";', {"password": "last"}),
        (f'{PLAIN} required password="pässwörd€🔑";', {"password": "pässwörd€🔑"}),
        (f"{PLAIN} required password=schlüssel;", {"password": "schlüssel"}),
        (
            f'{PLAIN} required password="ends with the line\nusername=a;',
            {"password": "ends with the line", "username": "a"},
        ),
        (f"{PLAIN} optional;", {}),
        (f'kafkashaded.{PLAIN} required password="p";', {"password": "p"}),
    ],
)
def test_a_login_module_is_read_as_java_does(text, options):
    module = parse_jaas(text)
    assert (module.name, module.options) == (PLAIN, options)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty; it must be a login module with its options"),
        ("  // nothing\n", "is empty; it must be a login module with its options"),
        (f'{PLAIN} required password="hunter2"', "must end with ';'"),
        (f'{PLAIN} username="a" password="hunter2";', "must have 'required' after the class of the login module"),
        (f"{PLAIN}", "must have 'required' after the class of the login module"),
        (f"{PLAIN} required; {PLAIN} required;", "has 2 login modules; it must have one, with one ';' at its end"),
        (f"{PLAIN} required; hunter2", "must have 'required' after the class of the login module in its login module "
         "number 2, after the first ';'"),
        ('"=" required;;', "does not begin with the class of a login module in its login module number 2, after the "
         "first ';'"),
        (f"{PLAIN} required password=2hunter;", "has no value that can be read for option number 1; a value that is "
         "empty, or begins with a digit or a special character, must be in double quotes"),
        (f"{PLAIN} required password=;", "has no value that can be read for option number 1; a value that is empty, "
         "or begins with a digit or a special character, must be in double quotes"),
        (f"{PLAIN} required username=a password=hunter2 is mine;", "has no '=' after the key of option number 3; a "
         'value with spaces or special characters must be in double quotes, with \\" for a quote and \\\\ for a '
         'backslash in it'),
        (f'{PLAIN} required password="hunter2 username="a";', "has no '=' after the key of option number 2; a value "
         'with spaces or special characters must be in double quotes, with \\" for a quote and \\\\ for a '
         'backslash in it'),
    ],
)  # fmt: skip
def test_the_error_says_what_is_wrong_without_the_password(text, reason):
    with pytest.raises(JaasError) as raised:
        parse_jaas(text)
    assert "hunter2" not in str(raised.value)
    assert str(raised.value) == reason


@given(st.dictionaries(st.from_regex(r"[A-Za-z_$][A-Za-z0-9_.$-]{0,8}", fullmatch=True), st.text(), max_size=4))
def test_every_value_survives_in_quotes(options):
    text = "".join(f' {key} = "{_escaped(value)}"' for key, value in options.items())
    assert parse_jaas(f"{PLAIN} required{text};").options == options


def _escaped(value):
    for char, escape in (("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n"), ("\r", "\\r")):
        value = value.replace(char, escape)
    return value


@given(st.text(alphabet=st.sampled_from("ab1.-_$ \n\r\t\"'\\/*=;,7\x7f\x85é€"), max_size=40))
def test_any_text_is_read_or_refused_without_showing_it(text):
    try:
        read = str(parse_jaas(f"{PLAIN} required {text}").name)
    except JaasError as error:
        read = str(error).replace("login module", "")
    assert read == PLAIN or PLAIN not in read
