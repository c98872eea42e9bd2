"""Rules of the ``sasl.*`` and ``ssl.*`` options, and ``sasl.jaas.config``. No text shows a credential.

A mechanism is a plug-in: one file in ``network/login`` has the rules of its options and its messages, and one row of
``BUILT_IN`` names it. A row is written like an entry point and loaded when it is needed, because imports only go down:
a mechanism reads the parsed options, so the options cannot import it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol

from spark_kafka_sink.common.config.option import ConfigBuilder, did_you_mean, is_loopback, rule
from spark_kafka_sink.common.config.providers import SHADED, file_fault, has_placeholder

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
GROUP: Final = "spark_kafka_sink.sasl"
"""Entry points of this group are mechanisms (``sasl.mechanism``) or sources of tokens (``saslTokenProvider``)."""

_LOGIN: Final = "spark_kafka_sink.network.login"
BUILT_IN: Final[Mapping[str, str]] = MappingProxyType({
    "PLAIN": f"{_LOGIN}.passwords:Plain",
    "SCRAM-SHA-256": f"{_LOGIN}.passwords:ScramSha256",
    "SCRAM-SHA-512": f"{_LOGIN}.passwords:ScramSha512",
    "OAUTHBEARER": f"{_LOGIN}.oauthbearer:OAuthBearer",
    "GSSAPI": f"{_LOGIN}.kerberos:Kerberos",
})  # fmt: skip
OAUTHBEARER, GSSAPI = "OAUTHBEARER", "GSSAPI"
AWS_MECHANISM: Final = "AWS_MSK_IAM"
"""The name that Amazon's Java library has for logging in with tokens of AWS."""
AWS_MODULE: Final = "software.amazon.msk.auth.iam.IAMLoginModule"
PROVIDER: Final = "sasl.token.provider"
JAAS: Final = "sasl.jaas.config"
HANDLER: Final = "sasl.login.callback.handler.class"
TOKEN_URL: Final = "sasl.oauthbearer.token.endpoint.url"
LOGIN: Final = ("sasl.login.", "sasl.oauthbearer.", "sasl.kerberos.")
"""The beginnings of the names of options for logins with tokens and tickets."""

OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."
OAUTH_MODULE: Final = f"{OAUTH}OAuthBearerLoginModule"
LOGIN_HANDLERS: Final = (
    f"{OAUTH}OAuthBearerLoginCallbackHandler",
    f"{OAUTH}secured.OAuthBearerLoginCallbackHandler",
)
RETRIEVERS: Final = tuple(
    f"{OAUTH}{name}"
    for name in ("DefaultJwtRetriever", "FileJwtRetriever", "ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever")
)
DEFAULT_RETRIEVER, FILE_RETRIEVER, CLIENT_CREDENTIALS_RETRIEVER, JWT_BEARER_RETRIEVER = RETRIEVERS
ASSERTION_FILES: Final = tuple(f"sasl.oauthbearer.assertion.{name}file" for name in ("", "private.key.", "template."))

*_OTHERS, _LAST = BUILT_IN
_BUILT: Final = f"{', '.join(_OTHERS)} or {_LAST}"
_CLASS_NAME: Final = re.compile(r"[\w$]+(\.[\w$]+)+LoginModule", re.ASCII)


class BuiltIn(Protocol):
    """The class that a row of ``BUILT_IN`` names: a mechanism, which also has the rules of its options.

    ``login_modules``: Java's classes that hold its credentials, its own class first. ``example``: the value of
    ``sasl.jaas.config`` in errors. ``sends``: the secret that goes to the broker as it is, "" if none does. ``advice``:
    where to look when a broker has refused the credentials.
    """

    login_modules: tuple[str, ...]
    example: str
    sends: str
    advice: str

    def check(self, draft: ConfigBuilder, module: LoginModule | None) -> None:
        """Checks the options of a draft, ``check_login_module`` first unless the mechanism needs no login module.

        ``module``: None if there is none, or if placeholders hide it; then the login checks it.
        """

    def module_fault(self, options: Mapping[str, str]) -> str | None:
        """Why the options of the login module cannot log in; the text follows ``sasl.jaas.config``. Called by rules and
        by logins."""

    def __call__(self, config: Any, /) -> Any:
        """Makes the ``SaslMechanism`` for a ``ProducerConfig``. (This file can import neither class.)"""


def built_in(mechanism: str) -> BuiltIn | None:
    """The class of a mechanism; None if it is not built in."""
    path = BUILT_IN.get(mechanism)
    if path is None:
        return None
    from importlib.metadata import EntryPoint  # takes 10 ms, and few processes log in

    loaded: BuiltIn = EntryPoint(mechanism, path, GROUP).load()
    return loaded


@rule("security.protocol", "sasl.mechanism", JAAS, PROVIDER, *LOGIN)
def sasl(draft: ConfigBuilder) -> None:
    """SASL_PLAINTEXT and SASL_SSL need a known mechanism, in upper or lower case, and credentials for it."""
    protocol, mechanism = draft.values["security.protocol"], draft.values["sasl.mechanism"]
    if mechanism.upper() in BUILT_IN:
        draft.values["sasl.mechanism"] = mechanism = mechanism.upper()
    if not protocol.startswith("SASL_"):
        if given := [name for name in ("sasl.mechanism", JAAS, PROVIDER) if name in draft.given]:
            draft.warn(
                given[0], f"has no effect, as {draft.prefix}security.protocol is {protocol}; SASL needs SASL_SSL."
            )
        return
    from importlib.metadata import entry_points

    module = _login_module(draft)
    asks_for_tokens = draft.values[PROVIDER] or mechanism == AWS_MECHANISM
    if not asks_for_tokens and "sasl.mechanism" not in draft.given and not _means_kerberos(draft, module):
        suited = " or ".join(_mechanisms_of(module)) if module is not None else ""
        draft.fault(
            "sasl.mechanism", f"is not set, and its default is GSSAPI (Kerberos); set it to {suited or _BUILT}."
        )
    elif (found := built_in(OAUTHBEARER if asks_for_tokens else mechanism)) is not None:
        found.check(draft, module)
    elif not entry_points(group=GROUP, name=mechanism):
        guess = did_you_mean(mechanism, BUILT_IN)
        draft.fault(
            "sasl.mechanism",
            f"must be {_BUILT}, or the name of an entry point of the group {GROUP}, but is {mechanism!r}{guess or '.'}",
        )


@rule("bootstrap.servers", "security.protocol", "sasl.mechanism")
def clear_text_login(draft: ConfigBuilder) -> None:
    """Warns about a mechanism that sends its secret with SASL_PLAINTEXT, unless all brokers are on this machine."""
    of_this_machine = all(is_loopback(host) for host, _ in draft.values["bootstrap.servers"])
    if draft.values["security.protocol"] != "SASL_PLAINTEXT" or of_this_machine:
        return
    found = built_in(draft.values["sasl.mechanism"])
    if found is not None and found.sends:
        draft.caution(
            "security.protocol", f"has no TLS, so the {found.sends} crosses the network in clear text; write SASL_SSL."
        )


def check_login_module(draft: ConfigBuilder, module: LoginModule | None) -> None:
    """``sasl.jaas.config`` must have a login module of the mechanism, unless placeholders hide it."""
    mechanism = draft.values["sasl.mechanism"]
    if JAAS in draft.faulty:
        return
    if module is not None:
        if (fault := credentials_fault(mechanism, module, draft.prefix)) is not None:
            draft.fault(JAAS, fault)
    elif draft.values[JAAS] is None and (found := built_in(mechanism)) is not None:
        tokens = " Delegation tokens that Spark fetches cannot be used: they are not available in Python workers."
        draft.fault(JAAS, f"is required with {mechanism}: {found.example}{tokens if draft.prefix else ''}")


def credentials_fault(mechanism: str, module: LoginModule, prefix: str = "") -> str | None:
    """Why ``module`` has no credentials of ``mechanism``; the text follows the option's name.

    A class that is not the known name of a login module is not shown: it may be a password in the wrong place.
    """
    found = built_in(mechanism)
    if found is None:
        return None
    if module.name in found.login_modules:
        return found.module_fault(module.options)
    shown = module.name if _CLASS_NAME.fullmatch(module.name) else "a class that is not a known login module"
    suited = _mechanisms_of(module)
    other = f", or set {prefix}sasl.mechanism={suited[0]}" if len(suited) == 1 else ""
    return f"has {shown}, which does not log in with {mechanism}; write {found.example}{other}"


def _means_kerberos(draft: ConfigBuilder, module: LoginModule | None) -> bool:
    """Whether Java's default mechanism is meant: the login module is Kerberos' or placeholders hide it."""
    if module is not None:
        return GSSAPI in _mechanisms_of(module)
    return draft.values[JAAS] is not None


def _mechanisms_of(module: LoginModule) -> list[str]:
    """The mechanisms whose own login module this is."""
    if module.name == AWS_MODULE:
        return [AWS_MECHANISM]
    return [name for name in BUILT_IN if (found := built_in(name)) and found.login_modules[0] == module.name]


def _login_module(draft: ConfigBuilder) -> LoginModule | None:
    """The login module. None without one, and if placeholders stand for parts of it: then the login checks it."""
    config = draft.values[JAAS]
    try:
        return None if config is None else parse_jaas(config.value)
    except JaasError as error:
        if has_placeholder(config.value):
            return None
        draft.fault(JAAS, f"{error}.")
        return None


NARROWS_TLS_1_3 = sys.version_info >= (3, 15)  # SSLContext.set_ciphersuites
VERSIONS: Final = ("TLSv1.2", "TLSv1.3")
_OLDER: Final = ("TLSv1", "TLSv1.1")
"""Versions that Java disabled in 2021 (``jdk.tls.disabledAlgorithms``). Configurations still name them."""

_PEM: Final = "-BEGIN "
STORES: Final = (
    "ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.certificates",
    "ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.key", "ssl.keystore.certificate.chain",
)  # fmt: skip

_NO_CIPHER: Final = "TLS_EMPTY_RENEGOTIATION_INFO_SCSV"
"""Listed by Java, but not a cipher suite: it says that the client renegotiates securely."""

TLS_1_3: Final = ("TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256")
"""The cipher suites of TLS 1.3, which OpenSSL knows by the same names. It allows all three, unless
``SSLContext.set_ciphersuites`` narrows them."""

_GCM: Final = ("AES_256_GCM_SHA384", "AES_128_GCM_SHA256")
_CHACHA: Final = "CHACHA20_POLY1305_SHA256"
_CBC: Final = ("AES_128_CBC_SHA256", "AES_256_CBC_SHA", "AES_128_CBC_SHA")
_CIPHERS: Final = {
    "ECDHE_ECDSA": (*_GCM, _CHACHA, "AES_256_CBC_SHA384", *_CBC),
    "ECDHE_RSA": (*_GCM, _CHACHA, "AES_256_CBC_SHA384", *_CBC),
    "DHE_RSA": (*_GCM, _CHACHA, "AES_256_CBC_SHA256", *_CBC),
    "DHE_DSS": (*_GCM, "AES_256_CBC_SHA256", *_CBC),
    "RSA": (*_GCM, "AES_256_CBC_SHA256", *_CBC),
}


def _openssl_name(exchange: str, cipher: str) -> str:
    """OpenSSL's name of a cipher suite: ``ECDHE-RSA-AES256-SHA384`` for ``ECDHE_RSA`` with ``AES_256_CBC_SHA384``."""
    plain = cipher.replace("AES_", "AES").replace("CBC_", "").replace("POLY1305_SHA256", "POLY1305")
    return f"{exchange}_{plain}".removeprefix("RSA_").replace("_", "-")


TLS_1_2: Final[Mapping[str, str]] = MappingProxyType({
    f"TLS_{exchange}_WITH_{cipher}": _openssl_name(exchange, cipher)
    for exchange, ciphers in _CIPHERS.items() for cipher in ciphers
})  # fmt: skip
"""Java's names of the cipher suites that a current JVM negotiates → OpenSSL's names."""


@rule(*STORES)
def tls_stores(draft: ConfigBuilder) -> None:
    """A store is one file, or inline PEM (Java: ``createKeystore`` and ``createTruststore``)."""
    values = draft.values
    for name in STORES:
        values[name] = values[name] or None
    for store, inline in (("truststore", "ssl.truststore.certificates"), ("keystore", "ssl.keystore.key")):
        location, password = f"ssl.{store}.location", f"ssl.{store}.password"
        if _PEM in (values[location] or ""):  # not shown: it may be a private key
            draft.fault(location, f"must be the path of a file, but is PEM; set that as {draft.prefix}{inline}.")
        elif values[location] is not None and (fault := file_fault(values[location])) is not None:
            draft.forbid(location, fault)
        elif values[location] is not None and values[inline] is not None:
            draft.fault(inline, f"and {draft.prefix}{location} are both given; leave one of them out.")
        elif values[location] is None and values[password] is not None:
            draft.fault(password, f"is given without {draft.prefix}{location}, whose password it is.")
    key, chain = "ssl.keystore.key", "ssl.keystore.certificate.chain"
    if (values[key] is None) != (values[chain] is None):
        given, missing = (key, chain) if values[chain] is None else (chain, key)
        draft.fault(given, f"needs {draft.prefix}{missing}: the private key and its certificates come together.")


@rule("security.protocol")
def tls_without_effect(draft: ConfigBuilder) -> None:
    """Warns about ``ssl.*`` options if ``security.protocol`` asks for no TLS, as its default."""
    protocol = draft.values["security.protocol"]
    given = [name for name in draft.given if name.startswith("ssl.")]
    if given and protocol not in ("SSL", "SASL_SSL"):
        draft.warn(
            min(given), f"has no effect, as {draft.prefix}security.protocol is {protocol}; TLS needs SSL or SASL_SSL."
        )


@rule("ssl.enabled.protocols", "ssl.protocol")
def tls_versions(draft: ConfigBuilder) -> None:
    """Puts ``ssl.enabled.protocols`` in order, without versions that ``ssl.protocol`` excludes; empty means all.

    Older versions are ignored in a list without gaps that has TLSv1.2.
    """
    values, name = draft.values, "ssl.enabled.protocols"
    spelt = {version.lower(): version for version in (*_OLDER, *VERSIONS)}
    given = [spelt.get(version.lower(), version) for version in values[name]]
    ignored = _OLDER if "TLSv1.1" in given and "TLSv1.2" in given else ()
    for version in given:
        if version not in VERSIONS and version not in ignored:
            draft.fault(name, f"has {version!r}; TLSv1.2 and TLSv1.3 are the versions in use, leave the others out.")
    if older := [version for version in ignored if version in given]:
        draft.warn(name, f"has {', '.join(older)}, ignored: neither OpenSSL nor Java allows them by default.")
    enabled = [version for version in VERSIONS if version in given] or list(VERSIONS)
    if values["ssl.protocol"] == "TLSv1.2":
        if enabled == ["TLSv1.3"]:
            draft.fault("ssl.protocol", f"is TLSv1.2, but {draft.prefix}{name} allows only TLSv1.3; leave one out.")
        enabled = ["TLSv1.2"]
    values[name] = tuple(enabled)


@rule("ssl.enabled.protocols", "ssl.protocol", "ssl.cipher.suites")
def tls_cipher_suites(draft: ConfigBuilder) -> None:
    """Cipher suites have Java's names. A TLS version without any of the given suites leaves
    ``ssl.enabled.protocols``."""
    values, name = draft.values, "ssl.cipher.suites"
    values[name] = suites = tuple(dict.fromkeys(value for value in values[name] if value and value != _NO_CIPHER))
    for suite in suites:
        if suite not in TLS_1_2 and suite not in TLS_1_3:
            draft.fault(name, f"has {suite!r}, which is not a cipher suite of TLSv1.2 or TLSv1.3; leave it out.")
    if not suites or name in draft.faulty:
        return
    of_version = {"TLSv1.2": TLS_1_2, "TLSv1.3": TLS_1_3}
    enabled = values["ssl.enabled.protocols"]
    usable = tuple(version for version in enabled if any(suite in of_version[version] for suite in suites))
    if not usable:
        draft.fault(
            name, f"has no cipher suite of {', '.join(enabled)}, which {draft.prefix}ssl.enabled.protocols allows."
        )
    values["ssl.enabled.protocols"] = usable
    missing = [suite for suite in TLS_1_3 if suite not in suites]
    if "TLSv1.3" in usable and missing and not NARROWS_TLS_1_3:
        draft.fault(
            name,
            f"leaves out {', '.join(missing)}, which Python before 3.15 cannot; name all three of TLSv1.3, or none of "
            "them to use TLSv1.2.",
        )


_FLAGS: Final = frozenset({"REQUIRED", "REQUISITE", "SUFFICIENT", "OPTIONAL"})
_TOKEN: Final = re.compile(
    r"""(?>[\x00-\x20]+|/\*.*?(?:\*/|\Z)|/[^\r\n]*)*+  # spaces and comments; a single / begins one, too
    (?:(?P<word>[^\x00-\#%-@\[-^`{-\x9f][^\x00-\#%-,/:-@\[-^`{-\x9f]*)  # letters, _ and $; then -, . and digits, too
    |(?P<quote>["'])(?P<quoted>(?:\\.?|(?!(?P=quote))[^\\\r\n])*+)(?P=quote)?  # to the quote, or the end of the line
    |(?P<mark>-?[0-9]+(?:\.[0-9]*)?|-?\.[0-9]*|.?))""",  # a number is not a word
    re.DOTALL | re.VERBOSE,
)
_ESCAPE: Final = re.compile(r"\\(?:(?P<octal>[0-3][0-7]{0,2}|[4-7][0-7]?)|(?P<other>.?))", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_TEXT: Final = "text"


class JaasError(ValueError):
    """The text is not a JAAS configuration of one login module. The message follows the option's name."""


@dataclass(frozen=True, slots=True)
class LoginModule:
    """A login module: its class, without ``kafkashaded.``, and its options, which hold secrets."""

    name: str
    options: Mapping[str, str] = field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """The login module in a text ``<class> <flag> <key>=<value> …;``. Raises ``JaasError``.

    No error shows a word of the text, because a missing quote makes a password look like a name. (Java: ``JaasConfig``,
    ``JaasContext``, ``StreamTokenizer``.)
    """
    tokens = _tokens(text)
    modules: list[LoginModule] = []
    while (first := next(tokens)).mark:
        modules.append(_module(first, tokens, len(modules) + 1))
    if not modules:
        raise JaasError("is empty; it must be a login module with its options")
    if len(modules) > 1:
        raise JaasError(f"has {len(modules)} login modules; it must have one, with one ';' at its end")
    return modules[0]


class JaasToken(NamedTuple):
    """A word or quoted string, whose ``text`` may be a secret, or another ``mark``, which is "" at the end."""

    mark: str
    text: str | None = None

    def __repr__(self) -> str:
        return "JaasToken(…)"


def _module(first: JaasToken, tokens: Iterator[JaasToken], number: int) -> LoginModule:
    where = "" if number == 1 else f" in its login module number {number}, after the first ';'"
    if first.text is None:
        raise JaasError(f"does not begin with the class of a login module{where}")
    flag = next(tokens).text
    if flag is None or flag.upper() not in _FLAGS:
        raise JaasError(f"must have 'required' after the class of the login module{where}")
    options: dict[str, str] = {}
    while (key := next(tokens)).mark != ";":
        place = f"option number {len(options) + 1}{where}"
        if key.mark == "":
            raise JaasError(f"must end with ';'{where}")
        if next(tokens).mark != "=":
            raise JaasError(
                f"has no '=' after the key of {place}; a value with spaces or special characters must be in double "
                'quotes, with \\" for a quote and \\\\ for a backslash in it'
            )
        value = next(tokens).text
        if value is None:
            raise JaasError(
                f"has no value that can be read for {place}; a value that is empty, or begins with a digit or a "
                "special character, must be in double quotes"
            )
        options["" if key.text is None else key.text] = value
    return LoginModule(first.text.removeprefix(SHADED), options)


def _tokens(text: str) -> Iterator[JaasToken]:
    for token in _TOKEN.finditer(text):
        if token["quote"]:
            yield JaasToken(_TEXT, _ESCAPE.sub(_unescape, token["quoted"]))
        else:
            yield JaasToken(_TEXT, token["word"]) if token["word"] else JaasToken(token["mark"])


def _unescape(escape: re.Match[str]) -> str:
    """The character of an escape: octal digits, one of C's letters, or the character itself."""
    return chr(int(escape["octal"], 8)) if escape["octal"] else _ESCAPES.get(escape["other"], escape["other"])
