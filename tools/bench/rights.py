"""Authorisation: what a decision costs with 10,000 ACLs, and what an authorizer costs a producer."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

from semel import Admin
from semel_broker.security.authorizer import Authorizer, Principal
from semel_protocol.acls import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

from tools.bench.figure import Figure, at_most, per_second, ratio
from tools.bench.measure import broker, work

ACLS = 10_000
ACLS_PER_REQUEST = 1_000
CHECKS = 200_000
CHECK_US = 2.0
PRODUCE_RATIO = 0.95
ANONYMOUS = "User:ANONYMOUS"
SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


def rights(directory: Path, records: int, runs: int) -> list[Figure]:
    """Measure decisions of the authorizer, and idempotent produce by librdkafka with an authorizer and without."""
    rates: dict[bool, list[float]] = {False: [], True: []}
    for run in range(runs):
        for is_guarded, found in rates.items():
            with broker(directory / f"{is_guarded}-{run}", "os", **(SETTINGS if is_guarded else {})) as process:
                if is_guarded:
                    asyncio.run(create(process.address, entries()))
                done = work("librdkafka_produce", address=process.address, records=records)
                found.append(done["records_per_s"])
    without, guarded = (statistics.median(rates[each]) for each in (False, True))
    return [
        *decisions(runs),
        per_second("produce, durability=os, no authorizer", without),
        ratio(f"  with an authorizer and {ACLS:,} ACLs", guarded / without, PRODUCE_RATIO),
    ]


def decisions(runs: int) -> list[Figure]:
    """Decisions about 1,000 topics, each asked for 200 times; and the first one about each."""
    authorizer = Authorizer()
    authorizer.change(added=entries())
    alice = Principal("User:alice-7", "10.0.0.7")
    names = [f"orders-{number}" for number in range(1_000)]
    first, again = [], []
    for _ in range(runs):
        authorizer.change()  # drops the cache
        first.append(timed(authorizer, alice, names, 1) / len(names))
        again.append(timed(authorizer, alice, names, CHECKS // len(names)) / CHECKS)
    return [
        at_most(f"decision with {ACLS:,} ACLs, cached", statistics.median(again) * 1e6, "µs", CHECK_US),
        at_most("  the first one about a resource", statistics.median(first) * 1e6, "µs"),
    ]


def timed(authorizer: Authorizer, principal: Principal, names: Sequence[str], times: int) -> float:
    """Seconds for `times` decisions about each name."""
    allows, topic, write = authorizer.allows, ResourceType.TOPIC, Operation.WRITE
    began = time.perf_counter()
    for _ in range(times):
        for name in names:
            allows(principal, write, topic, name)
    return time.perf_counter() - began


def entries() -> list[Acl]:
    """`ACLS` entries: everything for this program; of the others half are literal, half prefixed."""
    literal, prefixed = PatternType.LITERAL, PatternType.PREFIXED

    def entry(kind: ResourceType, name: str, pattern: PatternType, principal: str, operation: Operation) -> Acl:
        return Acl(kind, name, pattern, principal, WILDCARD, operation, Permission.ALLOW)

    own = [
        entry(kind, name, literal, ANONYMOUS, Operation.ALL)
        for kind, name in ((ResourceType.CLUSTER, CLUSTER_NAME), (ResourceType.TOPIC, WILDCARD))
    ]
    others = [
        entry(
            ResourceType.TOPIC,
            f"orders-{number}" if number % 2 else f"team-{number}-",
            literal if number % 2 else prefixed,
            f"User:alice-{number % 100}",
            Operation.WRITE,
        )
        for number in range(ACLS - len(own))
    ]
    return [*own, *others]


async def create(address: str, acls: Sequence[Acl]) -> None:
    """Store the entries."""
    async with Admin(bootstrap_servers=address) as admin:
        for at in range(0, len(acls), ACLS_PER_REQUEST):
            await admin.create_acls(acls[at : at + ACLS_PER_REQUEST])
