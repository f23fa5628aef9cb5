"""PURE: quotas of clients (KIP-546): the entities that have them, the filters that find them, and their names.

An entity is a user, a client id, both together, or the address of a client. Each part is a name, or the default for all
names without a quota of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import ClassVar, Final, Literal

import msgspec

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
REQUEST_PERCENTAGE: Final = "request_percentage"
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"

CLIENT_KEYS: Final = (PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE)
"""Quotas of users and client ids."""
IP_KEYS: Final = (CONNECTION_CREATION_RATE,)
"""Quotas of addresses."""
WHOLE_NUMBERS: Final = frozenset({PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, CONNECTION_CREATION_RATE})
"""Quotas without fractions."""

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
TYPES: Final = (USER, CLIENT_ID, IP)
"""Types of the parts of an entity."""

EXACT, DEFAULT_MATCH, ANY_MATCH = 0, 1, 2
"""Match types of DescribeClientQuotas."""


class SpecialEntity(Enum):
    """A part that is no name. `ANY`: in filters only."""

    DEFAULT = "<default>"
    ANY = "<any>"


DEFAULT: Final = SpecialEntity.DEFAULT
"""The quota of all users, client ids or addresses without one of their own."""
ANY: Final = SpecialEntity.ANY
"""In a filter: every name, and the default."""

Part = str | Literal[SpecialEntity.DEFAULT] | None
"""None: the entity has no such part."""


class QuotaEntity(msgspec.Struct, frozen=True):
    """A user, a client id, both together, or an address. `user`: without `User:`."""

    DEFAULT: ClassVar = SpecialEntity.DEFAULT

    user: Part = None
    client_id: Part = None
    ip: Part = None

    @property
    def parts(self) -> dict[str, str | None]:
        """Type -> name, as in the protocol; None: the default."""
        given = {USER: self.user, CLIENT_ID: self.client_id, IP: self.ip}
        return {kind: None if part is DEFAULT else part for kind, part in given.items() if part is not None}

    @classmethod
    def of_parts(cls, parts: Mapping[str, str | None]) -> QuotaEntity:
        """The entity of parts as in the protocol. Raises KeyError for an unknown type."""
        fields: dict[str, Part] = {}
        for kind, name in parts.items():
            fields[_FIELD_OF[kind]] = DEFAULT if name is None else name
        return cls(**fields)

    def __str__(self) -> str:
        words = [f"{kind} {SpecialEntity.DEFAULT.value if name is None else name}" for kind, name in self.parts.items()]
        return ", ".join(words)

    @property
    def order(self) -> tuple[tuple[str, bool, str], ...]:
        """Sort entities by their parts, names before the default."""
        return tuple((kind, name is None, name or "") for kind, name in self.parts.items())


_FIELD_OF: Final = {USER: "user", CLIENT_ID: "client_id", IP: "ip"}


class QuotaFilter(msgspec.Struct, frozen=True):
    """Selects entities. Each part is a name, `DEFAULT`, `ANY`, or None: no condition.

    `strict`: only entities that have no other parts than those with a condition.
    """

    DEFAULT: ClassVar = SpecialEntity.DEFAULT
    ANY: ClassVar = SpecialEntity.ANY

    user: str | SpecialEntity | None = None
    client_id: str | SpecialEntity | None = None
    ip: str | SpecialEntity | None = None
    strict: bool = False

    @property
    def parts(self) -> dict[str, str | SpecialEntity]:
        """The conditions by type."""
        given = {USER: self.user, CLIENT_ID: self.client_id, IP: self.ip}
        return {kind: part for kind, part in given.items() if part is not None}

    def matches(self, entity: QuotaEntity) -> bool:
        """Whether the filter selects the entity."""
        wanted, there = self.parts, entity.parts
        if self.strict and len(wanted) != len(there):
            return False
        for kind, part in wanted.items():
            if kind not in there:
                return False
            if part is not ANY and there[kind] != (None if part is DEFAULT else part):
                return False
        return True
