"""One broker and its groups, in three scenarios: a cooperative rebalance in which members die, members that are
killed while they join, and offsets that are deleted while a transaction has written them.

The broker is the unchanged Node. The members speak the raw wire. The seed decides the scenario and its times. Three
rules are checked: at rest each partition has one owner; the death of a member that joins delays no other member;
deleted offsets stay deleted, also when the broker starts again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import msgspec
from broker.members import WireMember
from broker.transactional import TransactionalProducer
from broker.wire import Wire
from semel_broker.groups.embedded import NamedPlaces, assignment_of, encoded_assignment, owned_by
from semel_broker.groups.embedded import subscription_of as read_subscription
from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from semel_protocol.messages.k11_join_group import JoinGroupRequestProtocol
from semel_protocol.messages.k42_delete_groups import DeleteGroupsRequest
from semel_protocol.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from support.embedded import encoded_subscription

from sim.broker import PORT, SimBroker
from sim.checkers.anomaly import Anomaly
from sim.control import Listener
from sim.host import Host
from sim.run import RunVerdict
from sim.world import NS, SimWorld, StuckHost

CHECKERS = ("unowned-partition", "slow-join", "deleted-offset")
TOPIC, PARTITIONS = "t", 6
SETTINGS = {"group.initial.rebalance.delay.ms": 0}
SESSION_MS = 3_000
HEARTBEAT_S = 0.3
STARTS_WITHIN_NS = 20 * NS
REST_NS = 4 * SESSION_MS * NS // 1_000
"""The time in which a group that no member leaves any more becomes stable: former sessions end, and rebalances
follow.
"""
CHURN_S = 8.0
JOINED_WITHIN_S = SESSION_MS / 1_000 + 1.5
"""The time limit after members of a generation were killed: their sessions, heartbeats of the others, and the
rebalance.
"""
REJOIN = (ErrorCode.REBALANCE_IN_PROGRESS,)
LOST = (OSError, EOFError, TimeoutError)

Scene = Callable[["GroupRun"], None]


class Death(msgspec.Struct, frozen=True):
    """A member dies at this moment: amid its rebalance callback, or while it waits in JoinGroup."""

    member: str
    moment: str


class GroupRun:
    """One run of a seed. `anomalies`: findings. `faults`: the deaths of members, as they happen."""

    about = "groups"

    def __init__(self, seed: int, listener: Listener | None = None) -> None:
        self.seed = seed
        self.rng = Random(f"groups/{seed}")
        self.world = SimWorld(seed, listener)
        self.broker = SimBroker(self.world.host("broker"), SETTINGS)
        self.topic_broker: Scene = SCENES[seed % len(SCENES)]
        self.faults: list[Death] = []
        self.anomalies: list[Anomaly] = []
        self.owned: dict[str, NamedPlaces] = {}
        """By member: the partitions that its present process owns."""
        self.is_over = False

    def judged(self) -> RunVerdict:
        """Execute the run and give the verdict."""
        self.execute()
        world = self.world
        return RunVerdict(
            seed=self.seed,
            digest=world.digest(),
            anomalies=self.anomalies,
            failures=[str(failure) for failure in world.failures],
            simulated_s=world.now_ns / NS,
            steps=world.steps,
        )

    def execute(self) -> list[str]:
        """Run, and return all findings as text."""
        try:
            self.start_broker()
            self.topic_broker(self)
        except StuckHost as error:
            self.note("slow-join", str(error))
        finally:
            self.world.close()
        return [*map(str, self.anomalies), *map(str, self.world.failures)]

    def start_broker(self) -> None:
        """Start it, and wait until it serves."""
        self.broker.boot()
        assert self.world.run(self.world.now_ns + STARTS_WITHIN_NS, lambda: self.broker.serves)

    def note(self, checker: str, what: str) -> None:
        """Record a finding."""
        anomaly = Anomaly(checker, f"{self.world.now_ns / NS:.3f} {what}")
        self.anomalies.append(anomaly)
        self.world.note("checker", str(anomaly))

    def run_s(self, seconds: float, stop: Callable[[], bool] | None = None) -> bool:
        """Let time pass, until `stop()`."""
        return self.world.run(self.world.now_ns + int(seconds * NS), stop)

    def start(self, name: str, main: Callable[[Host], Coroutine[Any, Any, None]]) -> Host:
        """Start a process on the host of this name."""
        host = self.world.hosts.get(name) or self.world.host(name)
        host.boot(main)
        return host

    async def wire(self) -> Wire:
        """A connection to the broker."""
        return Wire(*await asyncio.open_connection(self.broker.host.name, PORT))


# --- a cooperative rebalance in which static members die --------------------------------------------------------------


class CooperativeMember:
    """A static member of the classic protocol with a cooperative assignor (KIP-429)."""

    def __init__(self, run: GroupRun, name: str) -> None:
        self._run, self._name = run, name
        self._owned: set[tuple[str, int]] = set()

    async def live(self, host: Host) -> None:
        """Take part in the group until the process is killed."""
        self._own(set())
        while True:
            try:
                await self._take_part(WireMember(await self._run.wire(), instance=self._name), host)
            except LOST:
                self._own(set())
                await asyncio.sleep(0.1)

    async def _take_part(self, member: WireMember, host: Host) -> None:
        while True:
            metadata = encoded_subscription(1, [TOPIC], sorted(self._owned))
            protocols = [JoinGroupRequestProtocol(name="coop", metadata=metadata)]
            joined = await member.join(
                protocols=protocols, session_timeout_ms=SESSION_MS, rebalance_timeout_ms=SESSION_MS
            )
            if joined.error_code:
                return self._reset(member)
            is_leader = joined.leader == member.member_id and not joined.skip_assignment
            synced = await member.sync(cooperative(joined.members) if is_leader else {})
            if synced.error_code in REJOIN:
                continue
            if synced.error_code:
                return self._reset(member)
            assigned = set(assignment_of(synced.assignment) or ())
            if self._owned - assigned:
                await self._revoke(host)
                self._own(self._owned & assigned)
                continue
            self._own(assigned)
            while not (code := await member.heartbeat()):
                await asyncio.sleep(HEARTBEAT_S)
            if code not in REJOIN:
                return self._reset(member)

    async def _revoke(self, host: Host) -> None:
        """The application's rebalance callback, in which the process may die."""
        await asyncio.sleep(host.rng.uniform(0.0, 0.3))
        if not self._run.is_over and host.rng.random() < 0.5:
            self._run.faults.append(Death(self._name, "amid its rebalance callback"))
            host.exit("killed amid a rebalance callback")

    def _reset(self, member: WireMember) -> None:
        self._own(set())
        member.wire.writer.close()

    def _own(self, owned: set[tuple[str, int]]) -> None:
        self._owned = owned
        self._run.owned[self._name] = tuple(sorted(owned))


def cooperative(members: list[Any]) -> dict[str, bytes]:
    """PURE. Equal shares. A partition that has an owner stays with it, or is assigned to no member this time."""
    ids = [row.member_id for row in members]
    owned = {
        row.member_id: owned_by(found) for row in members if (found := read_subscription(row.metadata)) is not None
    }
    owner_of = {place: member_id for member_id, places in owned.items() for place in places}
    most = -(-PARTITIONS // len(ids))
    shares: dict[str, list[tuple[str, int]]] = {member_id: [] for member_id in ids}
    rest = []
    for place in [(TOPIC, index) for index in range(PARTITIONS)]:
        owner = owner_of.get(place)
        if owner is not None and len(shares[owner]) < most:
            shares[owner].append(place)
        else:
            rest.append(place)
    for place in rest:
        taker = min(ids, key=lambda each: len(shares[each]))
        shares[taker].append(place)
    for member_id, places in shares.items():
        shares[member_id] = [place for place in places if owner_of.get(place, member_id) == member_id]
    return {member_id: encoded_assignment(1, places) for member_id, places in shares.items()}


def cooperative_rebalance(run: GroupRun) -> None:
    """Static members come one after the other, and die while they revoke; each is started again within its session."""
    members = {name: CooperativeMember(run, name) for name in ("a", "b", "c")[: run.rng.choice((2, 3))]}

    def again(name: str) -> Callable[[str], None]:
        def start(_reason: str) -> None:
            run.owned[name] = ()
            pause_ns = int(run.rng.uniform(0.1, 0.6) * SESSION_MS / 1_000 * NS)
            run.world.after(pause_ns, lambda: run.start(name, members[name].live))

        return start

    for name, member in members.items():
        host = run.start(name, member.live)
        host.ended = again(name)
        run.run_s(run.rng.uniform(0.5, 2.0))
    run.run_s(CHURN_S)
    run.is_over = True
    run.world.run(run.world.now_ns + REST_NS)
    owned = [place for places in run.owned.values() for place in places]
    for index in range(PARTITIONS):
        if (count := owned.count((TOPIC, index))) != 1:
            run.note("unowned-partition", f"{TOPIC}-{index} has {count} owners at rest: {run.owned}")


# --- members that are killed while they join --------------------------------------------------------------------------


def killed_while_joining(run: GroupRun) -> None:
    """Members of a generation are killed, and those that come in their place while they join. Then others come."""
    joined: dict[str, int] = {}

    def joining(name: str) -> Callable[[Host], Coroutine[Any, Any, None]]:
        async def main(_host: Host) -> None:
            member = WireMember(await run.wire())
            settings = {"session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": 10 * SESSION_MS}
            while (await member.join(**settings)).error_code or (await member.sync({})).error_code:
                await asyncio.sleep(0.05)
            joined[name] = run.world.now_ns
            while not await member.heartbeat():
                await asyncio.sleep(HEARTBEAT_S)

        return main

    first = [run.start(f"first-{number}", joining(f"first-{number}")) for number in range(run.rng.choice((1, 2)))]
    run.run_s(10, lambda: len(joined) == len(first))
    run.run_s(run.rng.uniform(0.5, 2.0))
    killed_ns = run.world.now_ns
    for host in first:
        host.kill()
    waiting = [run.start(f"waits-{number}", joining(f"waits-{number}")) for number in range(run.rng.choice((1, 2)))]
    run.run_s(run.rng.uniform(0.2, 1.5))
    for host in waiting:
        run.faults.append(Death(host.name, "while it waits in JoinGroup"))
        host.kill()
    run.start("last", joining("last"))
    run.run_s(3 * SESSION_MS / 1_000, lambda: "last" in joined)
    waited_s = (joined.get("last", run.world.now_ns) - killed_ns) / NS
    if waited_s > JOINED_WITHIN_S:
        run.note("slow-join", f"the group worked {waited_s:.3f} s after its members had been killed")


# --- offsets that are deleted -----------------------------------------------------------------------------------------


class OffsetModel:
    """PURE. The committed offsets of the group, and those that its open transaction has written, by partition."""

    def __init__(self) -> None:
        self.committed: dict[int, int] = {}
        self.pending: dict[int, int] = {}

    def commit(self, partition: int, offset: int) -> None:
        self.committed[partition] = offset
        self.pending.pop(partition, None)  # the last record of a key counts

    def delete(self, *partitions: int) -> None:
        for partition in partitions:
            self.committed.pop(partition, None)
            self.pending.pop(partition, None)

    def end(self, commit: bool) -> None:
        if commit:
            self.committed |= self.pending
        self.pending = {}


def deleted_offsets(run: GroupRun) -> None:
    """The commits, deletions and ends of transactions, one after the other; sometimes the broker starts again."""
    model, state = OffsetModel(), {"steps": run.rng.randint(15, 40), "at": 0}
    producers: dict[str, TransactionalProducer] = {}

    async def main(_host: Host) -> None:
        wire = await run.wire()
        if "tx" not in producers:
            await wire.create_topic(TOPIC, PARTITIONS)
            producers["tx"] = await TransactionalProducer(wire, run.rng.choice((1, 2))).init()
        producers["tx"].wire = wire
        while state["at"] < state["steps"]:
            state["at"] += 1
            await offset_step(run, model, producers["tx"], state["at"])
            if run.rng.random() < 0.1:
                return  # and the broker starts again

    while state["at"] < state["steps"] and not run.anomalies:
        host = run.start("client", main)
        assert run.run_s(60, lambda host=host: not host.is_running), "the client ends"  # type: ignore[misc]
        run.broker.host.kill()
        run.start_broker()


async def offset_step(run: GroupRun, model: OffsetModel, producer: TransactionalProducer, offset: int) -> None:
    """One change of offsets, and what is committed after it."""
    wire, partition, group = producer.wire, run.rng.randrange(PARTITIONS), "g"
    act = run.rng.choice(("commit", "hold", "hold", "hold", "delete", "delete group", "end"))
    run.world.note("client", f"{act} {partition} {offset}")
    match act:
        case "commit":
            assert await WireMember(wire, group).commit({partition: offset}, topic=TOPIC) == [0]
            model.commit(partition, offset)
        case "hold":
            assert await producer.commit_offsets({partition: offset}, group_id=group, topic=TOPIC) == [0]
            model.pending[partition] = offset
        case "delete":
            rows = [OffsetDeleteRequestPartition(partition_index=partition)]
            topics = [OffsetDeleteRequestTopic(name=TOPIC, partitions=rows)]
            answer = await wire.call(OffsetDeleteRequest(group_id=group, topics=topics))
            assert answer.error_code in (0, ErrorCode.GROUP_ID_NOT_FOUND)
            model.delete(partition)
        case "delete group":
            answer = await wire.call(DeleteGroupsRequest(groups_names=[group]))
            assert answer.results[0].error_code in (0, ErrorCode.GROUP_ID_NOT_FOUND)
            model.delete(*range(PARTITIONS))
        case "end" if model.pending:
            commit = run.rng.random() < 0.7
            assert await producer.end(commit) == 0
            model.end(commit)
    asked = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=list(range(PARTITIONS)))
    answer = await wire.call(OffsetFetchRequest(group_id=group, topics=[asked]), 7)
    seen = {
        row.partition_index: row.committed_offset for row in answer.topics[0].partitions if row.committed_offset >= 0
    }
    if seen != model.committed:
        run.note("deleted-offset", f"after {act} of {partition} the offsets are {seen}, not {model.committed}")


SCENES: tuple[Scene, ...] = (cooperative_rebalance, killed_while_joining, deleted_offsets)
