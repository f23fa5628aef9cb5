"""Raw connections of one client to the brokers: to the coordinator of its group, to leaders, to any broker.

A request that fails or takes too long closes its connection. The next request opens a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from broker.wire import Wire
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k03_metadata import MetadataRequest, MetadataResponse
from semel_protocol.messages.k10_find_coordinator import FindCoordinatorRequest
from semel_protocol.schema import Message

Address = tuple[str, int]

GROUP_KEY = 0
METADATA_VERSION, FIND_COORDINATOR_VERSION = 12, 2


def addresses_of(bootstrap_servers: str) -> list[Address]:
    """The addresses in a list of bootstrap servers, separated by commas."""
    return [(host, int(port)) for host, _, port in (each.partition(":") for each in bootstrap_servers.split(","))]


class NoAnswerError(Exception):
    """The request was not answered: its outcome is unknown."""


class Wires:
    """The connections of one purpose, at most one to each address. `addresses`: the bootstrap servers."""

    def __init__(self, addresses: Sequence[Address], timeout_s: float) -> None:
        self._addresses, self._timeout_s = addresses, timeout_s
        self._wires: dict[Address, Wire] = {}
        self._locks: dict[Address, asyncio.Lock] = {}
        self._coordinator: Address | None = None
        self._turn = 0

    async def call(self, address: Address, request: Message, version: int) -> Any:
        """The answer. Raises NoAnswerError."""
        async with self._locks.setdefault(address, asyncio.Lock()):
            try:
                async with asyncio.timeout(self._timeout_s):
                    wire = self._wires.get(address)
                    if wire is None:
                        wire = self._wires[address] = Wire(*await asyncio.open_connection(*address))
                    return await wire.call(request, version)
            except (OSError, EOFError) as error:
                raise NoAnswerError(repr(error)) from error
            finally:
                wire = self._wires.get(address)
                if wire is not None and (wire._expected or wire.writer.transport.is_closing()):
                    self._drop(address)

    async def ask_any(self, request: Message, version: int) -> Any:
        """The answer of one bootstrap server; the next call asks the next one if it fails. Raises NoAnswerError."""
        try:
            return await self.call(self._addresses[self._turn % len(self._addresses)], request, version)
        except NoAnswerError:
            self._turn += 1
            raise

    async def coordinate(self, group: str, request: Message, version: int) -> Any:
        """The answer of the group's coordinator. Raises NoAnswerError."""
        if self._coordinator is None:
            found = await self.ask_any(FindCoordinatorRequest(key=group, key_type=GROUP_KEY), FIND_COORDINATOR_VERSION)
            if found.error_code:
                self._turn += 1
                raise NoAnswerError(f"no coordinator: {ErrorCode(found.error_code).name}")
            self._coordinator = (found.host, found.port)
        try:
            return await self.call(self._coordinator, request, version)
        except NoAnswerError:
            self._coordinator = None
            raise

    def look_again(self) -> None:
        """Look for the coordinator before the next request to it."""
        self._coordinator = None
        self._turn += 1

    async def metadata(self) -> MetadataResponse:
        """All topics. Raises NoAnswerError."""
        answer: MetadataResponse = await self.ask_any(MetadataRequest(topics=None), METADATA_VERSION)
        return answer

    def close(self) -> None:
        """Close all connections at once."""
        for address in list(self._wires):
            self._drop(address)

    def _drop(self, address: Address) -> None:
        wire = self._wires.pop(address)
        transport: Any = wire.writer.transport
        with suppress(OSError):
            transport.abort()
