import pytest

from spark_kafka_sink.errors import ConfigError
from spark_kafka_sink.kafka08.console import LineError, LineReader


def reader(**properties: str) -> LineReader:
    return LineReader.parse("t", [(name.replace("_", "."), value) for name, value in properties.items()])


def read(line: bytes, **properties: str) -> tuple[object, ...]:
    record = reader(**properties).record(line, 1)
    assert record.topic == "t"
    return record.headers, record.key, record.value


@pytest.mark.parametrize(
    ("properties", "line", "expected"),
    [
        ({}, b"value\n", (None, None, b"value")),
        ({}, b"a\tb\r\n", (None, None, b"a\tb")),
        ({}, b"\n", (None, None, b"")),
        ({}, b"\xff\xfe\n", (None, None, b"\xff\xfe")),
        ({"parse_key": "TRUE", "key_separator": "::"}, b"k::v\n", (None, b"k", b"v")),
        ({"parse_key": "true"}, b"\t\n", (None, b"", b"")),
        ({"parse_headers": "true"}, b"a:1,b:2,a:\tv\n", ([("a", b"1"), ("b", b"2"), ("a", b"")], None, b"v")),
        ({"parse_headers": "true", "parse_key": "true"}, b"a:x:y\tk\tv\n", ([("a", b"x:y")], b"k", b"v")),
        (
            {"parse_headers": "true", "headers_delimiter": "|", "headers_separator": ";", "headers_key_separator": "="},
            b"a=1;b=2|v\n",
            ([("a", b"1"), ("b", b"2")], None, b"v"),
        ),
        ({"null_marker": "-", "parse_key": "true"}, b"-\t-\n", (None, None, None)),
        ({"null_marker": "-", "parse_headers": "true"}, b"a:-\tv\n", ([("a", None)], None, b"v")),
        ({"null_marker": "-", "parse_headers": "true"}, b"-\tv\n", ([], None, b"v")),
        ({"null_marker": "", "parse_key": "true"}, b"k\t\n", (None, b"k", None)),
    ],
)
def test_a_line_becomes_headers_key_and_value(properties, line, expected):
    assert read(line, **properties) == expected


@pytest.mark.parametrize(
    ("properties", "line", "said"),
    [
        ({"parse_key": "true"}, b"no key\n", r"no key separator ('\\t') in 'no key'"),
        ({"parse_headers": "true"}, b"a:1\n", r"no headers delimiter ('\\t') in 'a:1'"),
        ({"parse_headers": "true"}, b"a\tv\n", "no header key separator (':') in 'a'"),
        ({"parse_headers": "true", "null_marker": "-"}, b"-:1\tv\n", "a header's name cannot be null, as in '-:1'"),
        ({"parse_headers": "true"}, b"\xff:1\tv\n", "is not UTF-8"),
        ({"parse_key": "true"}, b"x" * 1000, "xxx…"),
    ],
)
def test_a_line_that_cannot_be_read_is_an_error_with_its_number(properties, line, said):
    with pytest.raises(LineError) as caught:
        reader(**properties).record(line, 42)
    assert str(caught.value).startswith("line 42: ")
    assert said.replace(r"\\", "\\") in str(caught.value)
    assert len(str(caught.value)) < 200


def test_all_faulty_properties_come_in_one_error():
    with pytest.raises(ConfigError) as caught:
        LineReader.parse("t", [("parse.keys", "true"), ("parse.headers", "yes"), ("key.separator", "")])
    assert caught.value.faults == (
        "--property parse.keys is unknown; did you mean parse.key?",
        "--property parse.headers must be true or false, but is 'yes'.",
        "--property key.separator must not be empty.",
    )


@pytest.mark.parametrize(
    ("properties", "names"),
    [
        ({"parse_key": "true", "null_marker": "\t"}, "null.marker and key.separator"),
        ({"parse_headers": "true", "headers_separator": ":"}, "headers.separator and headers.key.separator"),
        ({"parse_headers": "true", "headers_delimiter": ","}, "headers.delimiter and headers.separator"),
    ],
)
def test_separators_that_cannot_be_told_apart_are_refused(properties, names):
    with pytest.raises(ConfigError, match=f"{names} must not be the same"):
        reader(**properties)
