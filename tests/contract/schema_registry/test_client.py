"""Each request, each error's text and each limit, against a scripted registry."""

import pickle
import re
import time

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from spark_kafka_sink.common.clock import SystemClock
from spark_kafka_sink.errors import RegistryError
from spark_kafka_sink.schemas.registry import client
from spark_kafka_sink.schemas.registry.client import ConfluentRegistry
from spark_kafka_sink.schemas.registry.registry_options import CONNECT_TIMEOUT, READ_TIMEOUT, ConfluentOptions
from spark_kafka_sink.schemas.registry.schema import RegisteredSchema, Schema, SchemaReference
from tests.support.manual_clock import ManualClock
from tests.support.peers import nobody, peer, responding
from tests.support.schema_registry_server import Fault, SchemaRegistryServer
from tests.support.waiting import lasts

INT = Schema("AVRO", '"int"')
LONG = Schema("AVRO", '"long"')
QUICK = {"schema.registry.retries.wait.ms": "5"}


@pytest.fixture
def server():
    with SchemaRegistryServer() as running:
        yield running


def registry(url, clock=None, **options):
    faults: list[str] = []
    parsed = ConfluentOptions.parse({"schema.registry.url": url, **QUICK, **options}, faults)
    assert parsed is not None, faults
    return ConfluentRegistry(parsed, clock or SystemClock())


def error_of(call, *args):
    with pytest.raises(RegistryError) as raised:
        call(*args)
    return raised.value


def test_a_registered_schema_has_id_version_and_guid(server):
    first, second = (registry(server.url).register("t-value", each) for each in (INT, LONG))
    assert (first.id, first.version, first.schema, first.guid) == (1, 1, INT, server.guid(1))
    assert (second.id, second.version, second.subject) == (2, 2, "t-value")
    assert registry(server.url).register("t-value", INT) == first


def test_a_registry_that_names_only_the_id_is_asked_for_the_version(server):
    server.names_versions = server.guids = False
    registered = registry(server.url).register("t-value", INT)
    assert (registered.id, registered.version, registered.guid) == (1, 1, None)
    assert [(each.method, each.path) for each in server.asked] == [
        ("POST", "/registry/subjects/t-value/versions"), ("POST", "/registry/subjects/t-value"),
    ]  # fmt: skip


def test_lookup_latest_and_by_id_find_what_is_registered(server):
    server.add("t-value", INT.text)
    server.add("t-value", LONG.text)
    client = registry(server.url)
    assert client.lookup("t-value", INT)[:3] == ("t-value", 1, 1)
    assert client.latest("t-value")[:4] == ("t-value", 2, 2, LONG)
    assert client.by_id(1, "t-value") == ("t-value", None, 1, INT, server.guid(1), ())
    assert server.asked[-1].query == {"subject": "t-value"}


def test_protobuf_is_named_with_its_imports_and_read_as_a_descriptor_where_asked(server):
    server.add("common", "message C {}", "PROTOBUF")
    schema = Schema("PROTOBUF", 'import "c.proto";', (SchemaReference("c.proto", "common", 1),))
    client = registry(server.url)
    assert client.register("t-value", schema).schema == schema
    assert server.asked[-1].body == {
        "schema": 'import "c.proto";', "schemaType": "PROTOBUF",
        "references": [{"name": "c.proto", "subject": "common", "version": 1}],
    }  # fmt: skip
    file = FileDescriptorProto.FromString(client.latest("t-value", serialized=True).schema.serialized_file())
    assert file.dependency == ["c.proto"]
    assert server.asked[-1].query == {"format": "serialized"}
    assert client.imports(schema) == {"c.proto": Schema("PROTOBUF", "message C {}")}


def test_imports_of_imports_come_before_those_that_import_them(server):
    server.add("a", "A", "PROTOBUF")
    a = {"name": "a.proto", "subject": "a", "version": 1}
    server.add("b", "B", "PROTOBUF", [a])
    b = SchemaReference("b.proto", "b", 1)
    schema = Schema("PROTOBUF", "C", (b, SchemaReference("a.proto", "a", 1)))
    assert list(registry(server.url).imports(schema)) == ["a.proto", "b.proto"]
    assert len(server.asked) == 2


@pytest.mark.parametrize("field", ["name", "subject", "schema"])
def test_incident_a_lone_surrogate_in_a_response_was_a_unicode_error(server, field):
    reference = {"name": "a", "subject": "a", "version": 1}
    content = {"id": 1, "version": 1, "schema": INT.text, "references": [reference]}
    (content if field == "schema" else reference)[field] = "\ud800"
    server.faults.append(Fault(200, content))
    assert "its response has" in str(error_of(registry(server.url).latest, "t-value"))


def test_incident_imports_of_megabytes_added_up(server, monkeypatch):
    """500 of 16 MB each were kept. Names are as long as the registry likes, too."""
    monkeypatch.setattr(client, "_MAX_BYTES", 10_000)
    references = []
    for number in range(3):
        server.add(f"s{number}", "A" * 4_000, "PROTOBUF")
        references.append(SchemaReference(f"{number}.proto", f"s{number}", 1))
    asked = registry(server.url)
    assert len(asked.imports(Schema("PROTOBUF", "C", (*references[:2],)))) == 2
    error = error_of(asked.imports, Schema("PROTOBUF", "C", (*references,)))
    assert "the imports of a schema have more than 10000 bytes together" in str(error)


def test_incident_imports_that_came_slowly_had_a_time_limit_each(server, monkeypatch):
    """500 imports could hold the caller for 500 times the timeouts."""
    clock = ManualClock()
    client = registry(server.url, clock, **{READ_TIMEOUT: "200", CONNECT_TIMEOUT: "200"})

    def slowly(reference, *, serialized):
        clock.advance(30)
        return RegisteredSchema(reference.subject, 1, 1, Schema("PROTOBUF", "A"))

    monkeypatch.setattr(client, "version", slowly)
    schemas = [
        Schema("PROTOBUF", "C", tuple(SchemaReference(f"{n}.proto", f"s{n}", 1) for n in range(count)))
        for count in (10, 20)
    ]
    assert len(client.imports(schemas[0])) == 10
    assert "the imports of a schema were not read within 400 ms" in str(error_of(client.imports, schemas[1]))


def test_normalize_schemas_is_asked_of_registrations_and_look_ups(server):
    client = registry(server.url, **{"normalize.schemas": "true"})
    client.register("t-value", INT)
    client.lookup("t-value", INT)
    assert [each.query for each in server.asked] == [{"normalize": "true"}] * 2
    registry(server.url).register("t-value", INT)
    assert server.asked[-1].query == {}


def test_subjects_are_percent_encoded_contexts_too(server):
    subject = ":.ctx:a/b ü?#-value"
    registry(server.url).register(subject, INT)
    assert server.asked[0].raw == "/registry/subjects/%3A.ctx%3Aa%2Fb%20%C3%BC%3F%23-value/versions"


def test_an_incompatible_schema_has_the_registrys_own_message(server):
    server.incompatible.add(INT.text)
    error = error_of(registry(server.url).register, "t-value", INT)
    assert (error.status, error.error_code) == (409, 409)
    assert str(error) == (
        f"schema.registry.url {server.url} cannot register a schema under subject t-value: HTTP status 409: Schema "
        "being registered is incompatible with an earlier schema for subject 't-value'; change the schema, or the "
        "compatibility of the subject."
    )
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize(
    ("path", "content"),
    [("/nothing", None), ("", b"<html>a wiki</html>"), ("", b"[1]"), ("", b""), ("", b"\xff")],
)
def test_a_url_that_is_no_registry_is_named(server, path, content):
    if content is not None:
        server.faults.append(Fault(200, content))
    error = error_of(registry(server.url + path).latest, "t-value")
    assert str(error).endswith("is this schema.registry.url complete, with its path?")
    assert "wiki" not in str(error)


@pytest.mark.parametrize(
    ("field", "value", "problem"),
    [
        ("id", None, "has no valid id, but None"),
        ("id", True, "has no valid id, but True"),
        ("id", 2**31, "has no valid id, but 2147483648"),
        ("guid", "x", "has no valid guid, but 'x'"),
        ("schema", 1, "has no schema"),
        ("schemaType", 5, "has no valid schemaType, but 5"),
        ("references", [{"name": "a"}], "has a reference without name, subject and version"),
    ],
)
def test_a_response_with_a_wrong_field_is_an_error_that_names_it(server, field, value, problem):
    server.faults.append(Fault(200, {"id": 1, "version": 1, "schema": '"int"', field: value}))
    error = error_of(registry(server.url).latest, "t-value")
    assert str(error).endswith(f"latest version of subject t-value: its response {problem}.")


def test_a_response_that_is_too_large_is_not_read(server):
    server.faults.append(Fault(200, b" " * 17_000_000))
    assert str(error_of(registry(server.url).latest, "t-value")).endswith("the response has more than 16000000 bytes.")


def test_redirects_are_not_followed(server):
    server.faults.append(Fault(302, b"", {"Location": "https://user:hunter2@elsewhere/subjects?key=hunter2"}))
    error = error_of(registry(server.url).latest, "t-value")
    assert str(error).endswith(
        "HTTP status 302; it redirects to https://elsewhere/subjects, where credentials are not sent: write that URL."
    )
    assert len(server.asked) == 1


def test_incident_a_body_that_was_compressed_many_times_was_decoded_past_every_deadline(server):
    for encoding in ("gzip, gzip, gzip, gzip", "deflate"):
        server.faults.append(Fault(200, b"\x1f\x8b", {"Content-Encoding": encoding}))
        error = error_of(registry(server.url).latest, "t-value")
        assert str(error).endswith("the response has a Content-Encoding, which was not asked for.")


def redirected(location):
    """The error of a registry that redirects, whose bytes no server library checks."""
    with peer(responding(b"HTTP/1.1 302 Found\r\nLocation: " + location + b"\r\nContent-Length: 0\r\n\r\n")) as address:
        return str(error_of(registry(f"http://{address}").latest, "t-value"))


def test_incident_a_redirect_to_a_url_that_cannot_be_parsed_raised_a_value_error():
    assert "it redirects to nowhere" in redirected(b"http://[")


def test_incident_the_location_of_a_redirect_reached_the_terminal_as_it_came():
    text = redirected(b"https://elsewhere/\x1b[2J\x9b" + b"x" * 50_000)
    assert r"it redirects to https://elsewhere/\x1b[2J\x9bxxx" in text
    assert text.isprintable()
    assert len(text) < 5_000


# -- retries and several URLs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_a_registry_in_trouble_is_asked_again(server, status):
    server.faults.extend([Fault(status)] * 3)
    assert registry(server.url).register("t-value", INT).id == 1
    assert len(server.asked) == 4


def test_max_retries_ends_the_retries(server):
    server.faults.extend([Fault(503, {"error_code": 50003, "message": "no\nleader"})] * 3)
    error = error_of(registry(server.url, **{"max.retries": "2"}).latest, "t-value")
    assert str(error).endswith("subject t-value: HTTP status 503, error code 50003: no leader.")
    assert (error.status, error.error_code, len(server.asked)) == (503, 50003, 3)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 409, 422, 501])
def test_a_refusal_is_final(server, status):
    server.faults.append(Fault(status, {"error_code": status, "message": "no"}))
    assert error_of(registry(server.url).latest, "t-value").status == status
    assert len(server.asked) == 1


def test_the_url_that_responded_stays_the_first_one(server):
    with SchemaRegistryServer() as other:
        other.faults.append(Fault(503))
        client = registry(f"{other.url},{server.url}")
        client.register("t-value", INT)
        client.latest("t-value")
        assert (len(other.asked), len(server.asked)) == (1, 2)


def test_all_urls_down_are_one_error_with_the_failure_of_each():
    with nobody() as one, nobody() as other:
        urls = [f"http://{each}/r" for each in (one, other)]
        error = error_of(registry(",".join(urls), **{"max.retries": "1"}).latest, "t-value")
    first, *others = str(error).splitlines()
    assert first.startswith("No schema.registry.url could read the latest version of subject t-value within ")
    assert others == [
        f"- schema.registry.url {url} cannot read the latest version of subject t-value: connection failed: Connection "
        "refused (does the server run there, and is there a way to it?)." for url in urls
    ]  # fmt: skip


def test_a_hanging_registry_is_given_up_at_the_deadline(server):
    server.hang.set()
    options = {"http.connect.timeout.ms": "300", "schema.registry.http.read.timeout.ms": "400"}
    error = error_of(registry(server.url, **options).latest, "t-value")
    # What was left of the 400 ms when the request was sent.
    assert re.search(r": no response within [1-4]\d* ms \(schema\.registry\.http\.read\.timeout\.ms\)\.$", str(error))


def test_a_hanging_registry_leaves_time_for_the_next_url(server):
    with SchemaRegistryServer() as hanging:
        hanging.hang.set()
        options = {"http.connect.timeout.ms": "4000", "http.read.timeout.ms": "4000"}
        with lasts(1.6):  # half of it, less what a clock rounds away
            assert registry(f"{hanging.url},{server.url}", **options).register("t-value", INT).id == 1


@pytest.mark.parametrize("begin", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{}"], ids=["nothing", "a part"])
def test_a_connection_that_ends_before_its_response_is_retried(begin):
    asked: list[bytes] = []

    def end(connection):
        asked.append(connection.recv(65_536))
        connection.sendall(begin)

    with peer(end) as address:
        error = error_of(registry(f"http://{address}", **{"max.retries": "1"}).latest, "t-value")
    assert len(asked) == 2
    assert ": no response: " in str(error)


@pytest.mark.parametrize("begin", [b"Content-Length: 1000000\r\n\r\n", b"X-Long: "], ids=["content", "headers"])
def test_a_response_that_never_ends_is_given_up_at_the_deadline(begin):
    def drip(connection):
        connection.sendall(b"HTTP/1.1 200 OK\r\n" + begin)
        while True:  # until the client closes the connection
            connection.sendall(b"x")
            time.sleep(0.02)

    options = {"http.connect.timeout.ms": "300", "http.read.timeout.ms": "300"}
    with peer(drip) as address:
        error = error_of(registry(f"http://{address}", **options).latest, "t-value")
    assert re.search(r": no whole response within [1-3]\d* ms", str(error))


# -- rules ------------------------------------------------------------------------------------------------------------


def rule(name, **others):
    return {"name": name, "kind": "TRANSFORM", "mode": "WRITEREAD", "type": "ENCRYPT", "disabled": False, **others}


def with_rules(rule_set):
    return Fault(200, {"id": 1, "version": 1, "schema": INT.text, "ruleSet": rule_set})


@pytest.mark.parametrize("ask", ["register", "lookup", "latest", "by_id"])
def test_each_response_tells_the_rules_that_writers_must_carry_out(server, ask):
    client = registry(server.url)
    request = {
        "register": lambda: client.register("t-value", INT),
        "lookup": lambda: client.lookup("t-value", INT),
        "latest": lambda: client.latest("t-value"),
        "by_id": lambda: client.by_id(1, "t-value"),
    }[ask]
    domain = [rule("pii"), rule("check", kind="CONDITION", mode="WRITE", type="CEL")]
    server.faults.append(with_rules({"domainRules": domain, "encodingRules": [rule("zip", type=None)]}))
    assert request().rules == ("pii (ENCRYPT)", "check (CEL)", "zip (None)")


@pytest.mark.parametrize(
    "rule_set",
    [
        None,
        {},
        {"domainRules": None, "migrationRules": None},
        {"domainRules": [rule("pii", disabled=True), rule("decrypt", mode="READ")]},
        {"domainRules": [rule("of a gateway")], "enableAt": "GATEWAY"},
        {"migrationRules": [rule("new", mode="UPGRADE"), rule("both", mode="UPDOWN")]},
    ],
)
def test_rules_that_are_none_of_a_writer_are_left_out(server, rule_set):
    server.faults.append(with_rules(rule_set))
    assert registry(server.url).latest("t-value").rules == ()


@pytest.mark.parametrize("value", ["all", "gateway", "", 5, ["GATEWAY"]])
def test_incident_rules_were_ignored_where_the_registry_said_something_else_about_the_place(server, value):
    server.faults.append(with_rules({"domainRules": [rule("pii")], "enableAt": value}))
    assert registry(server.url).latest("t-value").rules == ("pii (ENCRYPT)",)


@pytest.mark.parametrize("rule_set", [3, [], {"domainRules": 3}, {"encodingRules": {"name": "pii"}}])
def test_a_rule_set_of_another_shape_is_an_error(server, rule_set):
    server.faults.append(with_rules(rule_set))
    assert "its response has no valid ruleSet" in str(error_of(registry(server.url).latest, "t-value"))


def test_names_of_rules_are_shown_cut_and_without_control_characters(server):
    rules = [rule("\x1b[2J" + "x" * 500), "no object", rule("ok", mode="NEW")]
    server.faults.append(with_rules({"domainRules": rules}))
    shown, other, newer = registry(server.url).latest("t-value").rules
    assert shown.startswith("\\x1b[2Jxxx")
    assert len(shown) < 130
    assert (other, newer) == ("None (None)", "ok (ENCRYPT)")
