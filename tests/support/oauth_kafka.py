"""A real Kafka that checks tokens by the keys of an OIDC server, and the options of its clients."""

from __future__ import annotations

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from joserfc.jwk import RSAKey

from spark_kafka_sink.testing import Listener, LocalKafka
from tests.support.oidc_server import Client, OidcServer

OAUTH = "org.apache.kafka.common.security.oauthbearer."
URL = "sasl.oauthbearer.token.endpoint.url"
ASSERTION = "sasl.oauthbearer.assertion."
SECRET = "hunter2"
CLIENT_CREDENTIALS = f'clientId="me" clientSecret="{SECRET}" scope="kafka"'
LISTENER = "OAUTH"

PRIVATE_KEY, STRANGER_S_KEY = (
    rsa.generate_private_key(65537, 2048).private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    for _ in range(2)
)


def oidc_server(life_s: int = 3600) -> OidcServer:
    """With the client ``me`` (``SECRET``), and ``signer``, whose assertions ``PRIVATE_KEY`` signs."""
    signer = Client("signer", key=RSAKey.import_key(PRIVATE_KEY))
    return OidcServer({"me": Client("me", SECRET), "signer": signer}, life_s)


def oauth_kafka(oidc: OidcServer, version: str, **more: str) -> LocalKafka:
    """``more``: options of the listener's OAUTHBEARER, with ``_`` for ``.``."""
    listener = f"listener.name.{LISTENER.lower()}."
    checks = {
        "sasl.oauthbearer.jwks.endpoint.url": oidc.jwks_url,
        "sasl.oauthbearer.expected.audience": oidc.audience,
        "sasl.oauthbearer.expected.issuer": oidc.address,
        # The default of Kafka 4.1.1 accepts every token, whatever its signature.
        "sasl.oauthbearer.jwt.validator.class": f"{OAUTH}BrokerJwtValidator",
        **{name.replace("_", "."): value for name, value in more.items()},
    }
    properties = {
        **checks,
        f"{listener}sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{listener}oauthbearer.sasl.jaas.config": f"{OAUTH}OAuthBearerLoginModule required;",
        f"{listener}oauthbearer.sasl.server.callback.handler.class": f"{OAUTH}OAuthBearerValidatorCallbackHandler",
        **{f"{listener}oauthbearer.{option}": value for option, value in checks.items()},
    }
    return LocalKafka(
        version=version,
        properties=properties,
        listeners={LISTENER: Listener("SASL_PLAINTEXT", mechanisms=("PLAIN",))},
        jvm_flags=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={oidc.jwks_url}"],
    )


def oauth_options(kafka: LocalKafka, url: str, jaas: str = CLIENT_CREDENTIALS, **others: object) -> dict[str, object]:
    """Of a client. ``jaas``: the options of its login module."""
    return {
        "bootstrap.servers": kafka.servers(LISTENER), "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER", URL: url,
        "sasl.jaas.config": f"{OAUTH}OAuthBearerLoginModule required {jaas};",
        "sasl.login.callback.handler.class": f"{OAUTH}OAuthBearerLoginCallbackHandler", **others,
    }  # fmt: skip


def jwt_bearer(oidc: OidcServer, key_file: str) -> dict[str, str]:
    """Options of the client ``signer``; ``key_file`` has ``PRIVATE_KEY``."""
    return {
        "sasl.oauthbearer.jwt.retriever.class": f"{OAUTH}JwtBearerJwtRetriever",
        "sasl.oauthbearer.scope": "kafka",
        f"{ASSERTION}private.key.file": key_file,
        f"{ASSERTION}claim.iss": "signer",
        f"{ASSERTION}claim.sub": "signer",
        f"{ASSERTION}claim.aud": oidc.token_url,
    }
