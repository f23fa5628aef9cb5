"""The first bytes of other protocols, known where a frame of Kafka's should begin: bytes in, a sentence or None out.

A frame begins with its size. As a size, the first bytes of TLS, HTTP or SSH say hundreds of megabytes: the frame is
refused anyway, and the hint says why.
"""

from __future__ import annotations

FIRST_BYTES = 6
"""What `looks_like` wants to see; less is enough where it is."""

_TLS_HANDSHAKE, _TLS_ALERT, _TLS_MAJOR, _CLIENT_HELLO = 0x16, 0x15, 0x03, 0x01
_TLS_MINOR_MAX = 4
_HTTP_METHODS = (b"GET ", b"POST", b"PUT ", b"HEAD", b"DELE", b"OPTI", b"CONN", b"PATC", b"TRAC", b"PRI ")
_SASL_KEYS = (17, 36)  # SaslHandshake, SaslAuthenticate


def looks_like(first: bytes | memoryview) -> str | None:
    """What a stream is that begins with these bytes, or None if they are of no protocol that is known here."""
    begin = bytes(first[:FIRST_BYTES])
    if len(begin) > 1 and begin[1] == _TLS_MAJOR and (len(begin) < 3 or begin[2] <= _TLS_MINOR_MAX):
        if begin[0] == _TLS_HANDSHAKE and (len(begin) < FIRST_BYTES or begin[5] == _CLIENT_HELLO):
            return "this looks like TLS: the client must use security.protocol=PLAINTEXT here"
        if begin[0] == _TLS_ALERT:
            return "this looks like a TLS alert: the listener speaks TLS, which security_protocol='SSL' is for"
    if begin.startswith(_HTTP_METHODS):
        return "this looks like HTTP: this port speaks Kafka's protocol"
    if begin.startswith(b"HTTP"):
        return "this looks like an answer of HTTP: the address is not that of a Kafka listener"
    if begin.startswith(b"SSH-"):
        return "this looks like SSH: one end does not speak Kafka's protocol"
    if begin.startswith((b"PROXY ", b"\r\n\r\n\0\r")):
        return "this looks like the PROXY protocol: switch it off in the load balancer before this port"
    return None


def explained(error: object, first: bytes | memoryview) -> str:
    """The words of an error about a frame, with what the bytes look like where that is known."""
    like = looks_like(first)
    return f"{error}; {like}" if like else str(error)


def not_served(api_key: int) -> dict[str, str]:
    """Fields for the log line of a request that is not served: a hint for those that ask for SASL."""
    if api_key not in _SASL_KEYS:
        return {}
    return {"hint": "this is SASL: the client must use security.protocol=PLAINTEXT here"}
