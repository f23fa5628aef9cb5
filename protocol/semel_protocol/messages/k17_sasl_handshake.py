"""SaslHandshake (key 17): choose a SASL mechanism. KIP-43, KIP-152 (v1). Never flexible."""

from semel_protocol.declaration import Api, ApiKey
from semel_protocol.schema import Int16, Message


class SaslHandshakeRequest(Message, kw_only=True):
    mechanism: str


class SaslHandshakeResponse(Message, kw_only=True):
    error_code: Int16 = 0
    mechanisms: list[str] = []


API = Api(
    ApiKey.SASL_HANDSHAKE,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
    declared=(0, 1),
    flexible=None,
    advertised=(0, 1),
)
