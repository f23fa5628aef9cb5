"""The keys of the issuer of a listener's tokens: read at the start, again in intervals, and for a key that is new.

Keys that have been read stay in use while the issuer does not answer. Until the first ones are read, every token is
refused.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from semel_broker.config.sasl_settings import OAuthSettings
from semel_broker.security.sasl.oauth_bearer import CheckedToken, TokenRules, UnknownKeyError, check_token
from semel_broker.security.sasl.oauth_keys import KeySet, parse_jwks
from semel_broker.world import JwksError, World

UNKNOWN_KEY_PAUSE_S: Final = 60.0
"""Unknown keys cause at most one request to the issuer in this time: any client can send them."""
FAILED_PAUSE_S: Final = 10.0
"""Until the first keys are read."""

Read = Callable[[str, str], Awaitable[bytes]]
"""(file or URL, file of CAs or "") -> the text of the JWKS. Raises JwksError."""


class IssuerKeys:
    """One per listener with OAUTHBEARER. `start` before use, `close` at the end."""

    def __init__(self, settings: OAuthSettings, read: Read, world: World) -> None:
        self._settings, self._read, self._world = settings, read, world
        self._rules = TokenRules(
            issuer=settings.issuer,
            audiences=settings.audiences,
            sub_claim=settings.sub_claim,
            scope_claim=settings.scope_claim,
            clock_skew_ms=settings.clock_skew_ms,
        )
        self._keys: KeySet | None = None
        self._reading: asyncio.Task[None] | None = None
        self._asked_s = float("-inf")  # when an unknown key last made the broker ask the issuer
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the keys for the first time. A failure is logged, and tried again later."""
        await self._refresh()
        self._task = asyncio.create_task(self._keep_fresh(), name=f"keys of {self._settings.location}")

    async def close(self) -> None:
        tasks = [task for task in (self._task, self._reading) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def check(self, token: str) -> CheckedToken:
        """See `check_token`. A key that is not known is looked for at the issuer once. Raises TokenRefusedError."""
        try:
            return self._checked(token)
        except UnknownKeyError:
            now = self._world.monotonic()
            if self._reading is None:
                if now - self._asked_s < UNKNOWN_KEY_PAUSE_S:
                    raise
                self._asked_s = now
            await self._refresh()
        return self._checked(token)

    def _checked(self, token: str) -> CheckedToken:
        return check_token(token, self._keys or KeySet({}), self._rules, self._world.now_ms())

    async def _keep_fresh(self) -> None:
        while True:
            await asyncio.sleep(FAILED_PAUSE_S if self._keys is None else self._settings.refresh_ms / 1000)
            await self._refresh()

    async def _refresh(self) -> None:
        """Read the keys, or wait for the reading in progress. Never raises JwksError."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._load(), name=f"read {self._settings.location}")
        reading = self._reading
        await asyncio.wait((reading,))
        reading.result()

    async def _load(self) -> None:
        log, location = self._world.log, self._settings.location
        try:
            keys = parse_jwks(await self._read(location, self._settings.ca_file))
        except JwksError as error:
            log.warning(
                "jwks_not_loaded",
                location=location,
                error=str(error),
                do="check the setting and the issuer; " + self._consequence,
            )
        else:
            if keys.keys.keys() != (self._keys.keys.keys() if self._keys else None):
                log.info("jwks_loaded", location=location, keys=sorted(keys.keys), ignored=list(keys.ignored))
            self._keys = keys
        finally:
            self._reading = None

    @property
    def _consequence(self) -> str:
        return "the keys read before stay in use" if self._keys else "until then every token is refused"
