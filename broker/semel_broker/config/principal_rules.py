"""PURE: the principal of a client certificate, by the rules of `ssl.principal.mapping.rules`.

KIP-371: rules are tried in order, and the first one whose pattern matches the whole subject names the principal.
`DEFAULT` takes the subject as it is. `RULE:pattern/replacement/` replaces it; `L` or `U` at the end makes it lower or
upper case; `$1` in the replacement is the first group of the pattern.
"""

import re
from collections.abc import Iterator
from typing import Final

import msgspec

from semel_broker.config.certificate import UnreadableCertificateError, subject_of
from semel_broker.config.settings import ConfigError

ANONYMOUS_NAME: Final = "User:ANONYMOUS"
USER: Final = "User:"
DEFAULT: Final = "DEFAULT"
RULE: Final = re.compile(r"RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?)")
GROUP: Final = re.compile(r"\\(.)|\$(\d)")


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
        try:
            subject = subject_of(certificate)
        except UnreadableCertificateError as error:
            raise NoPrincipalError(str(error)) from None
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
