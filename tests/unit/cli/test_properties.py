import re
from dataclasses import replace
from pathlib import Path

from spark_kafka_sink.common.config import ProducerConfig
from spark_kafka_sink.tools.cli.command_line import read_properties

SAMPLE = Path(__file__).parents[3] / "conf" / "producer.properties"
DEFAULT = re.compile(r"^#([a-z.]+)=(.*)$", re.MULTILINE)


def properties(tmp_path, text):
    file = tmp_path / "some.properties"
    file.write_bytes(text)
    return read_properties(file)


def test_the_separators_comments_and_blanks_of_java(tmp_path):
    text = b"# comment\n! comment\n\na=1\n b : 2 \nc 3\nd=\ne\nf==x=y:z\r\ng=caf\xe9"
    assert properties(tmp_path, text) == {
        "a": "1", "b": "2 ", "c": "3", "d": "", "e": "", "f": "=x=y:z", "g": "café",
    }  # fmt: skip


def test_a_backslash_escapes_or_goes_on_with_the_next_line(tmp_path):
    text = rb"""a\:b\=c=x\ty
servers=one:9092,\
        two:9092
unicode=\u00e9\\
last=ends\
"""
    assert properties(tmp_path, text) == {
        "a:b=c": "x\ty", "servers": "one:9092,two:9092", "unicode": "é\\", "last": "ends",
    }  # fmt: skip


def test_only_java_s_blanks_and_line_ends_count(tmp_path):
    text = "a=\xe0\x85\u00a0\nb=\xc3\xa0 \rc=\x0b\r\nd=\x1c".encode("latin-1")
    assert properties(tmp_path, text) == {"a": "\xe0\x85\xa0", "b": "\xc3\xa0 ", "c": "\x0b", "d": "\x1c"}


def test_two_escapes_are_one_character_beyond_65535(tmp_path):
    assert properties(tmp_path, rb"password=\ud83d\ude00x") == {"password": "😀x"}


def test_the_last_of_two_counts(tmp_path):
    assert properties(tmp_path, b"acks=1\nacks=all") == {"acks": "all"}


def test_the_sample_is_valid_and_shows_the_defaults():
    given = read_properties(SAMPLE)
    shown = dict(DEFAULT.findall(SAMPLE.read_text()))
    assert len(shown) > 8
    assert replace(ProducerConfig.parse(given | shown), asked=frozenset()) == ProducerConfig.parse(given)
