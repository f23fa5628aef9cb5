"""PURE: The identity of a producer (id and epoch), and the name of a client."""

from __future__ import annotations

import msgspec

EPOCH_MAX = 32_767
EPOCH_LAST = EPOCH_MAX - 1
"""The last epoch that a producer gets. The epoch above it is reserved for a fence."""


class ProducerIdentity(msgspec.Struct, frozen=True, gc=False):
    """A producer id and epoch; false for `NO_IDENTITY`."""

    producer_id: int = -1
    epoch: int = -1

    def __bool__(self) -> bool:
        return self.producer_id >= 0

    def __str__(self) -> str:
        return f"producer id {self.producer_id} epoch {self.epoch}"

    @property
    def successor(self) -> ProducerIdentity | None:
        """The same id with the next epoch; None once its epochs are used up."""
        return ProducerIdentity(self.producer_id, self.epoch + 1) if self.epoch < EPOCH_LAST else None

    @property
    def fence(self) -> ProducerIdentity:
        """The same id with an epoch that fences this one; no producer writes with EPOCH_MAX."""
        assert self.epoch < EPOCH_MAX, self
        return ProducerIdentity(self.producer_id, self.epoch + 1)


NO_IDENTITY = ProducerIdentity()


class ClientName(msgspec.Struct, frozen=True):
    """A client's own client id, and the host it connects from. A broker has only a host ("broker 0")."""

    client_id: str = ""
    host: str = ""

    def cut(self, length_max: int) -> ClientName:
        """The same with names of no more than so many characters."""
        return ClientName(self.client_id[:length_max], self.host[:length_max])

    def __str__(self) -> str:
        if not self.client_id:
            return self.host or "an unknown client"
        return f"client {self.client_id!r} at {self.host or 'an unknown host'}"
