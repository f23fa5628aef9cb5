"""PURE: the principal of a client certificate: its subject as text, and the rules of `ssl.principal.mapping.rules`.

KIP-371: rules are tried in order, and the first one whose pattern matches the whole subject names the principal.
`DEFAULT` takes the subject as it is. `RULE:pattern/replacement/` replaces it; `L` or `U` at the end makes it lower or
upper case; `$1` in the replacement is the first group of the pattern. The subject is written as Apache Kafka writes it,
which is RFC 2253 as of Java: the last attribute of the certificate comes first (`CN=client,O=semel`).
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from semel_broker.config.settings import ConfigError

ANONYMOUS_NAME: Final = "User:ANONYMOUS"
USER: Final = "User:"
DEFAULT: Final = "DEFAULT"
RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
GROUP: Final = re.compile(r"\\(.)|\$(\d)")

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


class NoPrincipalError(Exception):
    """No rule matches the subject, or the certificate has no readable subject. `reason`, `do`: see `TlsFailure`."""

    reason = "no_principal"
    do = "add a rule, or DEFAULT as the last one"


class PrincipalRule(msgspec.Struct, frozen=True):
    """One rule. `pattern` None: DEFAULT. `case`: L, U or empty."""

    pattern: re.Pattern[str] | None = None
    replacement: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """The name of the principal; None: the pattern does not match the whole subject."""
        if self.pattern is None:
            return subject
        match = self.pattern.fullmatch(subject)
        if match is None:
            return None

        def part(reference: re.Match[str]) -> str:
            return reference[1] if reference[2] is None else match[int(reference[2])] or ""

        name = GROUP.sub(part, self.replacement)
        return {"L": name.lower(), "U": name.upper()}.get(self.case, name)


class PrincipalRules:
    """The rules of a listener. Raises ConfigError for a text that is not a list of rules."""

    def __init__(self, text: str) -> None:
        self._rules = list(_rules(text)) or [PrincipalRule()]

    def principal(self, certificate: bytes | None) -> str:
        """The principal of a client with this certificate, in DER. Raises NoPrincipalError."""
        if certificate is None:
            return ANONYMOUS_NAME
        subject = subject_of(certificate)
        for rule in self._rules:
            if (name := rule.apply(subject)) is not None:
                return USER + name
        raise NoPrincipalError(f"no rule of ssl.principal.mapping.rules matches the subject {subject}")


def _rules(text: str) -> Iterator[PrincipalRule]:
    at, text = 0, text.strip()
    while at < len(text):
        if text.startswith(DEFAULT, at):
            yield PrincipalRule()
            at += len(DEFAULT)
        else:
            match = RULE.match(text, at)
            if match is None:
                raise _refused(
                    text, f"{text[at:]!r} is neither DEFAULT nor RULE:pattern/replacement/ with L, U or none"
                )
            yield _rule(text, match)
            at = match.end()
        rest = text[at:].lstrip()
        if rest and not rest.startswith(","):
            raise _refused(text, f"a comma is missing before {rest!r}")
        at = len(text) - len(rest[1:].lstrip()) if rest else len(text)


def _rule(text: str, match: re.Match[str]) -> PrincipalRule:
    try:
        pattern = re.compile(match[1])
    except re.error as error:
        raise _refused(text, f"the pattern {match[1]!r} is not a regular expression: {error}") from None
    groups = [int(found[2]) for found in GROUP.finditer(match[2]) if found[2] is not None]
    if groups and max(groups) > pattern.groups:
        raise _refused(
            text, f"the replacement {match[2]!r} names group {max(groups)}, which {match[1]!r} does not have"
        )
    return PrincipalRule(pattern, match[2], match[3])


def _refused(text: str, why: str) -> ConfigError:
    return ConfigError(f"ssl.principal.mapping.rules = {text!r}: {why}")


# --- the subject, from DER


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER, as Apache Kafka writes it. Raises NoPrincipalError."""
    try:
        (outer,) = _elements(certificate)
        signed = next(_elements(outer[1]))
        fields = [each for each in _elements(signed[1]) if each[0] != VERSION]
        names = [_relative_name(each[1]) for each in _elements(fields[4][1])]
    except (ValueError, IndexError, StopIteration, UnicodeDecodeError) as error:
        raise NoPrincipalError(f"the subject of the certificate cannot be read: {error}") from None
    return ",".join(reversed(names))


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
