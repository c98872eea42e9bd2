"""``sasl.jaas.config``: one login module and its options (Java: ``JaasConfig``, ``JaasContext``, ``StreamTokenizer``).

No error shows a word of the text unless it is the known name of a login module or an option, because a missing quote
makes a password look like a name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

SHADED: Final = "kafkashaded."
"""Databricks renames the packages of its Kafka client."""

_FLAGS: Final = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_OCTAL: Final = "01234567"
_LINE_ENDS: Final = ("\n", "\r", "")


class JaasError(ValueError):
    """The text is not a JAAS configuration of one login module. The message follows the option's name."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module: its class, without ``kafkashaded.``, and its options, which hold secrets."""

    name: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """The login module in a text ``<class> <flag> <key>=<value> …;``. Raises ``JaasError``."""
    tokens = _Tokens(text)
    modules: list[LoginModule] = []
    while (first := tokens.next()).kind is not JaasKind.END:
        modules.append(_module(first, tokens, len(modules) + 1))
    if not modules:
        raise JaasError("is empty; it must be a login module with its options")
    if len(modules) > 1:
        raise JaasError(f"has {len(modules)} login modules; it must have one, with one ';' at its end")
    return modules[0]


def _module(first: JaasToken, tokens: _Tokens, number: int) -> LoginModule:
    where = "" if number == 1 else f" in its login module number {number}, after the first ';'"
    if first.text is None:
        raise JaasError(f"does not begin with the class of a login module{where}")
    flag = tokens.next().text
    if flag is None or flag.upper() not in _FLAGS:
        raise JaasError(f"must have 'required' after the class of the login module{where}")
    options: dict[str, str] = {}
    while (key := tokens.next()).kind is not JaasKind.SEMICOLON:
        place = f"option number {len(options) + 1}{where}"
        if key.kind is JaasKind.END:
            raise JaasError(f"must end with ';'{where}")
        if tokens.next().kind is not JaasKind.EQUALS:
            raise JaasError(
                f"has no '=' after the key of {place}; a value with spaces or special characters must be in double "
                "quotes, "
                'with \\" for a quote and \\\\ for a backslash in it'
            )
        value = tokens.next().text
        if value is None:
            raise JaasError(
                f"has no value that can be read for {place}; a value that is empty, or begins with a digit or a "
                "special character, must be in double quotes"
            )
        options["" if key.text is None else key.text] = value
    return LoginModule(first.text.removeprefix(SHADED), options)


class JaasKind(Enum):
    """Kinds of tokens, as far as a login module needs them."""

    TEXT = "text"
    EQUALS = "="
    SEMICOLON = ";"
    OTHER = "other"
    END = "end"


class JaasToken(NamedTuple):
    """A token. Words and quoted strings have a ``text``, which ``repr`` hides because it may be a secret."""

    kind: JaasKind
    text: str | None = None

    def __repr__(self) -> str:
        return f"JaasToken({self.kind.name})"


class _Tokens:
    """Java's ``StreamTokenizer`` with the settings of ``JaasConfig``: comments, ``-``, ``_`` and ``$`` in words."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def next(self) -> JaasToken:
        self._skip()
        char = self._peek()
        if not char:
            return JaasToken(JaasKind.END)
        if _is_digit(char) or char in ".-":
            return self._number(char)
        if _is_alpha(char):
            return JaasToken(JaasKind.TEXT, self._word())
        if char in "\"'":
            return JaasToken(JaasKind.TEXT, self._quoted(char))
        self._at += 1
        return JaasToken({"=": JaasKind.EQUALS, ";": JaasKind.SEMICOLON}.get(char, JaasKind.OTHER))

    def _peek(self) -> str:
        """The next character, "" at the end."""
        return self._text[self._at : self._at + 1]

    def _skip(self) -> None:
        """Skips spaces and comments."""
        while char := self._peek():
            if char == "/":
                self._comment()
            elif char <= " ":
                self._at += 1
            else:
                return

    def _comment(self) -> None:
        """Skips a comment: ``/* */`` or ``//``. A single ``/`` begins one, too."""
        if self._text.startswith("/*", self._at):
            end = self._text.find("*/", self._at + 2)
            self._at = len(self._text) if end < 0 else end + 2
            return
        while self._peek() not in _LINE_ENDS:
            self._at += 1

    def _number(self, first: str) -> JaasToken:
        """Reads a number, which is not a word. A ``-`` without a digit after it is a token of its own."""
        self._at += 1
        if first == "-" and not (self._peek() == "." or _is_digit(self._peek())):
            return JaasToken(JaasKind.OTHER)
        dots = 1 if first == "." else 0
        while _is_digit(char := self._peek()) or (char == "." and dots == 0):
            dots += char == "."
            self._at += 1
        return JaasToken(JaasKind.OTHER)

    def _word(self) -> str:
        start = self._at
        while (char := self._peek()) and (_is_alpha(char) or _is_digit(char) or char == "."):
            self._at += 1
        return self._text[start : self._at]

    def _quoted(self, quote: str) -> str:
        """Reads up to the same quote, or to the end of the line."""
        self._at += 1
        taken = []
        while (char := self._peek()) not in _LINE_ENDS and char != quote:
            self._at += 1
            taken.append(self._escape() if char == "\\" else char)
        if char == quote:
            self._at += 1
        return "".join(taken)

    def _escape(self) -> str:
        """Reads what follows a backslash: up to three octal digits, one of C's letters, or the character itself."""
        first = self._peek()
        self._at += 1
        if not first or first not in _OCTAL:
            return _ESCAPES.get(first, first)
        digits = first
        while len(digits) < (3 if first <= "3" else 2) and (char := self._peek()) and char in _OCTAL:
            digits += char
            self._at += 1
        return chr(int(digits, 8))


def _is_digit(char: str) -> bool:
    return "0" <= char <= "9"


def _is_alpha(char: str) -> bool:
    return ("a" <= char <= "z") or ("A" <= char <= "Z") or char in ("-", "_", "$") or char >= "\xa0"
