"""An OIDC server on loopback: Authlib on Flask, with client credentials and JWT bearer, JWTs as access tokens, JWKS."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, grants
from authlib.oauth2.rfc7523 import JWTBearerGrant
from authlib.oauth2.rfc9068 import JWTBearerTokenGenerator
from flask import Flask, request
from joserfc.jwk import KeySet, RSAKey
from werkzeug.serving import make_server

from tests.support.loopback_app import LoopbackApp
from tests.support.waiting import DEADLINE_S

JWT_BEARER = JWTBearerGrant.GRANT_TYPE


@dataclass
class Client(ClientMixin):
    """``secret``: of client credentials. ``key``: the public key of its assertions."""

    client_id: str
    secret: str = ""
    key: RSAKey | None = None
    scopes: tuple[str, ...] = ("kafka",)

    def get_client_id(self) -> str:
        return self.client_id

    def get_user_id(self) -> str:
        """A client is the subject of its own assertions."""
        return self.client_id

    def get_allowed_scope(self, scope: str | None) -> str:
        return " ".join(each for each in (scope or "").split() if each in self.scopes)

    def check_client_secret(self, secret: str) -> bool:
        return bool(self.secret) and secret == self.secret

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "client_secret_basic"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type in ("client_credentials", JWT_BEARER)


@dataclass
class OidcServer(LoopbackApp):
    """Requests of the token endpoint are in ``forms``. ``life_s``: of its tokens. ``audience``: their claim ``aud``.

    After ``hang()`` requests get no response until ``let_go()``. ``fail_with``: the status of the next responses.
    ``certificate``: PEM file with key and chain, for https.
    """

    clients: dict[str, Client]
    life_s: int = 3600
    audience: str = "kafka"
    certificate: Path | None = None
    forms: list[dict[str, str]] = field(default_factory=list)
    fail_with: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.key = RSAKey.generate_key(2048, {"kid": "of-the-server", "use": "sig", "alg": "RS256"})
        self._may_respond = threading.Event()
        self._may_respond.set()
        app = Flask("oidc")
        context = (str(self.certificate), str(self.certificate)) if self.certificate is not None else None
        self._server = make_server("127.0.0.1", 0, app, threaded=True, ssl_context=context)
        self.address = f"http{'s' if context else ''}://127.0.0.1:{self._server.port}"
        self._oauth = self._authorization_server(app)
        app.add_url_rule("/token", view_func=self._token, methods=["POST"])
        app.add_url_rule("/jwks", view_func=self._jwks)

    @property
    def token_url(self) -> str:
        return f"{self.address}/token"

    @property
    def jwks_url(self) -> str:
        return f"{self.address}/jwks"

    def hang(self) -> None:
        self._may_respond.clear()

    def let_go(self) -> None:
        self._may_respond.set()

    def issue(self, client_id: str) -> str:
        """An access token, without a request."""
        generate = self._generator()
        token: str = generate.access_token_generator(self.clients[client_id], "client_credentials", None, "kafka")
        return token

    def _token(self) -> Any:
        self.forms.append(request.form.to_dict())
        self._may_respond.wait(DEADLINE_S)
        if self.fail_with:
            return {"error": "temporarily_unavailable"}, self.fail_with.pop(0)
        return self._oauth.create_token_response()

    def _jwks(self) -> dict[str, Any]:
        return KeySet([self.key]).as_dict(private=False)

    def _generator(self) -> JWTBearerTokenGenerator:
        server = self

        class Generator(JWTBearerTokenGenerator):
            def get_jwks(self) -> KeySet:
                return KeySet([server.key])

            def get_audiences(self, client: Any, user: Any, scope: Any) -> str:
                return server.audience

            def get_extra_claims(self, client: Client, *_: Any) -> dict[str, Any]:
                return {"sub": client.client_id}

        return Generator(self.address, expires_generator=lambda *_: server.life_s)

    def _authorization_server(self, app: Flask) -> AuthorizationServer:
        server = self

        class Bearer(JWTBearerGrant):
            def resolve_issuer_client(self, issuer: str) -> Client | None:
                return server.clients.get(issuer)

            def resolve_client_public_key(self, client: Client) -> Any:
                return client.key

            def get_audiences(self) -> list[str]:
                return [server.token_url]

            def authenticate_user(self, subject: str) -> Client | None:
                return server.clients.get(subject)

            def has_granted_permission(self, client: Client, user: Client) -> bool:
                return client is user

        oauth = AuthorizationServer(app, self.clients.get, lambda token, request: None)
        oauth.register_token_generator("default", self._generator())
        oauth.register_grant(grants.ClientCredentialsGrant)
        oauth.register_grant(Bearer)
        return oauth
