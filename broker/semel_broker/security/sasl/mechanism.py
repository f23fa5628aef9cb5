"""PURE: what a SASL mechanism is to a session: tokens of the client go in, challenges and a principal come out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from semel_protocol.errors import PortableError


class AuthenticationFailed(PortableError):  # noqa: N818 (what a peer did, not an error of this program)
    """The client is not who it says, or its token is malformed.

    `reason` (snake_case) and `do` are for the log: the client gets one neutral sentence for all of them.
    """

    def __init__(self, reason: str, do: str) -> None:
        super().__init__(reason)
        self.reason, self.do = reason, do


class Mechanism(Protocol):
    """One exchange of a mechanism, for one authentication of one connection."""

    async def evaluate(self, token: bytes) -> bytes:
        """The answer to a token of the client. Raises AuthenticationFailed.

        It may wait, but must not block. Without a wait it is answered at once.
        """
        ...

    @property
    def is_complete(self) -> bool:
        """Whether the client has proved its identity. Only then there is a principal."""
        ...

    @property
    def user(self) -> str:
        """The name of the principal, without `User:`; before `is_complete`, the name that the client claims, or ""."""
        ...

    @property
    def expires_ms(self) -> int | None:
        """When the client's credential expires, in milliseconds since 1970; None: never."""
        ...


Mechanisms = Mapping[str, Callable[[], Mechanism]]
"""The factory of an exchange, by the name of the mechanism in SaslHandshake."""
