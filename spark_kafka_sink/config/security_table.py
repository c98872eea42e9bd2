"""The TLS and SASL options of Kafka's producer. None is built: this version speaks PLAINTEXT only and says so.

They are listed so that giving one is answered with what is missing, not with "unknown option".
"""

from __future__ import annotations

from spark_kafka_sink.config.option import Kind, Option, Status

BOOLEAN, INT, LONG, SHORT, DOUBLE = Kind.BOOLEAN, Kind.INT, Kind.LONG, Kind.SHORT, Kind.DOUBLE
STRING, LIST, CLASS, PASSWORD = Kind.STRING, Kind.LIST, Kind.CLASS, Kind.PASSWORD

_OAUTH = "org.apache.kafka.common.security.oauthbearer."

_NOT_YET: tuple[tuple[str, Kind, bool | int | float | str | None, str, str], ...] = (
    ("ssl.truststore.location", STRING, None, "high", "File with the certificates to trust."),
    ("ssl.truststore.password", PASSWORD, None, "high", "Password of that file."),
    ("ssl.truststore.certificates", PASSWORD, None, "high", "The certificates to trust, as PEM text."),
    ("ssl.truststore.type", STRING, "JKS", "medium", "Format of the file: JKS, PKCS12 or PEM."),
    ("ssl.keystore.location", STRING, None, "high", "File with the client's own key and certificate."),
    ("ssl.keystore.password", PASSWORD, None, "high", "Password of that file."),
    ("ssl.keystore.key", PASSWORD, None, "high", "The client's private key, as PEM text."),
    ("ssl.keystore.certificate.chain", PASSWORD, None, "high", "The client's certificates, as PEM text."),
    ("ssl.keystore.type", STRING, "JKS", "medium", "Format of the file: JKS, PKCS12 or PEM."),
    ("ssl.key.password", PASSWORD, None, "high", "Password of the client's private key."),
    ("ssl.enabled.protocols", LIST, "TLSv1.2,TLSv1.3", "medium", "Versions of TLS that may be spoken."),
    ("ssl.protocol", STRING, "TLSv1.3", "medium", "Version of TLS to prefer."),
    ("ssl.cipher.suites", LIST, "", "low", "Ciphers that may be used."),
    ("ssl.endpoint.identification.algorithm", STRING, "https", "low", "Check the broker's name; empty does not."),
    ("sasl.mechanism", STRING, "GSSAPI", "medium", "How to log in: PLAIN, SCRAM-SHA-256, OAUTHBEARER, …"),
    ("sasl.jaas.config", PASSWORD, None, "medium", "Login module with user and password, in JAAS form."),
    ("sasl.kerberos.service.name", STRING, None, "medium", "Kerberos name of the brokers."),
    ("sasl.kerberos.kinit.cmd", STRING, "/usr/bin/kinit", "low", "The kinit program."),
    ("sasl.kerberos.min.time.before.relogin", LONG, 60000, "low", "Least time between two logins."),
    ("sasl.kerberos.ticket.renew.jitter", DOUBLE, 0.05, "low", "Random part of the renewal time."),
    ("sasl.kerberos.ticket.renew.window.factor", DOUBLE, 0.8, "low", "Part of a ticket's life after which to renew."),
    ("sasl.login.connect.timeout.ms", INT, None, "low", "Time to connect to the identity provider."),
    ("sasl.login.read.timeout.ms", INT, None, "low", "Time for the identity provider to answer."),
    ("sasl.login.refresh.buffer.seconds", SHORT, 300, "low", "Time before expiry that a refresh keeps free."),
    ("sasl.login.refresh.min.period.seconds", SHORT, 60, "low", "Least time between two refreshes."),
    ("sasl.login.refresh.window.factor", DOUBLE, 0.8, "low", "Part of a credential's life after which to refresh."),
    ("sasl.login.refresh.window.jitter", DOUBLE, 0.05, "low", "Random part of the refresh time."),
    ("sasl.login.retry.backoff.ms", LONG, 100, "low", "Wait before the next login attempt."),
    ("sasl.login.retry.backoff.max.ms", LONG, 10000, "low", "Longest wait before the next login attempt."),
    ("sasl.oauthbearer.assertion.algorithm", STRING, "RS256", "medium", "Signature of the assertion."),
    ("sasl.oauthbearer.assertion.claim.aud", STRING, None, "medium", "Audience claim of the assertion."),
    ("sasl.oauthbearer.assertion.claim.exp.seconds", INT, 300, "low", "Seconds the assertion is valid."),
    ("sasl.oauthbearer.assertion.claim.iss", STRING, None, "medium", "Issuer claim of the assertion."),
    ("sasl.oauthbearer.assertion.claim.jti.include", BOOLEAN, False, "medium", "Give each assertion an id of its own."),
    ("sasl.oauthbearer.assertion.claim.nbf.seconds", INT, 60, "low", "Seconds the assertion is valid before now."),
    ("sasl.oauthbearer.assertion.claim.sub", STRING, None, "medium", "Subject claim of the assertion."),
    ("sasl.oauthbearer.assertion.file", STRING, None, "medium", "File with a finished assertion."),
    ("sasl.oauthbearer.assertion.private.key.file", STRING, None, "medium", "Key that signs the assertion."),
    ("sasl.oauthbearer.assertion.private.key.passphrase", PASSWORD, None, "medium", "Password of that key."),
    ("sasl.oauthbearer.assertion.template.file", STRING, None, "medium", "File with fixed headers and claims."),
    ("sasl.oauthbearer.client.credentials.client.id", STRING, None, "medium", "Client id at the identity provider."),
    ("sasl.oauthbearer.client.credentials.client.secret", PASSWORD, None, "medium", "Secret of that client id."),
    ("sasl.oauthbearer.clock.skew.seconds", INT, 30, "low", "Seconds two clocks may differ."),
    ("sasl.oauthbearer.expected.audience", LIST, "", "high", "Audience a token must have been issued for."),
    ("sasl.oauthbearer.expected.issuer", STRING, None, "high", "Issuer a token must come from."),
    ("sasl.oauthbearer.header.urlencode", BOOLEAN, False, "low", "URL-encode the credentials in the header."),
    ("sasl.oauthbearer.jwks.endpoint.refresh.ms", LONG, 3600000, "low", "Time between two fetches of the key set."),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", LONG, 100, "low", "Wait before fetching it again."),
    ("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", LONG, 10000, "low", "Longest such wait."),
    ("sasl.oauthbearer.jwks.endpoint.url", STRING, None, "medium", "Where the identity provider's keys are."),
    ("sasl.oauthbearer.scope", STRING, None, "medium", "Scope to ask for."),
    ("sasl.oauthbearer.scope.claim.name", STRING, "scope", "low", "Claim that holds the scope."),
    ("sasl.oauthbearer.sub.claim.name", STRING, "sub", "low", "Claim that holds the subject."),
    ("sasl.oauthbearer.token.endpoint.url", STRING, None, "medium", "Where tokens are issued."),
)  # fmt: skip

_JVM_ONLY: tuple[tuple[str, Kind, str | None, str, str], ...] = (
    ("sasl.client.callback.handler.class", CLASS, None, "medium", "Java class that answers SASL callbacks."),
    ("sasl.login.callback.handler.class", CLASS, None, "medium", "Java class that answers login callbacks."),
    ("sasl.login.class", CLASS, None, "medium", "Java class that logs in."),
    ("sasl.oauthbearer.jwt.retriever.class", CLASS, _OAUTH + "DefaultJwtRetriever", "medium", "Fetches tokens."),
    ("sasl.oauthbearer.jwt.validator.class", CLASS, _OAUTH + "DefaultJwtValidator", "medium", "Checks tokens."),
    ("security.providers", STRING, None, "low", "Java classes that add security algorithms."),
    ("ssl.engine.factory.class", CLASS, None, "low", "Java class that makes TLS engines."),
    ("ssl.keymanager.algorithm", STRING, "SunX509", "low", "The JVM's key manager."),
    ("ssl.provider", STRING, None, "medium", "The JVM's security provider."),
    ("ssl.secure.random.implementation", STRING, None, "low", "The JVM's random numbers."),
    ("ssl.trustmanager.algorithm", STRING, "PKIX", "low", "The JVM's trust manager."),
)  # fmt: skip

SECURITY_OPTIONS: tuple[Option, ...] = (
    *(Option(*row, status=Status.NOT_YET) for row in _NOT_YET),
    *(
        Option(*row, status=Status.JVM_ONLY, instead="leave it out; this version speaks PLAINTEXT only")
        for row in _JVM_ONLY
    ),
)
