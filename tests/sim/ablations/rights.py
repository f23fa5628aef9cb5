"""Safeguards of authorisation: every broker refuses what a client has no right to do, also after every restart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Any

from semel._net.cluster import Cluster
from semel._net.connection import Connection
from semel_broker import node
from semel_broker.authorization import guard
from semel_broker.authorization.audit_log import AuditLog
from semel_broker.cluster.etcd.watch import EtcdWatch
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import ImageDelta
from semel_broker.cluster.store import Change, Store
from semel_broker.cluster.writes import write
from semel_broker.security import acl_store
from semel_broker.security.acl_store import AclStore
from semel_broker.security.authorizer import Authorizer, Decision
from semel_protocol.acls import Acl, Permission

from sim import rights
from sim.ablations.ablation import Seam, safeguard
from sim.ablations.occasions import BROKERS, STORE, calm, slow
from sim.audited import AuditRun
from sim.faults import RIGHTS_FAULTS, Fault
from sim.plan import RunPlan, with_revocations

UNTIL_MS = 25_000
SHORT_DENIALS_UNTIL_MS = 10_000
"""Later a refusal is not excused by a denial that some broker has not followed yet."""


RIGHTS_SETTINGS = {name.replace(".", "_"): value for name, value in rights.SETTINGS.items()}
"""Settings of brokers with an authorizer, as `calm` takes them."""


def with_rights(plan: RunPlan) -> RunPlan:
    """The plan with an authorizer, and with rights that are taken away during its faults."""
    plan.broker |= rights.SETTINGS
    plan.faults = [fault for fault in plan.faults if fault.kind != "revoke"]
    plan.faults = with_revocations(plan, Random(f"until/{plan.seed}").randrange(5_000, UNTIL_MS))
    return plan


of_rights = partial(safeguard, occasion=with_rights)


@of_rights("requests are authorised", "no request without the right for it is carried out", "transactional")
def not_authorised(seam: Seam) -> None:
    seam.replace(guard, "_guarded", lambda key, handler, *_, **__: handler)


@of_rights(
    "a fetch that waited is authorised again",
    "a fetch that waits while its right is taken away returns nothing that is written after that",
    "plain",
    "consumer-churn",
)
def authorised_once(seam: Seam) -> None:
    seam.replace(node, "checked_when_ready", lambda fetch, authorizer: fetch)


@of_rights("a denial overrules", "an entry that allows does not help against one that denies", "idempotent", "plain")
def without_denials(seam: Seam) -> None:
    decide = Authorizer._decide

    def blind(self: Authorizer, *asked: object) -> Decision:
        found = decide(self, *asked)  # type: ignore[arg-type]
        return found if found.rule is None or found.rule.permission is Permission.ALLOW else Decision(True, "blind")

    seam.replace(Authorizer, "_decide", blind)


@of_rights("decisions are forgotten", "a right that is taken away does not last in the cache of decisions", "plain")
def remembered(seam: Seam) -> None:
    change = Authorizer.change

    def and_keep(self: Authorizer, *, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> None:
        cached = dict(self._cache)
        change(self, added=added, removed=removed)
        self._cache = cached

    seam.replace(Authorizer, "change", and_keep)


@of_rights("denials outlive a restart", "a restarted broker refuses what it refused before", "plain", "idempotent")
def forgotten(seam: Seam) -> None:
    take = AclStore._take

    def without_denials_of_the_store(self: AclStore, keys: Iterable[str]) -> None:
        if not self._followed:  # at the start
            keys = [key for key in keys if self._feed.image.acls[key].permission is Permission.ALLOW]
        take(self, keys)

    seam.replace(AclStore, "_take", without_denials_of_the_store)


@of_rights("all brokers follow the ACLs", "a right taken away through one broker is denied by all", brokers=3)
def unfollowed(seam: Seam) -> None:
    follow = AclStore._follow

    def only_mine(self: AclStore, delta: ImageDelta) -> None:
        if self._feed.image is not None and len(self.authorizer.acls) < len(rights.everything_to_everyone()):
            follow(self, delta)

    seam.replace(AclStore, "_follow", only_mine)


def short_denials(plan: RunPlan) -> RunPlan:
    """Rights are taken away for a short time only, while brokers get changes from the store late."""
    rng = Random(f"short denials/{plan.seed}")
    hosts = list(plan.roles)

    def faults() -> Iterator[Fault]:
        for at_ms in range(500, SHORT_DENIALS_UNTIL_MS, 700):
            host = rng.choice(hosts)
            taken = RIGHTS_FAULTS["revoke"].args(rng, plan.roles[host])
            lasting_ms = rng.choice((50, 200, 400))
            yield Fault(at_ms=at_ms, kind="revoke", host=host, lasting_ms=lasting_ms, args=taken)
            if rng.random() < 0.5:
                yield slow(at_ms, rng.choice(BROKERS), STORE, 1_000, rng.choice((200, 400)))

    return calm(plan, faults(), **RIGHTS_SETTINGS)


def any_broker(seam: Seam) -> None:
    """Administrators ask any broker, as with Kafka's AdminClient."""

    async def connection(self: Cluster) -> Connection:
        known = list(self.metadata.brokers)
        self.edge.rng.shuffle(known)
        _, found = await self._first_of([*known, *self._bootstrap_ids])
        return found

    seam.replace(Cluster, "controller_connection", connection)


@safeguard(
    "DeleteAcls selects among all entries",
    "a denial that is deleted is gone, whichever broker is asked",
    "plain",
    "idempotent",
    brokers=3,
    given=any_broker,
    occasion=short_denials,
)
def deleted_blindly(seam: Seam) -> None:
    async def as_known_here(self: AclStore) -> None:
        """The image may lack the entry that another broker has just answered."""

    seam.replace(AclStore, "settle", as_known_here)


def late_denials(plan: RunPlan) -> RunPlan:
    """The store is slow when a right is taken away, and the broker that was asked to is killed; another one is asked
    then, by a store that is fast again. So it may give the right back before the first denial arrives.
    """
    rng = Random(f"late denials/{plan.seed}")
    hosts = list(plan.roles)

    def faults() -> Iterator[Fault]:
        for at_ms in range(500, SHORT_DENIALS_UNTIL_MS, 2_500):
            host = rng.choice(hosts)
            taken = RIGHTS_FAULTS["revoke"].args(rng, plan.roles[host])
            yield Fault(at_ms=at_ms, kind="slow store", host="store", lasting_ms=250, args={"factor": 1_000})
            yield Fault(at_ms=at_ms, kind="revoke", host=host, lasting_ms=rng.choice((300, 600)), args=taken)
            yield Fault(at_ms=at_ms + 260, kind="kill broker", host=rng.choice(BROKERS), lasting_ms=1_000)

    return calm(plan, faults(), **RIGHTS_SETTINGS)


@safeguard(
    "a late change of an ACL fails",
    "a denial that the store applies after another broker has created and deleted it does not come back",
    "plain",
    "idempotent",
    brokers=3,
    occasion=late_denials,
)
def applied_late(seam: Seam) -> None:
    async def whenever(store: Store, feed: Feed, written: str, changes: Sequence[Change]) -> None:
        while not await write(store, feed, [], changes):
            pass

    seam.replace(acl_store, "write_serially", whenever)


def unanswered_denials(plan: RunPlan) -> RunPlan:
    """The store stands still when a right is taken away, until the administrator has had an error and gives it back."""
    rng = Random(f"unanswered denials/{plan.seed}")

    def faults() -> Iterator[Fault]:
        for at_ms in (1_000, 20_000):
            host = rng.choice(list(plan.roles))
            taken = RIGHTS_FAULTS["revoke"].args(rng, plan.roles[host])
            yield Fault(at_ms=at_ms, kind="store paused", host="store", lasting_ms=rng.randrange(10_500, 14_500))
            yield Fault(at_ms=at_ms + 50, kind="revoke", host=host, lasting_ms=1_000, args=taken)

    return calm(plan, faults(), **RIGHTS_SETTINGS)


@safeguard(
    "a deletion that finds nothing counts as a change",
    "a denial whose deletion was answered is not created later, by a store that had it already",
    "plain",
    "idempotent",
    brokers=3,
    occasion=unanswered_denials,
)
def deleted_too_early(seam: Seam) -> None:
    seam.replace(AclStore, "settle", AclStore.catch_up)


def silent_watches(plan: RunPlan) -> RunPlan:
    """The host of the store loses its power while each client lacks a right, so the brokers' watches are silent. Two of
    the brokers are restarted and follow again. Then the rights are given back.
    """
    rng = Random(f"silent watches/{plan.seed}")
    hosts = list(plan.roles)

    def faults() -> Iterator[Fault]:
        for at_ms in (1_000, 25_000):
            for host in hosts:
                taken = RIGHTS_FAULTS["revoke"].args(rng, plan.roles[host])
                yield Fault(at_ms=at_ms, kind="revoke", host=host, lasting_ms=3_000, args=taken)
            yield Fault(at_ms=at_ms + 1_000, kind="store down", host="store", lasting_ms=200, args={"dark": 1})
            for broker in rng.sample(BROKERS, 2):
                yield Fault(at_ms=at_ms + 1_500, kind="kill broker", host=broker, lasting_ms=100)

    return calm(plan, faults(), **RIGHTS_SETTINGS)


@safeguard(
    "a watch keeps up with the keep-alives",
    "a broker follows the store again soon after a failure that its connection does not show",
    "plain",
    "idempotent",
    brokers=3,
    occasion=silent_watches,
)
def silent(seam: Seam) -> None:
    seam.replace(EtcdWatch, "keep_up", lambda *_: None)


@safeguard(
    "a required audit log that is behind refuses changes",
    "each acknowledged administrative change has its line in a required audit log",
    alone=AuditRun,
)
def changes_without_lines(seam: Seam) -> None:
    init = AuditLog.__init__

    def careless(self: AuditLog, write: Any, time: Any, call_later: Any, allowed: Any, is_behind: Any) -> None:
        init(self, write, time, call_later, allowed)

    seam.replace(AuditLog, "__init__", careless)
