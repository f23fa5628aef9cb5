"""SaslHandshake (key 17): choose a SASL mechanism, or begin a re-authentication (KIP-43, KIP-152, KIP-368).

UNSUPPORTED_SASL_MECHANISM: the listener does not have the mechanism; the response has those that it has, and the
connection is closed. ILLEGAL_SASL_STATE: the listener has no SASL, or the connection is authenticated and began a
re-authentication less than a second ago; a second SaslHandshake in a row also closes the connection.
"""

from __future__ import annotations

from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

from semel_broker.answers import CloseConnectionError
from semel_broker.authorization.administration import LOGIN
from semel_broker.authorization.requirements import Requirements
from semel_broker.context import RequestContext
from semel_broker.security.sasl.session import FAILED, SaslRefusal, SaslSession


async def handle(request: SaslHandshakeRequest, ctx: RequestContext) -> SaslHandshakeResponse:
    session = session_of(ctx)
    try:
        return SaslHandshakeResponse(mechanisms=await session.handshake(request.mechanism, ctx.api_version))
    except SaslRefusal as refusal:
        answer = SaslHandshakeResponse(error_code=refusal.code, mechanisms=session.mechanisms)
        raise CloseConnectionError(FAILED, answer=answer) from None


def session_of(ctx: RequestContext) -> SaslSession:
    """The authentication of the connection. Raises ILLEGAL_SASL_STATE if its listener has none."""
    if ctx.sasl is not None:
        return ctx.sasl
    ctx.broker.log.warning(
        "sasl_authentication_failed",
        reason="listener_without_sasl",
        client_host=ctx.client_host,
        client_id=ctx.client_id,
        listener=ctx.listener,
        do="let the client use security.protocol=PLAINTEXT or SSL, or give the listener SASL",
    )
    raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "this listener has no SASL: use security.protocol=PLAINTEXT or SSL")


NEEDS: Requirements = ()
"""The request comes before there is a principal."""
NOT_AUDITED = LOGIN
