"""Rights that are taken from clients and given back during a run, by an administrator on a host of its own.

Brokers of a run with rights have an authorizer. At first everyone may do everything. A fault "revoke" takes one right
from one client: the administrator adds an entry that denies it to the client's host. Deny overrules allow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from enum import StrEnum
from random import Random
from typing import Any

import msgspec
from semel import Admin
from semel.errors import KafkaError
from semel_protocol.acls import (
    CLUSTER_NAME,
    WILDCARD,
    WILDCARD_PRINCIPAL,
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

from sim.client import SimEdge
from sim.history import History
from sim.host import Host

HOST = "rights"
LOOK_S = 0.1
RUNS_SHARE = 0.1
SETTINGS: Mapping[str, Any] = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": True,  # until the first entries are there
}


class RightKind(StrEnum):
    """The kinds of rights that a run takes away."""

    WRITE_TOPIC = "write topic"
    READ_TOPIC = "read topic"
    WRITE_ID = "write transactional id"
    READ_GROUP = "read group"


ACTS = {
    RightKind.WRITE_TOPIC: (ResourceType.TOPIC, Operation.WRITE),
    RightKind.READ_TOPIC: (ResourceType.TOPIC, Operation.READ),
    RightKind.WRITE_ID: (ResourceType.TRANSACTIONAL_ID, Operation.WRITE),
    RightKind.READ_GROUP: (ResourceType.GROUP, Operation.READ),
}


RIGHTS = tuple(RightKind)
RIGHTS_OF: Mapping[str, tuple[RightKind, ...]] = {
    "writer": (RightKind.WRITE_TOPIC,),
    "reader": (RightKind.READ_TOPIC,),
    "member": (RightKind.READ_GROUP, RightKind.READ_TOPIC),
    "subscriber": (RightKind.READ_GROUP, RightKind.READ_TOPIC),
    "transactor": (RightKind.WRITE_TOPIC, RightKind.WRITE_ID),
    "tasker": (RightKind.WRITE_TOPIC, RightKind.WRITE_ID),
    "worker": RIGHTS,
    "epoch-worker": RIGHTS,
    "id-writer": (RightKind.WRITE_TOPIC,),
    "renewal-reader": (RightKind.READ_TOPIC,),
}
"""The rights that the clients of a role need; all for other roles."""


class Right(msgspec.Struct, frozen=True):
    """A right of the client on `host` to the resource of this name."""

    host: str
    what: RightKind
    name: str

    def denial(self) -> Acl:
        resource_type, operation = ACTS[self.what]
        return Acl(
            resource_type,
            self.name,
            PatternType.LITERAL,
            WILDCARD_PRINCIPAL,
            self.host,
            operation,
            Permission.DENY,
        )


def everything_to_everyone() -> list[Acl]:
    """The entries at the start of a run."""
    names = {
        ResourceType.TOPIC: WILDCARD,
        ResourceType.GROUP: WILDCARD,
        ResourceType.TRANSACTIONAL_ID: WILDCARD,
        ResourceType.CLUSTER: CLUSTER_NAME,
    }
    return [
        Acl(kind, name, PatternType.LITERAL, WILDCARD_PRINCIPAL, WILDCARD, Operation.ALL, Permission.ALLOW)
        for kind, name in names.items()
    ]


def draw_settings(rng: Random) -> dict[str, Any]:
    """The brokers' settings for rights, in a tenth of the runs."""
    return dict(SETTINGS) if rng.random() < RUNS_SHARE else {}


class Rights:
    """The administrator. `names`: the resources of the run, by the right that concerns them."""

    def __init__(self, history: History, address: str, names: Mapping[RightKind, list[str]]) -> None:
        self._recorder, self._address, self._names = history.recorder(HOST), address, names
        self._wanted: dict[Right, int] = {}  # how many faults take it now
        self._asked: dict[Right, None] = {}  # whose denial may be there
        self._denied: dict[Right, None] = {}  # of these, whose denial is there
        self._is_over = False

    def right_of(self, host: str, what: float, number: float) -> Right:
        """The right that a fault with these arguments is about: to a resource of the client's workload, if there is one
        of its kind, else to a topic.
        """
        kind = RIGHTS[int(what)]
        kind = kind if self._names[kind] else RightKind.READ_TOPIC
        prefix = host.partition("-")[0] + "-"
        names = [name for name in self._names[kind] if name.startswith(prefix)] or self._names[kind]
        return Right(host, kind, names[int(number) % len(names)])

    def take(self, right: Right) -> None:
        self._wanted[right] = self._wanted.get(right, 0) + 1

    def give_back(self, right: Right) -> None:
        if self._wanted.get(right, 0) > 1:
            self._wanted[right] -= 1
        else:
            self._wanted.pop(right, None)

    def end(self) -> None:
        """Give all rights back; then the administrator's process ends."""
        self._wanted.clear()
        self._is_over = True

    async def main(self, host: Host) -> None:
        """Write the wanted entries again and again, until all requests have succeeded."""
        while True:
            try:
                async with Admin(bootstrap_servers=self._address, edge=SimEdge(host)) as admin:
                    while not self._is_over or self._asked:
                        await self._adjust(admin)
                        await asyncio.sleep(LOOK_S)
                    return
            except KafkaError:
                await asyncio.sleep(LOOK_S)

    async def _adjust(self, admin: Admin) -> None:
        """Raise KafkaError: the change may have been made or not."""
        for right in [each for each in self._wanted if each not in self._denied]:
            self._note(right, "taking")
            self._asked[right] = None
            await admin.create_acls([right.denial()])
            self._denied[right] = None
            self._note(right, "taken")
        for right in [each for each in self._asked if each not in self._wanted]:
            self._note(right, "giving back")
            self._denied.pop(right, None)
            await admin.delete_acls([filter_of(right.denial())])
            del self._asked[right]
            self._note(right, "given back")

    def _note(self, right: Right, stage: str) -> None:
        self._recorder.right_changed(right.host, right.what, right.name, stage)


def filter_of(acl: Acl) -> AclFilter:
    """The filter that selects this entry alone."""
    return AclFilter(acl.resource_type, acl.name, acl.pattern, acl.principal, acl.host, acl.operation, acl.permission)


def names_of(topics: Iterable[str], ids: Iterable[str], groups: Iterable[str]) -> dict[RightKind, list[str]]:
    """The names for which each right is given or taken, in the form that `Rights` takes."""
    return {
        RightKind.WRITE_TOPIC: list(topics),
        RightKind.READ_TOPIC: list(topics),
        RightKind.WRITE_ID: list(ids),
        RightKind.READ_GROUP: list(groups),
    }
