"""EDGE: starts a command's client, says what it waits for, and ends the command when a broker cannot be reached."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import click
from semel_protocol.errors import PortableError
from semel_protocol.visible import visible

from semel import Admin, Consumer, Producer
from semel._command_line.common import say
from semel._config.client import DEFAULT_PORT
from semel._edge import Edge
from semel._net.cluster import Cluster
from semel._net.reachability import Reachability, Trouble

C = TypeVar("C", Admin, Consumer, Producer)
SAY_AFTER_S = 1.0
END_AFTER_S = 3.0
"""An address that was never reached is tried for this long: a broker may be starting."""
STOP_S = 0.5
"""After UnreachableError a client has this time to send the rest to other brokers, and to leave its group."""
LOOK_S = 0.1
SAY_CALL_AFTER_S = 2.0
"""A call that takes longer than this is said, with the error of its last attempt."""


class UnreachableError(PortableError, click.ClickException):
    """A broker that the command needs cannot be reached. reason: the addresses with their errors, in one clause."""

    def __init__(self, reason: str, advice: str) -> None:
        super().__init__(visible(f"{reason}{advice}"))
        self.reason = reason


@asynccontextmanager
async def started(
    kind: Callable[..., C], settings: Mapping[str, Any], *, quiet: bool = False, tolerant: bool = False
) -> AsyncIterator[C]:
    """A client that is started, and stopped at the end.

    tolerant: the caller says which brokers do not answer; the watch ends with the start. quiet: the same, and the start
    says nothing either.

    Raises UnreachableError when an address that is needed was never reached within three seconds, or within
    `bootstrap_timeout_ms` if that is given; also when an address is reached and no request for metadata is answered. A
    broker that was reached before may restart: it is waited for.
    """
    edge = Edge()
    client = kind(**settings, edge=edge)
    reachability = client._cluster.pool.reachability
    reachability.is_silent = True
    client._cluster.warns_of_missing_topics = isinstance(client, Consumer)  # other commands fail with these words
    watch = _Watch(edge, client._cluster, settings, quiet=quiet)
    async with watch.limit():
        await client.start()
    stop_s = None
    try:
        if quiet or tolerant:
            yield client
        else:
            async with watch.limit():
                yield client
    except UnreachableError:
        stop_s = STOP_S
        raise
    finally:
        await _stopped(client, stop_s)


async def _stopped(client: Admin | Consumer | Producer, within_s: float | None) -> None:
    """Stop the client. Within a time it gives up what it cannot send any more."""
    try:
        async with asyncio.timeout(within_s):
            await client.__aexit__(None, None, None)
    except TimeoutError:
        if within_s is None:
            raise


def reaches_all(client: Admin | Consumer | Producer) -> bool:
    """Whether the client waits for no broker that it cannot reach."""
    return all(trouble.needed_since is None for trouble in client._cluster.pool.reachability.current())


class _Watch:
    """Looks at the addresses and calls that a client waits for."""

    def __init__(self, edge: Edge, cluster: Cluster, settings: Mapping[str, Any], *, quiet: bool) -> None:
        self._edge, self._settings, self._quiet = edge, settings, quiet
        self._reachability: Reachability = cluster.pool.reachability
        self._calls = cluster.calls_in_progress
        self._said: list[str] = []
        self._said_call = ""
        self._failure: UnreachableError | None = None
        self._began = edge.monotonic()

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """End its block by UnreachableError."""
        try:
            async with asyncio.timeout(None) as timeout:
                looking = asyncio.create_task(self._look(timeout))
                try:
                    yield
                finally:
                    looking.cancel()
                    await asyncio.wait([looking])
        except TimeoutError:
            if self._failure is None:
                raise
            raise self._failure from None

    async def _look(self, timeout: asyncio.Timeout) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            waits = self._waits()
            addresses = [trouble.address for trouble, waited_s in waits if waited_s >= SAY_AFTER_S]
            if addresses and not set(addresses) <= set(self._said) and not self._quiet:
                say(f"waiting for {_listed([trouble for trouble, _ in waits], self._edge)}", err=True)
            self._said = addresses
            if not addresses:
                self._say_call()
            may_restart = self._reachability.has_metadata
            lost = [
                trouble
                for trouble, waited_s in waits
                if waited_s >= self._end_after_s and not (may_restart and trouble.was_reached)
            ]
            if lost:
                self._failure = self._unreachable(lost)
                timeout.reschedule(asyncio.get_running_loop().time())
                return

    def _say_call(self) -> None:
        """Say what the innermost call waits for that takes long, once for each reason."""
        now = self._edge.monotonic()
        slow = [call for call in self._calls if now - call.began >= SAY_CALL_AFTER_S]
        text = f"waiting: {slow[-1].what}: {slow[-1].error or 'no answer yet'}" if slow else ""
        if text and text != self._said_call and not self._quiet:
            say(text, err=True)
        self._said_call = text

    def _waits(self) -> list[tuple[Trouble, float]]:
        """The addresses that the client cannot do without, each with the seconds that it has waited for it."""
        now, troubles = self._edge.monotonic(), self._reachability.current()
        if not self._reachability.has_metadata:
            return [(trouble, now - self._began) for trouble in troubles]
        return [(each, now - each.needed_since) for each in troubles if each.needed_since is not None]

    @property
    def _end_after_s(self) -> float:
        given_ms = self._settings.get("bootstrap_timeout_ms")
        return END_AFTER_S if given_ms is None else given_ms / 1000

    def _unreachable(self, lost: Sequence[Trouble]) -> UnreachableError:
        listed = _listed(lost, self._edge)
        tried = f"Tried for {self._end_after_s:.0f} s; -X bootstrap_timeout_ms=60000 waits longer"
        if not self._reachability.has_metadata:
            advice = f"{_assumed(self._settings)}. Check the address (-b) and that the broker runs. {tried}"
            return UnreachableError(f"cannot connect to {listed}", advice)
        return UnreachableError(
            f"{self._reachability.last_reached} answers, but the address that a broker advertises does not: {listed}",
            ". Check that the broker runs, and that its advertised.listeners names an address that can be reached from "
            f"here. {tried}",
        )


def _listed(troubles: Sequence[Trouble], edge: Edge) -> str:
    """`127.0.0.1:9092: connection refused (ECONNREFUSED)`, for each address; brokers with their ids."""
    now = edge.monotonic()
    return "; ".join(
        f"{trouble.address if trouble.node_id < 0 else trouble.name}: {trouble.cause(now)}" for trouble in troubles
    )


def _assumed(settings: Mapping[str, Any]) -> str:
    """A note about addresses without a port."""
    listed = [each.strip() for each in str(settings["bootstrap_servers"]).split(",")]
    bare = [each for each in listed if each and ":" not in each]
    return f" ({', '.join(bare)} names no port: {DEFAULT_PORT} is assumed)" if bare else ""
