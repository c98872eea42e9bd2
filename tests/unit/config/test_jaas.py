"""``sasl.jaas.config`` is read as Java's parser reads it, and no error shows a part of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_kafka_sink.common.config.jaas import JaasError, parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


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
