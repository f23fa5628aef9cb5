"""Recognises other protocols (TLS, HTTP, SSH, PROXY) by their first bytes and gives a hint for the error message.

A frame of Kafka begins with its size. Read as a size, the first bytes of these protocols mean hundreds of megabytes,
so the frame is refused; the hint says why.
"""

from __future__ import annotations

from semel_protocol.api_key import ApiKey

FIRST_BYTES = 6
"""The number of bytes that `looks_like` reads; fewer may be enough."""

_TLS_HANDSHAKE, _TLS_ALERT, _TLS_MAJOR, _CLIENT_HELLO = 0x16, 0x15, 0x03, 0x01
_TLS_MINOR_MAX = 4
_FRAME_FIRST_BYTE_MAX = 0x07
"""Of the size of a frame: 128 MiB."""
_HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"CONN", b"PATC", b"TRAC", b"PRI ")
_SASL_KEYS = (ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE)


def looks_like(first: bytes | memoryview) -> str | None:
    """A hint about the protocol of a stream that begins with these bytes; None for an unknown one."""
    begin = bytes(first[:FIRST_BYTES])
    if len(begin) > 1 and begin[1] == _TLS_MAJOR and (len(begin) < 3 or begin[2] <= _TLS_MINOR_MAX):
        if begin[0] == _TLS_HANDSHAKE and (len(begin) < FIRST_BYTES or begin[5] == _CLIENT_HELLO):
            return "this looks like TLS: the client must use security.protocol=PLAINTEXT here"
        if begin[0] == _TLS_ALERT:
            return "this looks like a TLS alert: the listener speaks TLS, which security_protocol='SSL' is for"
    if begin.startswith(_HTTP_METHODS):
        return "this looks like HTTP: this port speaks Kafka's protocol"
    if begin.startswith(b"HTTP"):
        return "this looks like an HTTP response: the address is not that of a Kafka listener"
    if begin.startswith(b"SSH-"):
        return "this looks like SSH: one end does not speak Kafka's protocol"
    if begin.startswith((b"PROXY ", b"\r\n\r\n\0\r")):
        return "this looks like the PROXY protocol: switch it off in the load balancer before this port"
    return None


def explained(error: object, first: bytes | memoryview) -> str:
    """The text of an error about a frame, with the hint of `looks_like` if there is one."""
    like = looks_like(first)
    return f"{error}; {like}" if like else str(error)


def not_served(api_key: int) -> dict[str, str]:
    """Log fields of a request that the broker does not serve: a hint if it is a SASL request."""
    if api_key not in _SASL_KEYS:
        return {}
    return {"hint": "this is SASL: the client must use security.protocol=PLAINTEXT here"}


def not_tls(first: bytes | memoryview) -> str | None:
    """A hint about a stream on a TLS port that begins with these bytes; None: it may be TLS."""
    begin = bytes(first[:FIRST_BYTES])
    if not begin or begin[0] == _TLS_HANDSHAKE:
        return None
    if begin.startswith(_HTTP_METHODS):
        return "this looks like HTTP: this port speaks Kafka's protocol over TLS"
    if begin.startswith(b"SSH-"):
        return "this looks like SSH: the client does not speak Kafka's protocol"
    if begin.startswith((b"PROXY ", b"\r\n\r\n\0\r")):
        return "this looks like the PROXY protocol: switch it off in the load balancer before this port"
    if begin[0] <= _FRAME_FIRST_BYTE_MAX:
        return "this looks like Kafka's protocol in plaintext"
    return "the first bytes are not TLS"
