"""SaslAuthenticate (key 36): one token of a SASL exchange (KIP-152), and the session's lifetime (KIP-368).

SASL_AUTHENTICATION_FAILED, for every reason with the same message; ILLEGAL_SASL_STATE before SaslHandshake. Both close
the connection. ILLEGAL_SASL_STATE: the connection is authenticated, or the listener has no SASL.
"""

from __future__ import annotations

from semel_protocol.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse

from semel_broker.answers import CloseConnectionError
from semel_broker.authorization.administration import LOGIN
from semel_broker.authorization.requirements import Requirements
from semel_broker.context import RequestContext
from semel_broker.handlers.k17_sasl_handshake import session_of
from semel_broker.security.sasl.session import FAILED, SaslRefusal


async def handle(request: SaslAuthenticateRequest, ctx: RequestContext) -> SaslAuthenticateResponse:
    session = session_of(ctx)
    try:
        step = await session.authenticate(bytes(request.auth_bytes))
    except SaslRefusal as refusal:
        answer = SaslAuthenticateResponse(error_code=refusal.code, error_message=refusal.message)
        raise CloseConnectionError(FAILED, answer=answer) from None
    return SaslAuthenticateResponse(auth_bytes=step.challenge, session_lifetime_ms=step.session_lifetime_ms)


NEEDS: Requirements = ()
"""The request comes before there is a principal."""
NOT_AUDITED = LOGIN
