"""``driverCheck``: what the driver finds out before the tasks, how often, and what is an error or a warning."""

import logging
import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
from kio.schema.errors import ErrorCode
from pyspark.sql.types import StringType, StructField, StructType

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import AuthenticationError, DriverCheckError, KafkaTimeoutError, UnsupportedVersionError
from spark_kafka_sink.spark import driver_check
from spark_kafka_sink.spark.driver_check import check_again, check_brokers
from spark_kafka_sink.spark.options import SinkOptions
from spark_kafka_sink.spark.sink_write import KafkaBatchWriter, KafkaStreamWriter
from spark_kafka_sink.spark.topic_creation import ensure_planned_topics
from spark_kafka_sink.testing import Listener, TestBroker
from spark_kafka_sink.testing.certificates import CertificateAuthority
from spark_kafka_sink.testing.listener import login
from tests.contract.brokers import broker_with
from tests.faults.test_hostile_broker import rewritten
from tests.support.child_processes import failure_in_fork
from tests.support.oauth_kafka import CLIENT_CREDENTIALS, SECRET, oidc_server
from tests.support.peers import nobody, peer, silent
from tests.support.waiting import DEADLINE_S, eventually, holds_for, lasts

SCHEMA = StructType([StructField("value", StringType())])
AN_HOUR_MS = 3_600_000.0
WRONG = {"kafka.sasl.jaas.config": login("SCRAM-SHA-512", "client", "wr0ng")}
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLogin"


@pytest.fixture(autouse=True)
def new_process(monkeypatch):
    monkeypatch.setattr(driver_check, "_checks", {})


broker = broker_with()
secure = broker_with(listeners={"SASL": Listener("SASL_PLAINTEXT"), "TLS": Listener("SSL")})


@pytest.fixture
def patient():
    """What ends early must not wait for the limit."""
    return {"kafka.max.block.ms": str(int(AN_HOUR_MS))}


def options(broker, **more):
    servers = broker if isinstance(broker, str) else broker.bootstrap_servers
    named = {f"kafka.{name.replace('_', '.')}": value for name, value in more.items()}
    return SinkOptions.parse({"kafka.bootstrap.servers": servers, "topic": "t", **named})


def plan(given, writer=KafkaBatchWriter):
    """As Spark does it for each write and micro-batch."""
    pickle.dumps(writer.of(SCHEMA, {"topic": "t", **given}))


def connections(broker):
    return len(broker.requests.of("ApiVersions"))


def warnings(caplog):
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


# What is refused is an error.


@pytest.mark.parametrize("writer", [KafkaBatchWriter, KafkaStreamWriter])
def test_a_wrong_password_is_an_error_before_any_task_after_one_attempt(secure, patient, writer, caplog):
    given = {**secure.spark_options("SASL"), **patient, **WRONG}
    with pytest.raises(DriverCheckError) as raised:
        plan(given, writer)
    assert len(secure.authentications) == 1
    text = str(raised.value)
    assert text.startswith("No task was started, because the driver could not log in to the brokers: ")
    assert "sasl.jaas.config" in text
    assert "driverCheck=false" in text
    assert "To try each step from this machine: spark-kafka-sink check" in raised.value.__notes__[0]
    assert isinstance(raised.value.__cause__, AuthenticationError)
    assert "wr0ng" not in text + "".join(warnings(caplog))
    assert isinstance(raised.value, pickle.PickleError), "Spark passes it on unchanged"


def test_a_refused_login_is_tried_again_by_the_next_write(secure, patient):
    for _ in range(2):
        with pytest.raises(DriverCheckError):
            plan({**secure.spark_options("SASL"), **patient, **WRONG})
    assert len(secure.authentications) == 2


@pytest.mark.parametrize("refuses", ["driver", "broker"])
def test_a_refused_certificate_is_an_error_that_names_the_option(patient, refuses):
    """tests/unit/connection_check has each other step that can fail."""
    with TestBroker(listeners={"TLS": Listener("SSL", client_auth="required")}) as broker:
        given = {**broker.spark_options("TLS"), **patient}
        if refuses == "driver":
            given["kafka.ssl.truststore.certificates"] = CertificateAuthority().certificate
        else:
            given = {name: value for name, value in given.items() if "keystore" not in name}
        with pytest.raises(DriverCheckError, match="truststore" if refuses == "driver" else r"ssl\.keystore\.location"):
            plan(given)


def test_a_login_that_one_server_refuses_is_an_error_while_another_does_not_respond(secure, patient):
    with peer(silent) as quiet:
        given = secure.spark_options("SASL")
        servers = f"{quiet},{given['kafka.bootstrap.servers']}"
        with pytest.raises(DriverCheckError):
            plan({**given, **patient, **WRONG, "kafka.bootstrap.servers": servers})


def test_a_client_secret_that_the_token_endpoint_refuses_is_an_error(secure, patient):
    with oidc_server() as oidc, pytest.raises(DriverCheckError, match="HTTP status 401") as raised:
        plan({**oauth(secure, oidc.token_url, SECRET.upper()), **patient})
    assert SECRET.upper() not in str(raised.value)


def oauth(broker, url, secret=SECRET):
    jaas = CLIENT_CREDENTIALS.replace(SECRET, secret)
    return {
        "kafka.bootstrap.servers": broker.servers("SASL"),
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.token.endpoint.url": url,
        "kafka.sasl.jaas.config": f"{OAUTH}Module required {jaas};",
        "kafka.sasl.login.callback.handler.class": f"{OAUTH}CallbackHandler",
    }


def test_tls_against_a_listener_without_tls_was_left_to_the_tasks(broker, patient):
    with pytest.raises(DriverCheckError, match=r"could not connect to the brokers: .* responded without TLS"):
        plan({"kafka.bootstrap.servers": broker.bootstrap_servers, "kafka.security.protocol": "SSL", **patient})


# No way to a broker: the driver waits, and no task does.

NOTE = "set driverCheck=false if only the executors can reach the brokers or have the files."
ONCE = {"deliveryGuarantee": "exactly-once", "txnAppId": "a", "txnVersion": "1"}
NO_NAME = "no-such-host.invalid:9092"


@pytest.mark.parametrize("more", [{}, ONCE, {"topicCreation": "create"}], ids=["plain", "exactly once", "topics"])
@pytest.mark.parametrize("why", ["nothing listens", "nothing responds", "one name exists", "no name exists, KIP-909"])
def test_incident_each_task_waited_for_brokers_that_the_driver_could_not_reach(why, more, caplog, monkeypatch):
    monkeypatch.setattr(driver_check, "_SILENT_MS", 100)
    limit = {"kafka.bootstrap.resolve.timeout.ms": "700"} if "909" in why else {"kafka.max.block.ms": "700"}
    with nobody() as unused, peer(silent) as quiet:
        servers = {"nothing responds": quiet, "one name exists": f"{NO_NAME},{unused}"}.get(why, unused)
        servers = f"{NO_NAME},other.invalid:1" if "909" in why else servers
        with lasts(0.7), pytest.raises(DriverCheckError) as raised:
            plan({"kafka.bootstrap.servers": servers, **limit, **more})
    text = str(raised.value)
    assert text.startswith("No task was started, because the driver could not connect to the brokers: ")
    assert all(server in text for server in servers.split(","))
    assert text.endswith(NOTE)
    (warned,) = warnings(caplog)
    assert warned.startswith("The driver is waiting for a broker before it starts the tasks. It waits up to ")


@pytest.mark.parametrize("more", [{}, {"kafka.client.dns.lookup": "resolve_canonical_bootstrap_servers_only"}, ONCE])
def test_names_that_do_not_exist_are_an_error_at_once(patient, more):
    with pytest.raises(DriverCheckError, match=r"no-such-host\.invalid.*other\.invalid"):
        plan({"kafka.bootstrap.servers": f"{NO_NAME},other.invalid:1", **patient, **more})


def test_a_broker_that_starts_late_is_waited_for(patient):
    with TestBroker() as late, ThreadPoolExecutor() as threads:
        late.kill(1)
        waiting = threads.submit(plan, {"kafka.bootstrap.servers": late.bootstrap_servers, **patient})
        assert holds_for(lambda: not waiting.done(), 0.5)
        late.start(1)
        waiting.result(DEADLINE_S)


def test_a_login_that_is_refused_for_a_moment_is_waited_for(secure, patient):
    limited = {"error_code": ErrorCode.sasl_authentication_failed, "error_message": "[id]: Too many connects"}
    fault = secure.faults.mangle("SaslAuthenticate", rewritten("sasl_authenticate", **limited))
    write = KafkaBatchWriter.of(SCHEMA, {"topic": "t", **secure.spark_options("SASL"), **patient})
    write.begin()
    assert fault.hits == 1
    assert pickle.loads(pickle.dumps(write)).logged_in


# What may be different on the executors is a warning.


FILE_PROVIDER = {
    "kafka.config.providers": "file",
    "kafka.config.providers.file.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}


@pytest.mark.parametrize(
    "more",
    [
        {"kafka.ssl.truststore.location": "/only/executors", "kafka.ssl.truststore.type": "PEM"},
        {"kafka.ssl.keystore.location": "/only/executors", "kafka.ssl.keystore.type": "PEM"},
        {**FILE_PROVIDER, "kafka.ssl.key.password": "${file:/only/executors:password}"},
    ],
    ids=["truststore", "keystore", "password"],
)
def test_a_file_that_only_executors_have_is_a_warning(secure, patient, caplog, more):
    plan({"kafka.bootstrap.servers": secure.servers("TLS"), "kafka.security.protocol": "SSL", **patient, **more})
    (text,) = warnings(caplog)
    assert "/only/executors" in text
    assert not secure.authentications


def test_a_token_endpoint_that_the_driver_does_not_reach_is_a_warning(secure, caplog):
    with nobody() as server:
        plan({**oauth(secure, f"http://{server}/token"), "kafka.max.block.ms": "500"})
    (text,) = warnings(caplog)
    assert "token.endpoint.url" in text
    assert SECRET not in text


def test_a_token_in_a_file_that_only_executors_have_is_a_warning(secure, patient, caplog):
    plan({**oauth(secure, "file:///only/executors"), **patient})
    (text,) = warnings(caplog)
    assert "/only/executors" in text


def test_one_server_of_several_that_works_is_enough(broker, patient, caplog):
    with peer(silent) as quiet, nobody() as unused:
        given = {"kafka.bootstrap.servers": f"{unused},{quiet},{broker.bootstrap_servers}", **patient}
        plan(given)
        plan(given)
    assert connections(broker) == 1
    assert warnings(caplog) == []


# How often.

MISSING_FILE = {"security_protocol": "SSL", "ssl_truststore_location": "/only/executors"}


@pytest.mark.parametrize("writer", [KafkaBatchWriter, KafkaStreamWriter])
def test_a_second_micro_batch_makes_no_connection(secure, writer, caplog):
    for _ in range(3):
        plan(secure.spark_options("SASL"), writer)
    assert len(secure.authentications) == 1
    assert warnings(caplog) == []


def test_a_look_that_ended_with_a_warning_is_repeated_later_and_warns_once(broker, caplog, monkeypatch):
    asked = options(broker, **MISSING_FILE)
    check_brokers(asked)
    looks = _counted_looks(monkeypatch)
    check_brokers(asked)
    assert looks == []
    monkeypatch.setattr(driver_check._checks[asked.producer], "valid_until", SystemClock().now())
    check_brokers(asked)
    assert len(looks) == 1
    assert len(warnings(caplog)) == 1


def _counted_looks(monkeypatch):
    looks: list[object] = []
    connect = driver_check._connect

    def counted(config, clock):
        looks.append(config)
        return connect(config, clock)

    monkeypatch.setattr(driver_check, "_connect", counted)
    return looks


def test_after_a_failed_write_the_next_one_is_checked(secure):
    given = secure.spark_options("SASL")
    plan(given)
    KafkaBatchWriter.of(SCHEMA, {"topic": "t", **given}).abort([None])
    plan(given)
    assert len(secure.authentications) == 2


def test_incident_after_a_warning_a_failed_write_was_followed_by_ten_minutes_without_a_check(broker, monkeypatch):
    """The password's file was missing at first, and then had a wrong password, which each task found."""
    asked = options(broker, **MISSING_FILE)
    check_brokers(asked)
    looks = _counted_looks(monkeypatch)
    check_again(asked)
    check_brokers(asked)
    check_brokers(asked)
    assert len(looks) == 1


def test_other_options_are_another_look(broker):
    for user in ("a", "b", "a"):
        check_brokers(options(broker, client_id=user))
    assert connections(broker) == 2


def test_the_options_that_a_process_remembers_are_limited(broker, monkeypatch):
    monkeypatch.setattr(driver_check, "_MAX_CHECKS", 3)
    for number in range(5):
        check_brokers(options(broker, client_id=str(number)))
    assert len(driver_check._checks) == 3


def test_threads_with_the_same_options_make_one_connection(secure):
    asked = SinkOptions.parse({"topic": "t", **secure.spark_options("SASL")})
    with ThreadPoolExecutor(8) as threads:
        for each in [threads.submit(check_brokers, asked) for _ in range(8)]:
            each.result(DEADLINE_S)
    assert len(secure.authentications) == 1


def test_incident_threads_with_the_same_options_waited_for_a_dead_broker_one_after_the_other(monkeypatch):
    asked, callers, attempts = options("nobody:1"), [], []

    def counted(config, find=driver_check._find_check):
        callers.append(config)
        return find(config)

    def connect(config, clock):
        attempts.append(config)
        eventually(lambda: len(callers) == 8)
        raise KafkaTimeoutError("nobody responds")

    monkeypatch.setattr(driver_check, "_find_check", counted)
    monkeypatch.setattr(driver_check, "_connect", connect)
    with ThreadPoolExecutor(8) as threads:
        for each in [threads.submit(check_brokers, asked) for _ in range(8)]:
            with pytest.raises(DriverCheckError, match="nobody responds") as raised:
                each.result(DEADLINE_S)
            assert isinstance(raised.value.__cause__, KafkaTimeoutError)
    assert len(attempts) == 1
    callers.clear()
    callers += range(7)
    with pytest.raises(DriverCheckError, match="nobody responds"):
        check_brokers(asked)
    assert len(attempts) == 2, "a later write tries again"


def test_a_fork_during_a_check_does_not_wait_for_it(broker):
    asked = options(broker)
    check_brokers(asked)
    with driver_check._lock, driver_check._checks[asked.producer].lock:
        assert failure_in_fork(lambda: check_brokers(asked)) == ""
    assert connections(broker) == 2


# Where there is none.


@pytest.mark.parametrize("value", ["false", "FALSE"])
def test_without_the_check_the_driver_connects_to_no_broker(broker, value):
    plan({"kafka.bootstrap.servers": broker.bootstrap_servers, "driverCheck": value})
    assert not broker.requests


def test_exactly_once_adds_one_login_to_those_of_planning(secure):
    once = {"deliveryGuarantee": "exactly-once", "txnAppId": "app", "txnVersion": "1"}
    logins = []
    for check in ("false", "true"):
        plan({**secure.spark_options("SASL"), **once, "txnAppId": check, "driverCheck": check})
        logins.append(len(secure.authentications))
        secure.authentications.clear()
    assert logins[1] == logins[0] + 1


def test_a_topic_is_looked_up_once(secure):
    secure.create_topic("t")
    plan({**secure.spark_options("SASL"), "topicCreation": "never"}, KafkaStreamWriter)
    assert holds_for(lambda: len(secure.authentications) <= 3, 0.1)
    known = len(secure.authentications)
    plan({**secure.spark_options("SASL"), "topicCreation": "never"}, KafkaStreamWriter)
    assert len(secure.authentications) == known


def test_topic_creation_without_a_topic_to_look_up_is_checked(secure):
    rows = StructType([*SCHEMA, StructField("topic", StringType())])
    given = {**secure.spark_options("SASL"), "topicCreation": "never"}
    pickle.dumps(KafkaBatchWriter.of(rows, given))
    assert len(secure.authentications) == 1


# What the brokers cannot do.


def test_idempotence_that_was_asked_for_is_an_error_before_any_task():
    with TestBroker(api_versions={"InitProducerId": None}) as broker:
        with pytest.raises(UnsupportedVersionError, match="does not support InitProducerId, which enable.idempotence"):
            check_brokers(options(broker, enable_idempotence="true"))
        assert {each.api for each in broker.requests} == {"ApiVersions"}
        check_brokers(options(broker))


def test_zstd_for_older_brokers_is_an_error_before_any_task():
    with TestBroker(like="2.1", api_versions={"Produce": (0, 6)}) as broker:
        broker.create_topic("t")
        never = SinkOptions.parse({
            "kafka.bootstrap.servers": broker.bootstrap_servers, "topic": "t", "topicCreation": "never",
            "kafka.compression.type": "zstd",
        })  # fmt: skip
        for check, asked in ((check_brokers, options(broker, compression_type="zstd")), (ensure_planned_topics, never)):
            with pytest.raises(UnsupportedVersionError, match=r"Produce in versions 0 to 6.*compression.type=zstd"):
                check(asked)
