"""PURE: the states of a connection to a listener with SASL, and the requests that each state allows.

| state | the client | frames are |
|---|---|---|
| HANDSHAKE | must choose a mechanism (SaslHandshake) | requests |
| TOKENS | sends the tokens of its mechanism in SaslAuthenticate (KIP-152) | requests |
| RAW_TOKENS | sends the tokens without headers, after SaslHandshake v0 | tokens |
| AUTHENTICATED | has a principal | requests |
| REAUTHENTICATION | sends the tokens of another authentication (KIP-368) | requests |
| REFUSED | gets no further answer: the connection is closed | |
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from semel_protocol.api_key import ApiKey

HANDSHAKE_WITH_HEADERS: Final = 1
"""The version of SaslHandshake from which tokens are sent in SaslAuthenticate."""


class SaslState(Enum):
    """See the table above."""

    HANDSHAKE = auto()
    TOKENS = auto()
    RAW_TOKENS = auto()
    AUTHENTICATED = auto()
    REAUTHENTICATION = auto()
    REFUSED = auto()


class Kind(Enum):
    """The requests that the table tells apart."""

    API_VERSIONS = auto()
    HANDSHAKE_V0 = auto()
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    OTHER = auto()


SASL: Final = frozenset({Kind.HANDSHAKE_V0, Kind.HANDSHAKE, Kind.AUTHENTICATE})

NEXT: Final[Mapping[SaslState, tuple[SaslState, ...]]] = {
    SaslState.HANDSHAKE: (SaslState.TOKENS, SaslState.RAW_TOKENS, SaslState.REFUSED),
    SaslState.TOKENS: (SaslState.AUTHENTICATED, SaslState.REFUSED),
    SaslState.RAW_TOKENS: (SaslState.AUTHENTICATED, SaslState.REFUSED),
    SaslState.AUTHENTICATED: (SaslState.REAUTHENTICATION, SaslState.REFUSED),
    SaslState.REAUTHENTICATION: (SaslState.AUTHENTICATED, SaslState.REFUSED),
    SaslState.REFUSED: (),
}

ALLOWED: Final[Mapping[SaslState, frozenset[Kind]]] = {
    SaslState.HANDSHAKE: frozenset({Kind.API_VERSIONS, Kind.HANDSHAKE_V0, Kind.HANDSHAKE}),
    SaslState.TOKENS: frozenset({Kind.AUTHENTICATE}),
    SaslState.RAW_TOKENS: frozenset(),
    SaslState.AUTHENTICATED: frozenset(Kind),
    SaslState.REAUTHENTICATION: frozenset({Kind.AUTHENTICATE}),
    SaslState.REFUSED: frozenset(),
}
"""Any other request ends the connection."""

WITH_TOKENS: Final = frozenset({SaslState.TOKENS, SaslState.RAW_TOKENS, SaslState.REAUTHENTICATION})


KINDS: Final[Mapping[int, Kind]] = {
    ApiKey.API_VERSIONS: Kind.API_VERSIONS,
    ApiKey.SASL_AUTHENTICATE: Kind.AUTHENTICATE,
}


def kind_of(api_key: int, version: int) -> Kind:
    """The name of this request in the table."""
    if api_key == ApiKey.SASL_HANDSHAKE:
        return Kind.HANDSHAKE if version >= HANDSHAKE_WITH_HEADERS else Kind.HANDSHAKE_V0
    return KINDS.get(api_key, Kind.OTHER)
