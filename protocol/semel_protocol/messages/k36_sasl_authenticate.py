"""SaslAuthenticate (key 36): one step of a SASL exchange. KIP-152, KIP-368 session lifetime (v1)."""

from typing import Annotated

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Int64, Message, since


class SaslAuthenticateRequest(Message, kw_only=True):
    auth_bytes: bytes


class SaslAuthenticateResponse(Message, kw_only=True):
    error_code: Int16 = 0
    error_message: str | None = None
    auth_bytes: bytes = b""
    session_lifetime_ms: Annotated[Int64, since(1)] = 0


API = Api(
    ApiKey.SASL_AUTHENTICATE,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    declared=(0, 2),
    flexible=2,
    advertised=(0, 2),
)
