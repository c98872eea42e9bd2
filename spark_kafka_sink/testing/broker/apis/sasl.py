"""Logins: SaslHandshake and SaslAuthenticate."""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import HandlerResult, HangupError, LastResponse, RequestContext
from spark_kafka_sink.testing.broker.sasl import SaslRefusedError
from spark_kafka_sink.testing.broker.wire import Fields


def sasl_handshake(context: RequestContext) -> HandlerResult:
    """SaslHandshake (17): the client names its mechanism.

    Emulated: UNSUPPORTED_SASL_MECHANISM with the listener's mechanisms, then the connection is closed;
    ILLEGAL_SASL_STATE on a listener without SASL and after the login, unless it begins a re-authentication (KIP-368).
    """
    session = context.session
    if session.is_authenticated and not session.may_begin_again():
        return {"error_code": ErrorCode.illegal_sasl_state, "mechanisms": []}
    if context.version == 0:
        raise HangupError("SaslHandshake v0")
    scripted = context.scripted()
    if scripted:
        session.refuse(scripted.name)
        return LastResponse({"error_code": scripted, "mechanisms": list(session.mechanisms)})
    if not session.begin(context.body.mechanism):
        error = ErrorCode.unsupported_sasl_mechanism
        return LastResponse({"error_code": error, "mechanisms": list(session.mechanisms)})
    return {"error_code": ErrorCode.none, "mechanisms": list(session.mechanisms)}


def sasl_authenticate(context: RequestContext) -> HandlerResult:
    """SaslAuthenticate (36): the mechanism's tokens, back and forth.

    Emulated: SASL_AUTHENTICATION_FAILED with the broker's message, then the connection is closed; ILLEGAL_SASL_STATE
    after the login; session lifetimes (``connections.max.reauth.ms``), and re-authentication as the same user.
    """
    session = context.session
    if session.is_authenticated:
        message = "SaslAuthenticate request received after successful authentication"
        return _failed_login(ErrorCode.illegal_sasl_state, message)
    scripted = context.scripted()
    if scripted:
        session.refuse(scripted.name)
        return LastResponse(_failed_login(scripted, f"scripted: {scripted.name}"))
    try:
        token = session.respond(context.body.auth_bytes)
    except SaslRefusedError as refused:
        return LastResponse(_failed_login(ErrorCode.sasl_authentication_failed, str(refused)))
    lifetime = session.lifetime_ms
    return {"error_code": ErrorCode.none, "error_message": "", "auth_bytes": token, "session_lifetime": lifetime}


def _failed_login(error: ErrorCode, message: str) -> Fields:
    return {"error_code": error, "error_message": message, "auth_bytes": b""}
