"""PURE: user and password in `sasl.jaas.config`, with which programs for Kafka's Java client are configured.

The text is an entry of a JAAS configuration: the class of a login module, the word `required`, options `name="value"`,
and a semicolon. Errors never show its text.
"""

from __future__ import annotations

import re
from typing import Final

from semel.errors import KafkaConfigurationError

SETTING: Final = "sasl.jaas.config"
PACKAGE: Final = "org.apache.kafka.common.security"
MECHANISMS: Final = {
    f"{PACKAGE}.plain.PlainLoginModule": ("PLAIN",),
    f"{PACKAGE}.scram.ScramLoginModule": ("SCRAM-SHA-256", "SCRAM-SHA-512"),
}
"""The mechanisms of each login module."""
REFUSED: Final = {
    "OAuthBearerLoginModule": "tokens come from sasl_oauth_token_provider, an object of Python",
    "Krb5LoginModule": "GSSAPI (Kerberos) is not supported",
}
"""By the last part of the class name."""

_TOKEN: Final = re.compile(
    r"""\s*(?:(?P<mark>[=;])|"(?P<double>(?:[^"\\\n]|\\.)*)"|'(?P<single>(?:[^'\\\n]|\\.)*)'|(?P<word>[^\s=;"']+))"""
)
_ESCAPE: Final = re.compile(r"\\(?:(?P<octal>[0-3][0-7]{0,2}|[4-7][0-7]?)|(?P<other>.))")
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v"}


def credentials(text: str, mechanism: str) -> tuple[str, str]:
    """User and password. `mechanism`: the one that the client uses.

    Raises KafkaConfigurationError for a text that cannot be read, a module that is not supported, and one that belongs
    to another mechanism.
    """
    tokens = _tokens(text)
    if len(tokens) < 3 or tokens[-1] != (";", True) or any(token == (";", True) for token in tokens[:-1]):
        raise _refused("write one login module, the word required, its options and a semicolon")
    module = tokens[0][0]
    supported = MECHANISMS.get(module)
    if supported is None:
        why = REFUSED.get(module.rpartition(".")[2], f"use one of {', '.join(MECHANISMS)}")
        raise _refused(f"its login module is not supported: {why}")
    if mechanism not in supported:
        raise _refused(f"its login module is for {' and '.join(supported)}, and sasl.mechanism is {mechanism!r}")
    options = _options(tokens[2:-1])
    if options.get("tokenauth", "false").lower() == "true":
        raise _refused("delegation tokens (tokenauth) are not supported: use user and password")
    if not options.get("username") or not options.get("password"):
        raise _refused("it needs the options username and password")
    return options["username"], options["password"]


def _tokens(text: str) -> list[tuple[str, bool]]:
    """The tokens, and whether each is one of the marks = and ;."""
    tokens, at = [], 0
    text = text.strip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _refused("it cannot be read: a quote is not closed")
        quoted = match["double"] if match["double"] is not None else match["single"]
        if quoted is not None:
            tokens.append((_ESCAPE.sub(_unescaped, quoted), False))
        else:
            tokens.append((match["mark"] or match["word"], match["mark"] is not None))
        at = match.end()
    return tokens


def _unescaped(match: re.Match[str]) -> str:
    if match["octal"] is not None:
        return chr(int(match["octal"], 8))
    return _ESCAPES.get(match["other"], match["other"])


def _options(tokens: list[tuple[str, bool]]) -> dict[str, str]:
    options: dict[str, str] = {}
    if len(tokens) % 3:
        raise _refused('write its options as name="value"')
    for at in range(0, len(tokens), 3):
        (name, name_is_mark), equals, (value, value_is_mark) = tokens[at : at + 3]
        if name_is_mark or equals != ("=", True) or value_is_mark or name in options:
            raise _refused('write its options as name="value", each once')
        options[name] = value
    return options


def _refused(why: str) -> KafkaConfigurationError:
    return KafkaConfigurationError(f"{SETTING}: {why}")
