"""Config providers: values for the placeholders ``${alias:path:key}`` and ``${alias:key}`` in other options.

Java: ``ConfigTransformer``, ``FileConfigProvider``, ``DirectoryConfigProvider``, ``EnvVarConfigProvider``. No error
shows the value of a placeholder. A ``Password`` keeps its placeholders; each login resolves them.

An operator can limit what options read, which URLs they send to, and what they load. The limits are set in the
environment of a process, and no option can widen them. Users who may set options, but not run code (SQL on a shared
server), could otherwise read files and variables of driver and executors through options, and send credentials to any
URL. Java's system properties for this are ``org.apache.kafka.automatic.config.providers`` (CVE-2024-31141) and
``org.apache.kafka.sasl.oauthbearer.allowed.urls`` and ``….allowed.files`` (CVE-2025-27817). Each variable is a list
with commas. A variable that is not set limits nothing; an empty one, or ``none``, allows nothing. Variables are read
when options are parsed, and again when a value is used.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Final, NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from spark_kafka_sink.common.config.option import (
    BadValueError,
    ConfigBuilder,
    OneOf,
    Option,
    OptionKind,
    Password,
    Status,
)
from spark_kafka_sink.errors import ConfigError

PROVIDERS: Final = "SPARK_KAFKA_SINK_AUTOMATIC_CONFIG_PROVIDERS"
FILES: Final = "SPARK_KAFKA_SINK_ALLOWED_FILES"
URLS: Final = "SPARK_KAFKA_SINK_ALLOWED_URLS"
CLASSES: Final = "SPARK_KAFKA_SINK_ALLOWED_CLASSES"

OPTION: Final = "config.providers"
SHADED: Final = "kafkashaded."
"""The prefix of class names in Databricks, which renames the packages of its Kafka client."""

_PACKAGE: Final = "org.apache.kafka.common.config.provider."
_PLACEHOLDER: Final = re.compile(r"\$\{(?P<alias>[^}:]*):(?:(?P<path>[^}:]*):)?(?P<key>[^}]*)\}")


def provider_fault(simple_name: str) -> str | None:
    """Why a config provider such as ``FileConfigProvider`` must not be used, None if it may.

    The text follows the placeholder or option. In the variable, the name may have Java's package.
    """
    allowed = _allowlist(PROVIDERS)
    if allowed is None or simple_name in {name.rpartition(".")[2] for name in allowed}:
        return None
    return f"needs {simple_name}, which {_does_not_allow(PROVIDERS)}"


def file_fault(path: str) -> str | None:
    """Why a file that an option names must not be read, None if it may; follows the option's name. Shows no value.

    A file is allowed by its absolute path or by the path of a folder above it. Links are followed: users who may write
    to such a folder decide what is in it. A path with ``..`` is refused, because behind a link it leads out of the
    folder.
    """
    allowed = _allowlist(FILES)
    if allowed is None:
        return None
    file = Path(os.path.abspath(path))
    if ".." not in Path(path).parts and any(file.is_relative_to(os.path.normpath(folder)) for folder in allowed):
        return None
    return f"names a file that {_does_not_allow(FILES)}"


def path_of_url(url: str) -> str:
    """The path in a ``file:`` URL. The check of a file and its reader both take the path from here, so that only the
    checked file is read.
    """
    return unquote(urlsplit(url).path)


def url_fault(url: str) -> str | None:
    """Why no request may be sent to a URL, None if it may; follows the option's name. Shows no value.

    As in Java, whole URLs are compared, except for a slash at the end: a prefix would allow other hosts or paths.
    """
    allowed = _allowlist(URLS)
    if allowed is None or url.strip().rstrip("/") in {other.rstrip("/") for other in allowed}:
        return None
    return f"has a URL that {_does_not_allow(URLS)}"


def class_fault(name: str) -> str | None:
    """Why a class ``package.module:Class``, or a source of tokens, must not be loaded; follows the option's name."""
    allowed = _allowlist(CLASSES)
    if allowed is None or name in allowed:
        return None
    return f"names {name!r}, which {_does_not_allow(CLASSES)}"


def _allowlist(variable: str) -> frozenset[str] | None:
    text = os.environ.get(variable)
    return None if text is None else frozenset(name.strip() for name in text.split(",")) - {"", "none"}


def _does_not_allow(variable: str) -> str:
    return f"the environment variable {variable} of this process does not allow"


class ProviderError(Exception):
    """A provider cannot look up a placeholder. The message follows the placeholder."""


class ConfigProvider(Protocol):
    """A source of values. Hashable, pickled to the workers, and read again at each call."""

    def get(self, path: str, key: str) -> str | None:
        """The value, or None. ``path`` is "" if the placeholder has none. Raises ``ProviderError``."""


@dataclass(frozen=True, slots=True)
class FileConfigProvider:
    """Reads the entry ``key`` of ``path``, a properties file in UTF-8. As in Java, it must be in ``allowed_paths``."""

    allowed_paths: tuple[str, ...] = ()

    def get(self, path: str, key: str) -> str | None:
        file = _allowed_path(path, self.allowed_paths)
        return None if file is None else parse_properties(_read(file)).get(key)


@dataclass(frozen=True, slots=True)
class DirectoryConfigProvider:
    """Reads the file ``key`` in the folder ``path``; its whole content in UTF-8 is the value."""

    allowed_paths: tuple[str, ...] = ()

    def get(self, path: str, key: str) -> str | None:
        folder = _allowed_path(path, self.allowed_paths)
        if folder is None or not key or Path(key).name != key or not (folder / key).is_file():
            return None
        return _read(folder / key)


@dataclass(frozen=True, slots=True)
class EnvVarConfigProvider:
    """Reads the environment variable ``key`` of this process, whose name must match ``allowlist_pattern``."""

    allowlist_pattern: str = ".*"

    def get(self, path: str, key: str) -> str | None:
        if path:
            raise ProviderError("takes no path: write ${alias:NAME}")
        if key not in os.environ or not re.fullmatch(self.allowlist_pattern, key):
            return None
        try:
            return os.environb[os.fsencode(key)].decode()
        except UnicodeDecodeError:
            raise ProviderError("is not UTF-8") from None


class Resolved(NamedTuple):
    """``text`` with values for its placeholders. Placeholders in ``missing`` have no value and stay in the text."""

    text: str
    missing: list[str]


@dataclass(frozen=True, slots=True)
class ConfigProviders:
    """The providers of a configuration by their aliases, which are in lower case because Spark lowers option names."""

    by_alias: tuple[tuple[str, ConfigProvider], ...]

    def resolve(self, text: str) -> Resolved:
        """Replaces the placeholders in ``text``, but not placeholders in their values. Raises ``ProviderError``."""
        missing: list[str] = []
        parts, end = [], 0
        for match in _PLACEHOLDER.finditer(text):
            provider = self._provider(match)
            value = None if provider is None else _look_up(provider, match)
            if value is None:
                missing.append(match[0])
            parts += [text[end : match.start()], match[0] if value is None else value]
            end = match.end()
        return Resolved("".join([*parts, text[end:]]), missing)

    def credential(self, name: str, text: str) -> str:
        """The value of the option ``name`` without placeholders. Raises ``ConfigError``, which shows no value."""
        try:
            resolved = self.resolve(text)
        except ProviderError as error:
            raise ConfigError([f"{name} has {error}."]) from None
        if resolved.missing:
            raise ConfigError([f"{name} has {', '.join(resolved.missing)}, for which there is no value."])
        return resolved.text

    def fault(self, text: str) -> str | None:
        """Why the placeholders of a credential cannot be resolved; None if that cannot be known without reading a
        value.

        The text follows the option's name. It shows no placeholder, because a password may look like one.
        """
        for match in _PLACEHOLDER.finditer(text):
            if (provider := self._provider(match)) is None:
                return f"has a placeholder ${{alias:…}} of an unknown config provider; the aliases are {self}."
            try:
                _check_limits(provider, match["path"])
            except ProviderError as error:
                return f"has a placeholder ${{alias:…}} that {error}."
        return None

    def _provider(self, placeholder: re.Match[str]) -> ConfigProvider | None:
        return dict(self.by_alias).get(placeholder["alias"].lower())

    def __str__(self) -> str:
        return ", ".join(alias for alias, _ in self.by_alias) or "none"


def has_placeholder(text: str) -> bool:
    return _PLACEHOLDER.search(text) is not None


def _look_up(provider: ConfigProvider, placeholder: re.Match[str]) -> str | None:
    try:
        _check_limits(provider, placeholder["path"])
        return provider.get(placeholder["path"] or "", placeholder["key"])
    except ProviderError as error:
        raise ProviderError(f"{placeholder[0]}: {error}") from None


def _check_limits(provider: ConfigProvider, path: str | None) -> None:
    """Raises ``ProviderError`` if the operator's limits of this process do not allow ``get``."""
    fault = provider_fault(type(provider).__name__)
    if fault is None and path and not isinstance(provider, EnvVarConfigProvider):
        fault = file_fault(path)
    if fault is not None:
        raise ProviderError(fault)


def _allowed_path(path: str, allowed_paths: tuple[str, ...]) -> Path | None:
    """The path, or None if it is not given or not below an allowed path (Java: ``AllowedPaths``)."""
    if not path:
        return None
    if not allowed_paths:
        return Path(path)
    normal = Path(os.path.normpath(path))
    return normal if any(normal.is_relative_to(allowed) for allowed in allowed_paths) else None


def _read(file: Path) -> str:
    if file.exists() and not file.is_file():
        raise ProviderError(f"{file} is not a file")
    try:
        return file.read_bytes().decode()
    except OSError as error:
        raise ProviderError(f"{file} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ProviderError(f"{file} is not UTF-8") from None


DEFAULTS: Final = ConfigProviders(
    (("dir", DirectoryConfigProvider()), ("env", EnvVarConfigProvider()), ("file", FileConfigProvider()))
)
_CLASSES: Final = {cls.__name__: cls for cls in (FileConfigProvider, DirectoryConfigProvider, EnvVarConfigProvider)}
"""The providers' classes. Each has one field, which is its parameter."""


def take_providers(draft: ConfigBuilder, given: Mapping[str, object]) -> dict[str, object]:
    """Puts the providers of ``config.providers…`` into the draft and returns the other options.

    The value of ``config.providers`` may be a ``ConfigProviders``.
    """
    own = {name: value for name, value in given.items() if is_of_providers(name)}
    draft.values[OPTION] = own.get(OPTION, DEFAULTS)
    if own and not isinstance(own.get(OPTION), ConfigProviders):
        draft.given.add(OPTION)
        draft.values[OPTION] = _providers(draft, {name.lower(): str(value).strip() for name, value in own.items()})
    return {name: value for name, value in given.items() if name not in own}


def is_of_providers(name: str) -> bool:
    return name == OPTION or name.startswith(f"{OPTION}.")


def _providers(draft: ConfigBuilder, own: dict[str, str]) -> ConfigProviders:
    aliases = sorted({alias.strip().lower() for alias in own.pop(OPTION, "").split(",")} - {""})
    made = [(alias, _provider(draft, f"{OPTION}.{alias}", own)) for alias in aliases]
    for name in own:
        draft.fault(name, f"belongs to none of the aliases in {draft.prefix}{OPTION} ({', '.join(aliases) or 'none'}).")
    return ConfigProviders(tuple((alias, provider) for alias, provider in made if provider is not None))


def _provider(draft: ConfigBuilder, prefix: str, own: dict[str, str]) -> ConfigProvider | None:
    """The provider of the options that begin with ``prefix``, which it removes from ``own``; None after a fault."""
    java_class = own.pop(f"{prefix}.class", "")
    names = [name for name in own if name.startswith(f"{prefix}.param.")]
    settings = {name.removeprefix(f"{prefix}.param."): own.pop(name) for name in names}
    simple = java_class.removeprefix(SHADED).removeprefix(_PACKAGE)
    found = _CLASSES.get(simple)
    if found is None:
        state = f"is {java_class!r}, which cannot be loaded without a JVM" if java_class else "is required"
        draft.fault(
            f"{prefix}.class",
            f"{state}; write {_PACKAGE}FileConfigProvider, DirectoryConfigProvider or EnvVarConfigProvider, or resolve "
            "the values in your own code.",
        )
        return None
    if (fault := provider_fault(simple)) is not None:
        draft.fault(f"{prefix}.class", f"{fault}.")
        return None
    parameter = fields(found)[0].name.replace("_", ".")
    value = settings.pop(parameter, None)
    for name in settings:
        draft.fault(f"{prefix}.param.{name}", f"is not a parameter of {simple}, which has {parameter}.")
    if found is EnvVarConfigProvider:
        return _variables(draft, f"{prefix}.param.{parameter}", value)
    allowed = _allowed_paths(draft, f"{prefix}.param.{parameter}", value)
    return FileConfigProvider(allowed) if found is FileConfigProvider else DirectoryConfigProvider(allowed)


def _variables(draft: ConfigBuilder, name: str, pattern: str | None) -> EnvVarConfigProvider | None:
    if pattern is None:
        return EnvVarConfigProvider()
    try:
        re.compile(pattern)
    except re.error as error:
        draft.fault(name, f"is not a regular expression: {error}.")
        return None
    return EnvVarConfigProvider(pattern)


def _allowed_paths(draft: ConfigBuilder, name: str, value: str | None) -> tuple[str, ...]:
    """The paths of ``allowed.paths``. As in Java, the paths must be absolute. They don't have to exist on the
    driver."""
    paths = tuple(path.strip() for path in value.split(",")) if value else ()
    for path in paths:
        if not os.path.isabs(path):
            draft.fault(name, f"has {path!r}; each path must be absolute.")
    return tuple(os.path.normpath(path) for path in paths)


def take(draft: ConfigBuilder, option: Option, value: object) -> None:
    """Puts the value of an option into the draft, or a fault. A ``Password`` keeps its placeholders."""
    name = option.name
    draft.given.add(name)
    if option.status is Status.JVM_ONLY:
        harmless = isinstance(option.valid, OneOf) and option.valid.find(str(value).strip())  # Java's default
        if not harmless:
            draft.fault(name, f"is refused, because it needs a JVM: {option.instead}.")
    elif option.status is Status.NOT_YET:
        draft.fault(name, f"is refused: {option.instead}.")
    else:
        try:
            draft.values[name] = option.parse(
                value if option.kind is OptionKind.PASSWORD else _resolve(draft, name, value)
            )
        except (BadValueError, ProviderError) as error:
            draft.fault(name, str(error))
        given, providers = draft.values[name], draft.values[OPTION]
        if isinstance(given, Password) and (fault := providers.fault(given.value)) is not None:
            draft.fault(name, fault)


def _resolve(draft: ConfigBuilder, name: str, value: object) -> object:
    """``value`` with its placeholders replaced, except for those without a value."""
    if not isinstance(value, str) or not has_placeholder(value):
        return value
    try:
        resolved = draft.values[OPTION].resolve(value).text
    except ProviderError as error:
        raise ProviderError(f"has {error}.") from None
    if resolved != value:
        draft.placeholders[name] = value
    return resolved


_LINE_END = re.compile(r"\r\n|\r|\n")
_BLANKS = " \t\f"
_COMMENT = ("#", "!")
_ENTRY = re.compile(r"(?P<name>(?:\\.|[^\\ \t\f:=])+)[ \t\f]*[:=]?[ \t\f]*(?P<value>.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    """The values by their names in a ``.properties`` file (``java.util.Properties.load``). A repeated name has its last
    value."""
    entries: dict[str, str] = {}
    lines = iter(_LINE_END.split(text))
    for line in lines:
        entry = line.lstrip(_BLANKS)
        if not entry or entry.startswith(_COMMENT):
            continue
        # An odd number of backslashes at the end continues the line.
        while (len(entry) - len(entry.rstrip("\\"))) % 2:
            entry = entry[:-1] + next(lines, "").lstrip(_BLANKS)
        if match := _ENTRY.fullmatch(entry):
            entries[_unescape(match["name"])] = _unescape(match["value"])
    return entries


def _unescape(text: str) -> str:
    """Replaces escapes. As in Java's strings, a character above U+FFFF is two escapes."""
    return _ESCAPE.sub(_plain, text).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _plain(escape: re.Match[str]) -> str:
    letter = escape[1]
    return chr(int(letter[1:], 16)) if len(letter) > 1 else _LETTERS.get(letter, letter)
