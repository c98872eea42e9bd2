"""SaslAuthenticate (36): the mechanism's tokens, back and forth.

Emulated: SASL_AUTHENTICATION_FAILED with the broker's message, then the connection is closed; ILLEGAL_SASL_STATE after
the login; session lifetimes (``connections.max.reauth.ms``), of the same user.
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import LastResponse, RequestContext, Response
from spark_kafka_sink.testing.broker.sasl import SaslRefusedError
from spark_kafka_sink.testing.broker.wire import Fields


def handle(context: RequestContext) -> Response:
    session = context.session
    if session.is_authenticated:
        message = "SaslAuthenticate request received after successful authentication"
        return _failed(ErrorCode.illegal_sasl_state, message)
    scripted = context.scripted()
    if scripted:
        session.refuse(scripted.name)
        return LastResponse(_failed(scripted, f"scripted: {scripted.name}"))
    try:
        token = session.respond(context.body.auth_bytes)
    except SaslRefusedError as refused:
        return LastResponse(_failed(ErrorCode.sasl_authentication_failed, str(refused)))
    lifetime = session.lifetime_ms
    return {"error_code": ErrorCode.none, "error_message": "", "auth_bytes": token, "session_lifetime": lifetime}


def _failed(error: ErrorCode, message: str) -> Fields:
    return {"error_code": error, "error_message": message, "auth_bytes": b""}
