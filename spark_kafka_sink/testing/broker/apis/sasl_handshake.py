"""SaslHandshake (17): the client names its mechanism.

Emulated: UNSUPPORTED_SASL_MECHANISM with the listener's mechanisms, then the connection is closed; ILLEGAL_SASL_STATE
on a listener without SASL and after the login, unless it begins a re-authentication (KIP-368).
"""

from __future__ import annotations

from kio.schema.errors import ErrorCode

from spark_kafka_sink.testing.broker.request_context import HangupError, LastResponse, RequestContext, Response


def handle(context: RequestContext) -> Response:
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
