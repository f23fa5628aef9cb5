"""A session over an etcd lease: a keep-alive is sent three times per lifetime, and the session ends at its deadline.

etcd counts the lifetime of a lease from the moment when it handles a keep-alive. The deadline is counted from before
the keep-alive was sent. So the deadline always lies before the moment when etcd can remove the keys.
"""

from __future__ import annotations

from asyncio import Event, Task, get_running_loop, sleep
from collections.abc import Awaitable, Callable
from typing import Final

from semel_broker.cluster.store import StoreClosedError, StoreError, StoreUnavailableError
from semel_broker.world import World

KEEP_ALIVES_PER_TTL: Final = 3
RETRY_PAUSE_S: Final = 0.1

KeepAlive = Callable[[int, float], Awaitable[int]]
"""(lease, timeout_ms) -> its lifetime in seconds from now; 0 if the lease does not exist."""


class EtcdSession:
    """`Session` over a lease. `granted_at`: seconds of `World.monotonic`, taken before the lease was requested."""

    def __init__(
        self,
        world: World,
        *,
        lease: int,
        ttl_s: int,
        granted_at: float,
        keep_alive: KeepAlive,
        revoke: Callable[[int], Awaitable[None]],
    ) -> None:
        self.lease = lease
        self._world = world
        self._ttl_s = ttl_s
        self._deadline = granted_at + ttl_s
        self._keep_alive = keep_alive
        self._revoke = revoke
        self._ended = Event()
        self._task: Task[None] = get_running_loop().create_task(self._stay_alive())

    @property
    def deadline(self) -> float:
        """See `Session`."""
        return self._deadline

    @property
    def has_ended(self) -> bool:
        """See `Session`."""
        return self._ended.is_set() or self._world.monotonic() >= self._deadline

    async def ended(self) -> None:
        """See `Session`."""
        await self._ended.wait()

    async def close(self) -> None:
        """See `Session`."""
        is_alive = not self.has_ended
        self.abandon()
        if is_alive:
            try:
                await self._revoke(self.lease)
            except (StoreUnavailableError, StoreClosedError) as error:
                self._world.log.info("session_not_revoked", lease=self.lease, ttl_s=self._ttl_s, error=str(error))

    def abandon(self) -> None:
        """End the session without revoking its lease, as a crash does. Its keys are removed when the lease expires."""
        self._ended.set()
        self._task.cancel()

    async def _stay_alive(self) -> None:
        world, interval_s = self._world, self._ttl_s / KEEP_ALIVES_PER_TTL
        reason = "no keep-alive was answered in time"
        await sleep(interval_s)
        try:
            while (now := world.monotonic()) < self._deadline:
                try:
                    ttl_s = await self._keep_alive(self.lease, min(interval_s, self._deadline - now) * 1000)
                except StoreUnavailableError as error:
                    world.log.warning("keep_alive_failed", lease=self.lease, error=str(error))
                    await sleep(RETRY_PAUSE_S)
                    continue
                if ttl_s <= 0:
                    reason = "the lease has expired in etcd"
                    break
                if world.monotonic() >= self._deadline:
                    break  # answered too late: other brokers may have seen the session end
                self._deadline = now + ttl_s
                await sleep(interval_s)
        except StoreError as error:
            reason = str(error)
        finally:
            self._ended.set()
        world.log.warning("session_ended", lease=self.lease, reason=reason)
