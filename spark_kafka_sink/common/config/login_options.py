"""The options of logins with tokens and tickets: ``sasl.login.*``, ``sasl.oauthbearer.*``, ``sasl.kerberos.*``."""

from __future__ import annotations

from typing import Final

from spark_kafka_sink.common.config.option import AT_LEAST_0, AT_LEAST_1, Kind, OneOf, Option, Range, Status

BOOLEAN, INT, LONG, SHORT, DOUBLE = Kind.BOOLEAN, Kind.INT, Kind.LONG, Kind.SHORT, Kind.DOUBLE
STRING, LIST, CLASS, PASSWORD = Kind.STRING, Kind.LIST, Kind.CLASS, Kind.PASSWORD

OAUTH: Final = "org.apache.kafka.common.security.oauthbearer."
LOGIN_HANDLERS: Final = (
    f"{OAUTH}OAuthBearerLoginCallbackHandler",
    f"{OAUTH}secured.OAuthBearerLoginCallbackHandler",
)
RETRIEVERS: Final = tuple(
    f"{OAUTH}{name}"
    for name in ("DefaultJwtRetriever", "FileJwtRetriever", "ClientCredentialsJwtRetriever", "JwtBearerJwtRetriever")
)
DEFAULT_RETRIEVER, FILE_RETRIEVER, CLIENT_CREDENTIALS_RETRIEVER, JWT_BEARER_RETRIEVER = RETRIEVERS
_VALIDATORS = OneOf((f"{OAUTH}DefaultJwtValidator", f"{OAUTH}ClientJwtValidator"))

_ASSERTION: Final = "sasl.oauthbearer.assertion."
ASSERTION_FILES: Final = tuple(f"{_ASSERTION}{name}" for name in ("file", "private.key.file", "template.file"))

LOGIN_OPTIONS: Final[tuple[Option, ...]] = (
    Option("sasl.login.callback.handler.class", CLASS, None, "medium",
           f"With OAUTHBEARER: {LOGIN_HANDLERS[0]}, or Kafka 3's name of it, …oauthbearer.secured."
           "OAuthBearerLoginCallbackHandler. Required; other classes are refused."),
    Option("sasl.login.connect.timeout.ms", INT, 10000, "low",
           "Time to connect to the token endpoint. (Java's producer: without limit.)", AT_LEAST_1),
    Option("sasl.login.read.timeout.ms", INT, 10000, "low",
           "Time to wait for the token endpoint's response. (Java's producer: without limit.)", AT_LEAST_1),
    Option("sasl.login.refresh.buffer.seconds", SHORT, 300, "low",
           "A new token is fetched at least this long before the current one expires.", Range(0, 3600)),
    Option("sasl.login.refresh.min.period.seconds", SHORT, 60, "low",
           "Shortest time between two fetches. Ignored, like the buffer, if a token lives shorter than both "
           "together.",
           Range(0, 900)),
    Option("sasl.login.refresh.window.factor", DOUBLE, 0.8, "low",
           "Fraction of a token's lifetime after which the next one is fetched.", Range(0.5, 1.0)),
    Option("sasl.login.refresh.window.jitter", DOUBLE, 0.05, "low",
           "Random time that is added, up to this fraction of the token's lifetime.", Range(0.0, 0.25)),
    Option("sasl.login.retry.backoff.ms", LONG, 100, "low",
           "Wait before a failed fetch is retried; doubles up to sasl.login.retry.backoff.max.ms.", AT_LEAST_0),
    Option("sasl.login.retry.backoff.max.ms", LONG, 10000, "low",
           "Longest wait between two attempts, and the time after which a failed fetch is given up.", AT_LEAST_0),
    Option("sasl.oauthbearer.token.endpoint.url", STRING, None, "medium",
           "URL that issues tokens, http or https; or file:/path, a file with a token. Required with OAUTHBEARER."),
    Option("sasl.oauthbearer.jwt.retriever.class", CLASS, DEFAULT_RETRIEVER, "medium",
           f"One of Kafka's classes in {OAUTH}: DefaultJwtRetriever (FileJwtRetriever for a file: URL, else "
           "ClientCredentialsJwtRetriever), FileJwtRetriever, ClientCredentialsJwtRetriever, JwtBearerJwtRetriever.",
           OneOf(RETRIEVERS)),
    Option("sasl.oauthbearer.client.credentials.client.id", STRING, None, "medium",
           "Client id; or clientId in sasl.jaas.config."),
    Option("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, "medium",
           "Client secret; or clientSecret in sasl.jaas.config."),
    Option("sasl.oauthbearer.scope", STRING, None, "medium", "Requested scope; or scope in sasl.jaas.config."),
    Option("sasl.oauthbearer.header.urlencode", BOOLEAN, False, "low",
           "URL-encode client id and secret in the header (RFC 6749); some identity providers expect it."),
    Option(f"{_ASSERTION}file", STRING, None, "medium",
           "JwtBearerJwtRetriever: file with a ready-made assertion, instead of a private key."),
    Option(f"{_ASSERTION}private.key.file", STRING, None, "medium",
           "JwtBearerJwtRetriever: file with the private key that signs assertions, in PKCS8."),
    Option(f"{_ASSERTION}private.key.passphrase", PASSWORD, None, "medium", "Password of that private key."),
    Option(f"{_ASSERTION}algorithm", STRING, "RS256", "medium", "Algorithm that signs the assertion.",
           OneOf(("RS256", "ES256"))),
    Option(f"{_ASSERTION}template.file", STRING, None, "medium",
           "File with a JSON object: the fixed parts of the assertion's header and payload."),
    Option(f"{_ASSERTION}claim.aud", STRING, None, "medium", "Audience of the assertion."),
    Option(f"{_ASSERTION}claim.iss", STRING, None, "medium", "Issuer of the assertion."),
    Option(f"{_ASSERTION}claim.sub", STRING, None, "medium", "Subject of the assertion."),
    Option(f"{_ASSERTION}claim.exp.seconds", INT, 300, "low",
           "Lifetime of the assertion, in seconds.", Range(0, 86400)),
    Option(f"{_ASSERTION}claim.nbf.seconds", INT, 60, "low",
           "The assertion is valid from this many seconds before now.",
           Range(0, 3600)),
    Option(f"{_ASSERTION}claim.jti.include", BOOLEAN, False, "medium", "Give each assertion a unique id (claim jti)."),
    Option("sasl.kerberos.service.name", STRING, None, "medium",
           "GSSAPI: first part of the brokers' principals, kafka in kafka/host@REALM; or serviceName in "
           "sasl.jaas.config."),
    Option("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, "low",
           "GSSAPI: fraction of a ticket's lifetime after which the keytab gets the next ticket, or the ticket "
           "cache is read again."),
    Option("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, "low",
           "Random time that is added, up to this fraction of the ticket's lifetime."),
    Option("sasl.kerberos.min.time.before.relogin", LONG, 60000, "low",
           "Shortest time between two renewals. Ignored if a ticket lives shorter than that."),
)  # fmt: skip

LOGIN_OPTION_NAMES: Final = frozenset(option.name for option in LOGIN_OPTIONS)

_BROKERS_OWN: tuple[tuple[str, Kind, int | str | None, str], ...] = (
    ("sasl.oauthbearer.clock.skew.seconds", INT, 30, "low"),
    ("sasl.oauthbearer.expected.audience", LIST, "", "high"),
    ("sasl.oauthbearer.expected.issuer", STRING, None, "high"),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3600000, "low"),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, "low"),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10000, "low"),
    ("sasl.oauthbearer.jwks.endpoint.url", STRING, None, "medium"),
    ("sasl.oauthbearer.scope.claim.name", STRING, "scope", "low"),
    ("sasl.oauthbearer.sub.claim.name", STRING, "sub", "low"),
)

LOGIN_OPTIONS_WITHOUT_EFFECT: Final[tuple[Option, ...]] = (
    *(Option(*row, "Only brokers validate tokens.", status=Status.NO_EFFECT) for row in _BROKERS_OWN),
    Option("sasl.oauthbearer.jwt.validator.class", CLASS, f"{OAUTH}DefaultJwtValidator", "medium",
           "Class that validates tokens; only brokers do.", _VALIDATORS, Status.NO_EFFECT),
    Option("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", "low",
           "Program with which Java renews a ticket cache. Here, renew the cache outside of the job, or use a "
           "keytab.",
           status=Status.NO_EFFECT),
)  # fmt: skip
