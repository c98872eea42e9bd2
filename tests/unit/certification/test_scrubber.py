"""What is left of secrets, users and hosts in a verdict: nothing."""

import pytest

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.testing.listener import login
from spark_kafka_sink.tools.certification.certificate import Certificate
from spark_kafka_sink.tools.certification.scrubber import Scrubber, process_user
from spark_kafka_sink.tools.connection_check.findings import Finding, Outcome

HOST, ADDRESS, CLIENT = "kafka1.corp.example", "10.1.2.3", "laptop"
ACCOUNT, USER, PASSWORD = "dave", "alice", 'pä ss\\w"0rd'
MARK, PREFIXES = "certify-01234567", ("shop.orders", "team/x.app", "spark-kafka-sink")
TOKEN = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJ4In0.c2ln"


def scrubber(jaas=None, **options):
    options = {
        "bootstrap.servers": f"{HOST}:9093,{ADDRESS}:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": jaas or login("SCRAM-SHA-512", USER, PASSWORD),
        **options,
    }
    return Scrubber(ProducerConfig.parse(options), [HOST, ADDRESS, CLIENT], [ACCOUNT], MARK, PREFIXES)


SECRETS = {
    "as given": (f"refused {PASSWORD} of it", "refused <secret> of it"),
    "over a line end": ("refused " + PASSWORD.replace(" ", "\n") + " of it", "refused <secret> of it"),
    "jaas": (f"read {login('SCRAM-SHA-512', USER, PASSWORD)} here", "read <secret> here"),
    "part of a jaas": (
        'Module required username="bob" password="a\\"b c";',
        "Module required username=<user> password=<secret>;",
    ),
    "assigned": ("password=hunter22, x", "password=<secret>, x"),
    "quoted": ("ssl.key.password='hunter 22'", "ssl.key.password=<secret>"),
    "told": ("Password: hunter22 x", "Password: <secret> x"),
    "json": ('{"client_secret": "hunter22", "a": 1}', '{"client_secret": <secret>, "a": 1}'),
    "header": ("Authorization: Bearer abc.def-g", "Authorization: Bearer <secret>"),
    "basic": ("Authorization: Basic dXNlcjpwdw==", "Authorization: Basic <secret>"),
    "another scheme": ("Authorization: ApiKey hunter22, x", "Authorization: ApiKey <secret>, x"),
    "without a scheme": ("Authorization: hunter22 x", "Authorization: <secret> x"),
    "short": ("passwd=hunter22 or pwd=hunter22", "passwd=<secret> or pwd=<secret>"),
    "api key": ("x-api-key: hunter22, apikey:hunter22", "x-api-key: <secret>, apikey:<secret>"),
    "registry": ("schema.registry.basic.auth.user.info=bob:hunter22", "<host 1>=<secret>"),
    "jwt": (f"the server refuses {TOKEN} now", "the server refuses <secret> now"),
    "access key": ("the key AKIAIOSFODNN7EXAMPLE is invalid", "the key <secret> is invalid"),
    "temporary access key": ("(ASIAIOSFODNN7EXAMPLE)", "(<secret>)"),
    "signed URL": (
        "X-Amz-Credential=AKIAIOSFODNN7EXAMPLE/20260101/us-east-1&X-Amz-Signature=abcdef01&X-Amz-Expires=900",
        "X-Amz-Credential=<secret>&X-Amz-Signature=<secret>&X-Amz-Expires=900",
    ),
    "header of AWS": (
        "Credential=abc/20260101/us-east-1, SignedHeaders=host, Signature=abc",
        "Credential=<secret>, SignedHeaders=host, Signature=<secret>",
    ),
    "shared access signature": ("sr=x&sig=abc%3d&se=1", "sr=x&sig=<secret>&se=1"),
    "pem": ("x -----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY----- y", "x <secret> y"),
    "cut pem": ("x -----BEGIN PRIVATE KEY-----\nMIIE\nAbCd…", "x <secret>"),
    "escaped cut pem": ("x -----BEGIN PRIVATE KEY-----\\nMIIE\\nAbCd", "x <secret>"),
}


@pytest.mark.parametrize("name", SECRETS)
def test_no_secret_is_left(name):
    said, left = SECRETS[name]
    assert scrubber()(said) == left


@pytest.mark.parametrize(
    ("options", "secret"),
    [
        ({"ssl.truststore.location": "/a.p12", "ssl.truststore.password": "trust-pw"}, "trust-pw"),
        ({"ssl.keystore.location": "/a.p12", "ssl.keystore.password": "store-pw"}, "store-pw"),
        ({"ssl.key.password": "key-pw", "ssl.keystore.location": "/a.p12", "ssl.keystore.password": "store"}, "key-pw"),
    ],
)
def test_each_password_of_the_options_is_a_secret(options, secret):
    assert scrubber(**options)(f"open {secret}!") == "open <secret>!"


def test_a_password_from_a_placeholder_is_a_secret(monkeypatch):
    monkeypatch.setenv("CERTIFY_PASSWORD", "from-the-environment")
    scrubbed = scrubber(login("SCRAM-SHA-512", USER, "${env:CERTIFY_PASSWORD}"))
    assert scrubbed("refused from-the-environment") == "refused <secret>"
    monkeypatch.delenv("CERTIFY_PASSWORD")
    assert scrubber(login("SCRAM-SHA-512", USER, "${env:CERTIFY_PASSWORD}"))("told alice") == "told <user>"


def test_an_option_of_a_login_that_is_true_leaves_every_true_alone():
    """Incident: with a delegation token, each "true" of a verdict was a secret."""
    token = login("SCRAM-SHA-512", "id", "hmac-of-the-token").replace(";", ' tokenauth="true" other="false";')
    scrubbed = scrubber(token)
    assert scrubbed("driverCheck=true, enable.idempotence=false, hmac-of-the-token") == (
        "driverCheck=true, enable.idempotence=false, <secret>"
    )


@pytest.mark.parametrize("said", ["spark-kafka-sink 0.2", "kafka.acks, kafka.linger.ms", "kafka-topics.sh", "pykafka"])
def test_a_password_that_is_a_word_leaves_names_alone(said):
    """Incident: with the password "kafka" a verdict was of "spark-<secret>-sink"."""
    scrubbed = scrubber(login("SCRAM-SHA-512", USER, "kafka"))
    assert scrubbed(f"{said} refused kafka. 'kafka', x=kafka") == (f"{said} refused <secret>. '<secret>', x=<secret>")


URLS = {
    "http://user:pw@registry.corp:8081/a?token=abc refused": "http://<host 1>:8081/… refused",
    "https://user:p@ss/w@registry/a": "https://<host 1>/…",
    "see http://registry/x": "see http://<host 1>/…",
    "spark://master:7077": "spark://<host 1>:7077",
    "s3a://KEY:secret@bucket/x": "s3a://<host 1>/…",
    "jdbc://u:p/w@h": "jdbc://<host 1>",
}


@pytest.mark.parametrize("said", URLS)
def test_a_url_keeps_its_scheme_and_port(said):
    assert scrubber()(said) == URLS[said]


HOME = "/home"

USERS = {
    f"of {USER}'s": "of <user>'s",
    "principal User:carol may not": "principal User:<user> may not",
    "User:CN=carol,OU=x": "User:<user>",
    # Incident: AWS tells who may not assume a role, and only "User:" without a blank was taken for a user.
    "User: arn:aws:iam::123456789012:user/carol is not authorized": "User: <user> is not authorized",
    "arn:aws:sts::123456789012:assumed-role/etl/carol@corp.example, or": "<user>, or",
    "on (arn:aws-us-gov:iam::123456789012:role/carol)": "on (<user>)",
    "user carol is not allowed": "user <user> is not allowed",
    "refused for user 'carol'.": "refused for user <user>.",
    'User "carol" is unknown': "User <user> is unknown",
    "username: carol, no": "username: <user>, no",
    'by {"userName": "carol"}': 'by {"userName": <user>}',
    "Principal = carol, x": "Principal = <user>, x",
    "HTTP/host1@CORP.EXAMPLE has no ticket": "<user> has no ticket",
    f"Permission denied: /scratch/{ACCOUNT}/checkpoints": "Permission denied: /scratch/<user>/checkpoints",
    f"of {ACCOUNT}, not of {ACCOUNT}son": f"of <user>, not of {ACCOUNT}son",
    r"C:\Users\carol\x": r"C:\Users\<user>\x",
    "carol@CORP.EXAMPLE has no ticket": "<user> has no ticket",
    f'File "{HOME}/carol/lib/a.py"': f'File "{HOME}/<user>/lib/a.py"',
    f"in '{HOME}/carol'": f"in '{HOME}/<user>'",
    'user=carol, access=WRITE, inode="/user/carol":hdfs': 'user=<user>, access=WRITE, inode="/user/<user>":hdfs',
    "hdfs:/user/carol/checkpoints": "hdfs:/user/<user>/checkpoints",
}


@pytest.mark.parametrize("said", USERS)
def test_no_user_is_left(said):
    assert scrubber()(said) == USERS[said]


def test_the_client_of_oauth_is_a_user():
    """Incident: a token endpoint repeats the id that it does not know, and the scrubber knew only the secret."""
    jaas = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
    prefix = "sasl.oauthbearer."
    scrubbed = scrubber(jaas, **{
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.login.callback.handler.class":
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler",
        f"{prefix}token.endpoint.url": "https://idp/token",
        f"{prefix}client.credentials.client.id": "etl-carol",
        f"{prefix}client.credentials.client.secret": "topsecret9",
    })  # fmt: skip
    assert scrubbed("unknown client etl-carol with topsecret9") == "unknown client <user> with <secret>"


def test_a_user_from_a_placeholder_is_a_user(monkeypatch):
    monkeypatch.setenv("CERTIFY_USER", "erin")
    assert scrubber(login("SCRAM-SHA-512", "${env:CERTIFY_USER}", PASSWORD))("refused erin") == "refused <user>"


@pytest.mark.parametrize(("account", "user"), [("erin", "erin"), ("root", ""), ("spark", "")])
def test_the_account_of_the_process_is_a_user_unless_it_names_nobody(monkeypatch, account, user):
    monkeypatch.setattr("getpass.getuser", lambda: account)
    assert process_user() == user


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_an_account_may_have_no_name(monkeypatch, error):
    def unknown():
        raise error

    monkeypatch.setattr("getpass.getuser", unknown)
    assert process_user() == ""


HOSTS = {
    f"{HOST}:9093 is down": "<host 1>:9093 is down",
    f"{HOST.upper()} is down.": "<host 1> is down.",
    f"{HOST}/{ADDRESS}:9093": "<host 1>/<host 2>:9093",
    f"task on {CLIENT} failed": "task on <host 1> failed",
    "unknown:9092/3: Connect to ipv4#10.0.0.1:9092": "<host 2>:9092/3: Connect to ipv4#<host 1>:9092",
    "b-1.x.kafka.us-east-1.amazonaws.com (id 3)": "<host 1> (id 3)",
    "java.net.UnknownHostException: kafka7": "java.net.UnknownHostException: <host 1>",
    "Lost task 0.0 (TID 0) (worker-3 executor 1): x": "Lost task 0.0 (TID 0) (<host 1> executor 1): x",
    "Lost executor 3 on worker-3: gone": "Lost executor 3 on <host 1>: gone",
    # YARN's words
    "from a bad node: container_1 on host: node12. Exit": "from a bad node: container_1 on host: <host 1>. Exit",
    "executor driver on host node7, and node7 died": "executor driver on host <host 1>, and <host 1> died",
    "Could not resolve host: registry": "Could not resolve host: <host 1>",
    "worker-3/10.9.8.7:40000": "<host 2>/<host 1>:40000",
    "[2001:db8::1]:9092, then ::1": "[<host 1>]:9092, then <host 2>",
    "DNS of kafka-0:29092: Kafka-0 is unknown": "DNS of <host 1>:29092: <host 1> is unknown",
    "to kafka-0:29092, not kafka-01": "to <host 1>:29092, not kafka-01",
    "<kafka-7:9092>": "<<host 1>:9092>",
    "host:9092, the host": "<host 1>:9092, the <host 1>",
    # They were taken for packages of Java, or for Spark's settings.
    "kafka.internal:9092, kafka.internal": "<host 1>:9092, <host 1>",
    "spark.corp.example is down": "<host 1> is down",
    "org.acme.internal, jdk.lan and java.acme.example": "<host 1>, <host 2> and <host 3>",
    "py4j.acme.example, pyspark.acme.example": "<host 1>, <host 2>",
    # They were taken for Python files, because Paraguay's names end in .py.
    "kafka1.banco.com.py:9092, kafka2.banco.com.py": "<host 1>:9092, <host 2>",
}


@pytest.mark.parametrize("said", HOSTS)
def test_no_host_or_address_is_left(said):
    assert scrubber()(said) == HOSTS[said]


def test_a_host_has_the_same_number_in_every_text():
    scrubbed = scrubber()
    assert [scrubbed(each) for each in ("a.example", HOST, f"{HOST}:1, a.example:99")] == [
        "<host 1>", "<host 2>", "<host 2>:1, <host 1>:99",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "said",
    [
        "100,001 rows in 2 micro-batches in 1.5 s, 66,667 rows/s",
        "at 12:34:56 Spark 4.2.0, Python 3.13.1, spark-kafka-sink 0.9.0",
        "set kafka.max.block.ms, max.block.ms or spark.executor.memory, min.insync.replicas=2",
        # The settings of a ledger that the principal may not create: two of them were taken for hosts.
        "cleanup.policy=compact, compression.type=zstd; the ledger cannot do without cleanup.policy.",
        "num.partitions, transaction.state.log.min.isr, log.dirs, metadata.version 33",
        "org.apache.kafka.common.errors.TimeoutException at Socket.java:633 and writes.py:12",
        "java.net.SocketException, sun.nio.ch.NioSocketImpl, jdk.internal.misc and java.util.concurrent",
        "scala.collection.immutable, pyspark.sql.utils, pyspark.errors.exceptions.base, py4j.protocol",
        "org.apache.spark.sql.execution, spark_kafka_sink.errors, File /a/b-c/main.py:12, main.py",
        "CreateTopics of ledger-certify-01234567-check (CREATE on the topic or the cluster)",
        "no private key (a block -----BEGIN PRIVATE KEY-----) in ssl.keystore.key",
        "TOPIC_AUTHORIZATION_FAILED: authorization of the principal, with api keys",
        "the user is not known, and a user may not. User class threw exception: x; check user and password",
        "user {} is none of {}",
        "credentials: neither the environment nor a profile has any; signatures: the design=x",
        "deleted by: kafka-topics.sh --delete --topic '.*certify-01234567.*' (with --command-config)",
    ],
)
def test_what_helps_is_left(said):
    assert scrubber()(said) == said


@pytest.mark.parametrize(
    "said",
    [
        "topic shop.orders-certify-01234567-exactly-once-batch is not in the brokers' metadata",
        "shop.orders-certify-01234567-exactly-once-batch-3: NOT_LEADER_OR_FOLLOWER",
        "CREATE on topics that begin with shop.orders.",
        "InitProducerId of team/x.app-certify-01234567-batch-driver",
        "use txnAppId=certify-01234567-shop.orders-certify-01234567-exactly-once-stream.",
    ],
)
def test_a_topic_or_transactional_id_with_a_dot_was_taken_for_a_host(said):
    assert scrubber()(said) == said


@pytest.mark.parametrize(
    ("said", "left"),
    [
        ("shop.orders.example is down", "<host 1> is down"),
        ("shop.orders-2.example is down", "<host 1> is down"),
        ("b.shop.orders is down", "<host 1> is down"),
        ("shop.orders:9092 is down", "<host 1>:9092 is down"),
    ],
)
def test_a_host_whose_name_resembles_a_topic_is_replaced(said, left):
    assert scrubber()(said) == left


def test_the_text_of_a_verdict_is_one_line_a_step():
    finding = Finding("brokers", "connect", Outcome.FAILED, scrubber()(f"{HOST} said:\n no\n\nto {PASSWORD}"), 1.0)
    lines = Certificate([finding], {}, 0).text.splitlines()
    assert lines[-2] == "FAILED   brokers, connect: <host 1> said: no to <secret>"
