"""The user that a broker is in etcd: its name and password, and the token that etcd has given for them.

A token expires, and etcd forgets it when it restarts. etcd then refuses a request without executing it, and the broker
gets another token. With the name of a user but without TLS, the password crosses the network in plaintext.
"""

from __future__ import annotations

from asyncio import Lock
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

AUTHENTICATE: Final = "/v3/auth/authenticate"
UNAUTHENTICATED: Final = 16
"""gRPC's status code for a token that etcd does not know."""
ABOUT_TOKENS: Final = ("invalid auth token", "revision of auth store is old", "user name is empty")
"""In etcd's messages for a token that is missing, unknown, or older than a change of users and roles."""


class AuthenticateRequest(msgspec.Struct, frozen=True):
    name: str
    password: str

    def __repr__(self) -> str:
        return f"<AuthenticateRequest of {self.name}>"  # the password stays out of logs


class AuthenticateResponse(msgspec.Struct, frozen=True):
    token: str = ""


class EtcdLogin:
    """One per store with `etcd.user`."""

    def __init__(self, user: str, password: str) -> None:
        self.user = user
        self._request = msgspec.json.encode(AuthenticateRequest(user, password))
        self._token = ""
        self._lock = Lock()

    def __repr__(self) -> str:
        return f"<Login of {self.user}>"

    async def token(self, call: Callable[[str, bytes], Awaitable[bytes]], *, unlike: str = "") -> str:
        """The token, another one than `unlike`. `call` sends a request to etcd; its errors are raised."""
        async with self._lock:  # callers that wait here share one answer
            if not self._token or self._token == unlike:
                self._token = ""
                answer = await call(AUTHENTICATE, self._request)
                self._token = msgspec.json.decode(answer, type=AuthenticateResponse).token
            return self._token

    @staticmethod
    def is_about_token(code: int, message: str) -> bool:
        """Whether etcd has refused a request for its token, and so has not executed it."""
        return code == UNAUTHENTICATED or any(text in message for text in ABOUT_TOKENS)
