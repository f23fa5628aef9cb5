"""PURE: reads the subject and the end of an X.509 certificate (RFC 5280)."""

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Final

ATTRIBUTES: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
"""The attributes that RFC 2253 names; others are written by number, with their DER in hexadecimal."""
ENCODINGS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be", 0x1C: "utf-32-be"}
"""The string types of ASN.1: UTF8, Printable, Teletex, IA5, BMP and Universal."""
VERSION: Final = 0xA0
"""The tag of the version, which old certificates lack."""
VALIDITY: Final = 3
SUBJECT: Final = 4
"""Positions among the signed fields without the version."""
UTC_TIME: Final = 0x17
"""The tag of a time whose year has two digits."""


class UnreadableCertificateError(ValueError):
    """The bytes are no certificate in DER."""


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER, as Apache Kafka writes it: RFC 2253 as of Java, the last attribute first
    (`CN=client,O=semel`). Raises UnreadableCertificateError.
    """
    try:
        names = [_relative_name(each[1]) for each in _elements(_signed_fields(certificate)[SUBJECT][1])]
    except (ValueError, IndexError, StopIteration) as error:
        raise UnreadableCertificateError(f"the subject of the certificate cannot be read: {error}") from None
    return ",".join(reversed(names))


def ends_at_s(certificate: bytes) -> int:
    """The last second, since 1970, in which a certificate in DER is valid. Raises UnreadableCertificateError."""
    try:
        _, (tag, text, _) = _elements(_signed_fields(certificate)[VALIDITY][1])
        digits = text.decode("ascii")
        if tag == UTC_TIME:  # its years are 1950 to 2049
            digits = ("20" if digits < "50" else "19") + digits
        ends = datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    except (ValueError, IndexError, StopIteration) as error:
        raise UnreadableCertificateError(f"the end of the certificate cannot be read: {error}") from None
    return int(ends.timestamp())


def _signed_fields(certificate: bytes) -> list[tuple[int, bytes, bytes]]:
    """The fields that are signed, from the serial number on."""
    (outer,) = _elements(certificate)
    signed = next(_elements(outer[1]))
    return [each for each in _elements(signed[1]) if each[0] != VERSION]


def _relative_name(der: bytes) -> str:
    """Attributes that belong together, joined with `+`."""
    return "+".join(_attribute(each[1]) for each in _elements(der))


def _attribute(der: bytes) -> str:
    oid, value = _elements(der)
    number = _number(oid[1])
    name, encoding = ATTRIBUTES.get(number), ENCODINGS.get(value[0])
    if name is None or encoding is None:
        return f"{number}=#{value[2].hex()}"
    return f"{name}={_escaped(value[1].decode(encoding))}"


def _escaped(text: str) -> str:
    """The value as Java's X500Principal writes it: it escapes `#` and `=` everywhere, and all spaces at both ends."""
    inner = text.strip(" ")
    begin = len(text) - len(text.lstrip(" "))
    end = len(text) - len(inner) - begin
    inner = re.sub(r'([,=+<>#;"\\])', r"\\\1", inner).replace("\0", r"\00")
    return "\\ " * begin + inner + "\\ " * end


def _elements(der: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The elements of DER, one after the other: tag, content, and the whole element. Raises ValueError."""
    at = 0
    while at < len(der):
        begin = at
        if len(der) - at < 2:
            raise ValueError("the DER ends early")
        tag, size = der[at], der[at + 1]
        at += 2
        if size & 0x80:
            count = size & 0x7F
            size = int.from_bytes(der[at : at + count], "big")
            at += count
        if size > len(der) - at:
            raise ValueError("the DER ends early")
        yield tag, der[at : at + size], der[begin : at + size]
        at += size


def _number(oid: bytes) -> str:
    """An object identifier with dots. Raises ValueError."""
    values, value = [], 0
    for byte in oid:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            values.append(value)
            value = 0
    if not values:
        raise ValueError("an empty object identifier")
    first = min(values[0] // 40, 2)
    return ".".join(map(str, (first, values[0] - 40 * first, *values[1:])))
