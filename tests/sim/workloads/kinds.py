"""The kinds of workloads: their topics, their clients with roles, and the rate of operations."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from sim.workloads import (
    administrator,
    driver,
    id_writer,
    intruder,
    member,
    reader,
    renewal_reader,
    renewer,
    settings,
    subscriber,
    tasker,
    transactor,
    worker,
    writer,
)
from sim.workloads.base import ClientContext, Role, Workload
from sim.workloads.plan import ClientPlan, TopicPlan, WorkloadPlan

ROLES: Mapping[str, Role] = {
    "writer": writer.write,
    "reader": reader.read,
    "member": member.take_part,
    "transactor": transactor.transact,
    "worker": worker.work,
    worker.EPOCH_ROLE: worker.work,
    "administrator": administrator.administer,
    "driver": driver.drive,
    "tasker": tasker.work,
    subscriber.ROLE: subscriber.take_part,
    renewer.ROLE: renewer.renew,
    id_writer.ROLE: id_writer.write,
    intruder.ROLE: intruder.intrude,
    renewal_reader.ROLE: renewal_reader.read,
}
FOR_EVER = {
    "retention.ms": "-1",
    "leader.replication.throttled.replicas": "*",
    "follower.replication.throttled.replicas": "*",
}
"""No retention by time: clocks that jump by days must not delete records that the final reading needs. All replicas are
listed for throttles; the rates of the brokers (`plan.draw_throttles`) decide whether these limit anything."""


def draw_topics(rng: Random, prefix: str, names: tuple[str, ...], **more: Any) -> list[TopicPlan]:
    return [
        TopicPlan(
            name=f"{prefix}{name}",
            partitions=rng.choice((1, 2, 3)),
            cleanup=more.get("cleanup", ""),
            configs={**FOR_EVER, **more.get("configs", {})},
        )
        for name in names
    ]


def draw_readers(rng: Random, prefix: str, mean_ms: float, count: int = 1) -> list[ClientPlan]:
    return [
        ClientPlan(
            name=f"{prefix}reader{number}",
            role="reader",
            settings={**settings.consumer(rng), "read_committed": rng.random() < 0.6},
            ops=reader.draw_ops(rng, count=rng.randint(20, 60), mean_ms=mean_ms),
        )
        for number in range(count)
    ]


def draw_writers(
    rng: Random, prefix: str, topics: list[TopicPlan], mean_ms: float, count: int, keys: int = 0, **fixed: Any
) -> list[ClientPlan]:
    return [
        ClientPlan(
            name=f"{prefix}writer{number}",
            role="writer",
            settings={**settings.producer(rng), **fixed},
            ops=writer.draw_ops(rng, topics, count=rng.randint(20, 60), mean_ms=mean_ms, keys=keys),
        )
        for number in range(count)
    ]


def draw_pace(rng: Random) -> float:
    """Mean milliseconds between operations. A client's script then takes from 4 to 40 s."""
    return rng.choice((200.0, 400.0, 700.0))


class PlainWorkload(Workload):
    """Producers without idempotence: no record that all replicas have is lost, but a record may be stored twice."""

    name = "plain"
    roles = ROLES

    def draw(self, rng: Random, prefix: str) -> WorkloadPlan:
        topics, pace = draw_topics(rng, prefix, ("logs",)), draw_pace(rng)
        acks = rng.choice(("all", "all", 1, 0))
        writers = draw_writers(rng, prefix, topics, pace, 2, acks=acks, enable_idempotence=False)
        clients = writers + draw_readers(rng, prefix, pace, 2)
        return WorkloadPlan(kind=self.name, prefix=prefix, topics=topics, clients=clients, broker=settings.BROKER)


class Idempotent(Workload):
    """Idempotent producers, and a group that reads their records."""

    name = "idempotent"
    roles = ROLES

    def draw(self, rng: Random, prefix: str) -> WorkloadPlan:
        topics, pace = draw_topics(rng, prefix, ("orders", "items")), draw_pace(rng)
        clients = draw_writers(rng, prefix, topics, pace, rng.choice((1, 2, 3)))
        clients += draw_readers(rng, prefix, pace)
        clients += draw_members(rng, prefix, pace, 1)
        return WorkloadPlan(
            kind=self.name, prefix=prefix, topics=topics, clients=clients, groups=[f"{prefix}group"],
            broker=settings.BROKER,
        )  # fmt: skip


def draw_members(rng: Random, prefix: str, mean_ms: float, count: int) -> list[ClientPlan]:
    strategy = rng.choice(("range", "roundrobin", "sticky", "cooperative-sticky"))
    auto_commit = rng.random() < 0.2
    patience_ms = rng.choice((2_000, 10_000))
    members = []
    for number in range(count):
        drawn = settings.member(rng)
        drawn |= {"partition_assignment_strategy": [strategy], "enable_auto_commit": auto_commit}
        drawn |= {"rebalance_timeout_ms": patience_ms}
        if rng.random() < 0.2:
            drawn["group_instance_id"] = f"{prefix}member{number}"
        ops = member.draw_ops(rng, count=rng.randint(20, 60), mean_ms=mean_ms, auto_commit=auto_commit)
        members.append(ClientPlan(name=f"{prefix}member{number}", role="member", settings=drawn, ops=ops))
    return members


class Transactional(Workload):
    """List-append: transactions over several topics by several ids; sometimes two instances use the same id."""

    name = "transactional"
    roles = ROLES

    def draw(self, rng: Random, prefix: str) -> WorkloadPlan:
        topics, pace = draw_topics(rng, prefix, ("x", "y")), draw_pace(rng)
        clients = draw_transactors(rng, prefix, topics, pace, rng.choice((1, 2, 3)))
        clients += draw_readers(rng, prefix, pace, 2)
        if rng.random() < 0.3:
            clients += draw_writers(rng, prefix, topics, pace, 1)
        return WorkloadPlan(kind=self.name, prefix=prefix, topics=topics, clients=clients, broker=settings.BROKER)


def draw_transactors(
    rng: Random, prefix: str, topics: list[TopicPlan], mean_ms: float, count: int, keys: int = 0
) -> list[ClientPlan]:
    shared = rng.random() < 0.3
    return [
        ClientPlan(
            name=f"{prefix}txn{number}",
            role="transactor",
            settings={
                **settings.transactional(rng),
                "transactional_id": f"{prefix}id{0 if shared and number < 2 else number}",
            },
            ops=transactor.draw_ops(rng, topics, count=rng.randint(15, 40), mean_ms=mean_ms, keys=keys),
        )
        for number in range(count)
    ]


class ConsumeTransformProduce(Workload):
    """A pipeline: each input becomes one output, exactly once, by workers that stop and start."""

    name = "pipeline"
    roles = ROLES

    def draw(self, rng: Random, prefix: str) -> WorkloadPlan:
        source, target = topics = draw_topics(rng, prefix, ("in", "out"))
        target.partitions = source.partitions
        pace, group = draw_pace(rng), f"{prefix}group"
        if rng.random() < 0.5:
            clients = draw_writers(rng, prefix, [source], pace, 1)
        else:
            clients = draw_transactors(rng, prefix, [source], pace, 1)
        strategy = rng.choice(("range", "sticky", "cooperative-sticky"))
        for number in range(rng.choice((1, 2, 3))):
            ops = worker.draw_ops(rng, count=rng.randint(20, 50), mean_ms=pace)
            clients.append(self._worker(rng, f"{prefix}worker{number}", strategy, ops))
        return WorkloadPlan(
            kind=self.name, prefix=prefix, topics=topics, clients=clients, groups=[group],
            pipelines=[(group, source.name, target.name)], broker=settings.BROKER,
        )  # fmt: skip

    def _worker(self, rng: Random, name: str, strategy: str, ops: list[Any]) -> ClientPlan:
        reading = {
            **settings.member(rng),
            "isolation_level": "read_committed",
            "partition_assignment_strategy": [strategy],
            "rebalance_timeout_ms": rng.choice((2_000, 10_000)),
        }
        writing = {**settings.transactional(rng), "transactional_id": name}
        return ClientPlan(
            name=name, role="worker", settings={"pen": writing, "member": reading, "reads_on": True}, ops=ops
        )

    async def settle(self, plan: WorkloadPlan, context: ClientContext) -> None:
        strategies = [
            client.settings["member"]["partition_assignment_strategy"][0]
            for client in plan.clients
            if client.role == "worker"
        ]
        if strategies:
            last = self._worker(Random(0), f"{plan.prefix}last", strategies[0], [])
            await worker.settle(plan, last, context)


class ConsumerPipeline(ConsumeTransformProduce):
    """A pipeline whose workers are members of the consumer protocol (KIP-848) with semel's client. They commit with
    their member epoch inside transactions. Sometimes a part of them are classic members, so that the group changes its
    protocol again and again. Some workers take longer for a batch than the group waits for a revocation."""

    name = "consumer-pipeline"

    def draw(self, rng: Random, prefix: str) -> WorkloadPlan:
        plan = super().draw(rng, prefix)
        timing = settings.consumer_protocol(rng)
        timing["rebalance_timeout_ms"] = min(timing["rebalance_timeout_ms"], 6_000)
        classic_share = rng.choice((0.0, 0.0, 0.5))
        for client in plan.clients:
            if client.role == "worker":
                client.role = worker.EPOCH_ROLE
                client.settings["metadata_at_poll"] = rng.random() < 0.5
                if rng.random() >= classic_share:
                    client.settings["member"] = settings.consumer_protocol_member(rng, timing)
                if rng.random() < 0.4:
                    self._slow_down(rng, client, timing["rebalance_timeout_ms"])
        plan.broker = {
            **plan.broker,
            **settings.consumer_protocol_broker(timing),
        }
        return plan

    def _slow_down(self, rng: Random, client: ClientPlan, rebalance_timeout_ms: int) -> None:
        client.settings["pen"]["transaction_timeout_ms"] = 8 * rebalance_timeout_ms
        client.settings["member"]["max_poll_interval_ms"] = 8 * rebalance_timeout_ms
        for op in client.ops:
            if op.kind == "batch" and rng.random() < 0.3:
                op.args["think_ms"] = int(rebalance_timeout_ms * (0.5 + 1.5 * rng.random()))

    async def settle(self, plan: WorkloadPlan, context: ClientContext) -> None:
        workers = [client for client in plan.clients if client.role == worker.EPOCH_ROLE]
        if workers:
            writing = {**settings.transactional(Random(0)), "transactional_id": f"{plan.prefix}last"}
            given = {**workers[0].settings, "pen": writing}
            await worker.settle(plan, ClientPlan(name=f"{plan.prefix}last", role="", settings=given), context)


class CompactedWorkload(Workload):
    """Keyed records and tombstones in a compacted topic."""

    name = "compacted"
    roles = ROLES

    def draw(self, rng: Random, prefix: str) -> WorkloadPlan:
        configs = {
            "cleanup.policy": "compact",
            "segment.bytes": str(rng.choice((1_024, 4_096))),
            "min.cleanable.dirty.ratio": rng.choice(("0.0", "0.3")),
            "delete.retention.ms": rng.choice(("0", "1000", "86400000")),
        }
        topics = draw_topics(rng, prefix, ("table",), cleanup="compact", configs=configs)
        pace, keys = draw_pace(rng), rng.choice((2, 8, 40))
        clients = draw_writers(rng, prefix, topics, pace, rng.choice((1, 2)), keys)
        if rng.random() < 0.6:
            clients += draw_transactors(rng, prefix, topics, pace, 1, keys)
        clients += draw_readers(rng, prefix, pace, 2)
        broker = {**settings.BROKER, "log.cleaner.backoff.ms": rng.choice((200, 2_000))}
        return WorkloadPlan(kind=self.name, prefix=prefix, topics=topics, clients=clients, broker=broker)


class GroupChurn(Workload):
    """A group whose members join and leave."""

    name = "churn"
    roles = ROLES

    def draw(self, rng: Random, prefix: str) -> WorkloadPlan:
        topics, pace = draw_topics(rng, prefix, ("flow", "side")), draw_pace(rng)
        clients = draw_writers(rng, prefix, topics, pace, 1)
        clients += draw_members(rng, prefix, pace, rng.choice((2, 3, 4)))
        return WorkloadPlan(
            kind=self.name, prefix=prefix, topics=topics, clients=clients, groups=[f"{prefix}group"],
            broker=settings.BROKER,
        )  # fmt: skip


class ConsumerChurn(GroupChurn):
    """A group of semel's clients that join and leave in the consumer protocol (KIP-848). They commit outside
    transactions, with their member epoch. Sometimes a part of them are classic members, so that the group changes its
    protocol again and again."""

    name = "consumer-churn"

    def draw(self, rng: Random, prefix: str) -> WorkloadPlan:
        plan = super().draw(rng, prefix)
        timing = settings.consumer_protocol(rng)
        classic_share = rng.choice((0.0, 0.0, 0.5))
        for client in plan.clients:
            if client.role == "member" and rng.random() >= classic_share:
                client.settings = {
                    **settings.consumer_protocol_member(rng, timing),
                    "isolation_level": rng.choice(("read_committed", "read_uncommitted")),
                    "enable_auto_commit": client.settings["enable_auto_commit"],
                    "group_instance_id": client.settings.get("group_instance_id"),
                }
        plan.broker = {**plan.broker, **settings.consumer_protocol_broker(timing)}
        return plan


class Retention(Workload):
    """A topic with retention by time and size and with DeleteRecords. Some producers pause longer than that."""

    name = "retention"
    roles = ROLES

    def draw(self, rng: Random, prefix: str) -> WorkloadPlan:
        configs = {
            "segment.bytes": str(rng.choice((1_024, 4_096))),
            "retention.ms": str(rng.choice((-1, 3_000, 20_000))),
            "retention.bytes": str(rng.choice((-1, 1_000, 5_000))),
            "segment.ms": str(rng.choice((1_000, 60_000))),
        }
        topics = draw_topics(rng, prefix, ("events",), cleanup="delete", configs=configs)
        pace = draw_pace(rng)
        clients = draw_writers(rng, prefix, topics, pace, rng.choice((1, 2)))
        if rng.random() < 0.5:
            clients += draw_transactors(rng, prefix, topics, pace, 1)
        clients += draw_readers(rng, prefix, pace, 2)
        ops = administrator.draw_deletions(rng, topics, count=rng.randint(0, 8), mean_ms=4 * pace)
        clients.append(
            ClientPlan(
                name=f"{prefix}boss", role="administrator", settings=settings.any_client(rng), ops=ops
            )
        )  # fmt: skip
        broker = {
            **settings.BROKER,
            "log.retention.check.interval.ms": rng.choice((300, 2_000)),
            # Longer than any delivery timeout here: a batch is stored twice if its producer expires during retries.
            "producer.id.expiration.ms": rng.choice((200_000, 86_400_000)),
            "producer.id.expiration.check.interval.ms": 1_000,
        }
        return WorkloadPlan(kind=self.name, prefix=prefix, topics=topics, clients=clients, broker=broker)


class AdministrationWorkload(Workload):
    """Topics that are created, grown, altered and deleted, next to one that a producer writes to."""

    name = "admin"
    roles = ROLES

    def draw(self, rng: Random, prefix: str) -> WorkloadPlan:
        topics, pace = draw_topics(rng, prefix, ("steady",)), draw_pace(rng)
        clients = draw_writers(rng, prefix, topics, pace, 1)
        for number in range(rng.choice((1, 2))):
            ops = administrator.draw_ops(rng, f"{prefix}boss{number}-", count=rng.randint(10, 30), mean_ms=pace)
            clients.append(
                ClientPlan(
                    name=f"{prefix}boss{number}", role="administrator", settings=settings.any_client(rng), ops=ops
                )
            )  # fmt: skip
        return WorkloadPlan(kind=self.name, prefix=prefix, topics=topics, clients=clients, broker=settings.BROKER)


class TransactionGroupsWorkload(Workload):
    """Batches that a driver splits into tasks and commits as one: transactions of many producers in one group.

    Sometimes a deputy takes over from a silent driver, which may continue later.
    """

    name = "groups"
    roles = ROLES

    def draw(self, rng: Random, prefix: str) -> WorkloadPlan:
        configs = {"segment.bytes": str(rng.choice((32_768, 1 << 30)))}  # the largest batch must fit into a segment
        topics, pace = draw_topics(rng, prefix, ("sink", "side"), configs=configs), draw_pace(rng)
        timeout_ms = rng.choice((3_000, 10_000, 60_000))
        clients = [
            ClientPlan(
                name=f"{prefix}driver{number}",
                role="driver",
                settings={**settings.any_client(rng), "timeout_ms": timeout_ms},
                ops=driver.draw_ops(rng, topics, count=rng.randint(8, 20), mean_ms=pace),
            )
            for number in range(rng.choice((1, 2)))
        ]
        clients += [
            ClientPlan(
                name=f"{prefix}tasker{number}",
                role="tasker",
                settings=settings.producer(rng),
                ops=tasker.draw_ops(rng, count=rng.randint(15, 40), mean_ms=pace / 4),
            )
            for number in range(rng.choice((2, 3)))
        ]
        clients += draw_readers(rng, prefix, pace)
        # The decisions of all members are one batch, and a batch must fit into a segment.
        broker = {**settings.BROKER, "transaction.state.log.segment.bytes": rng.choice((65_536, 100 << 20))}
        return WorkloadPlan(kind=self.name, prefix=prefix, topics=topics, clients=clients, broker=broker)


class ConsumerProtocolWorkload(Workload):
    """A group of the consumer protocol (KIP-848), whose members speak the wire without semel's client. Sometimes topics
    come and go that regular expressions of members match."""

    name = "consumers"
    roles = ROLES

    def draw(self, rng: Random, prefix: str) -> WorkloadPlan:
        topics, pace = draw_topics(rng, prefix, ("feed", "side")), draw_pace(rng)
        for topic in topics:
            topic.partitions = rng.choice((1, 2, 4))
        clients = draw_transactors(rng, prefix, topics, pace, 1)
        if rng.random() < 0.5:
            clients += draw_writers(rng, prefix, topics, pace, 1)
        timing = settings.consumer_protocol(rng)
        for number in range(rng.choice((2, 3, 4))):
            drawn = settings.subscriber(rng, timing)
            if rng.random() < 0.3:
                drawn["instance_id"] = f"{prefix}seat{number}"
            if rng.random() < 0.3:
                drawn["regex"] = f"(?i){prefix.upper()}.*" if number % 2 else f"{prefix}.*"
            ops = subscriber.draw_ops(rng, [topic.name for topic in topics], count=rng.randint(20, 60), mean_ms=pace)
            clients.append(
                ClientPlan(name=f"{prefix}subscriber{number}", role=subscriber.ROLE, settings=drawn, ops=ops)
            )  # fmt: skip
        if rng.random() < 0.4:
            clients.append(
                ClientPlan(
                    name=f"{prefix}boss",
                    role="administrator",
                    settings=settings.any_client(rng),
                    ops=administrator.draw_ops(rng, f"{prefix}boss-", count=rng.randint(4, 12), mean_ms=2 * pace),
                )
            )
        broker = {**settings.BROKER, **settings.consumer_protocol_broker(timing)}
        return WorkloadPlan(
            kind=self.name, prefix=prefix, topics=topics, clients=clients, groups=[f"{prefix}group"], broker=broker
        )


class Renewal(Workload):
    """A topic that is deleted and created again under the same name, several times, while clients write to it by topic
    id and read it: without a group, in a classic group, in a group of the consumer protocol."""

    name = "renewal"
    roles = ROLES

    def draw(self, rng: Random, prefix: str) -> WorkloadPlan:
        pace, timing = draw_pace(rng), settings.consumer_protocol(rng)
        topic = TopicPlan(name=f"{prefix}again", partitions=3, configs=FOR_EVER)
        ops = renewer.draw_ops(rng, count=rng.randint(3, 9), partitions_max=topic.partitions, mean_ms=pace)
        clients = [
            ClientPlan(name=f"{prefix}renewer", role=renewer.ROLE, settings=settings.any_client(rng), ops=ops),
        ]
        for number in range(rng.choice((1, 2))):
            bursts = id_writer.draw_ops(
                rng, count=rng.randint(20, 60), partitions_max=topic.partitions, mean_ms=pace / 2
            )
            drawn = {"request_timeout_ms": rng.choice((700, 2_000, 5_000))}
            clients.append(
                ClientPlan(name=f"{prefix}writer{number}", role=id_writer.ROLE, settings=drawn, ops=bursts)
            )  # fmt: skip
        ways = (renewal_reader.ASSIGNED, renewal_reader.CLASSIC, renewal_reader.CONSUMER)
        for way in rng.sample(ways, rng.choice((1, 2, 3))):
            clients += draw_renewal_readers(rng, prefix, way, pace, timing)
        # Produce by topic id came with transaction version 2.
        broker = {
            **settings.BROKER,
            **settings.consumer_protocol_broker(timing),
            "transaction.version": 2,
        }
        return WorkloadPlan(kind=self.name, prefix=prefix, topics=[], clients=clients, broker=broker, renewed=[topic])

    async def settle(self, plan: WorkloadPlan, context: ClientContext) -> None:
        await renewal_reader.settle(plan, context)


def draw_renewal_readers(
    rng: Random, prefix: str, way: str, mean_ms: float, timing: dict[str, Any]
) -> list[ClientPlan]:
    """One consumer without a group, or one or two members of a group."""
    auto_commit = rng.random() < 0.4
    strategy = rng.choice(("range", "roundrobin", "sticky", "cooperative-sticky"))
    interval_ms = rng.choice((100, 1_000))
    clients = []
    for number in range(1 if way == renewal_reader.ASSIGNED else rng.choice((1, 2))):
        if way == renewal_reader.CONSUMER:
            drawn = settings.consumer_protocol_member(rng, timing)
        elif way == renewal_reader.CLASSIC:
            drawn = {**settings.member(rng), "partition_assignment_strategy": [strategy]}
        else:
            drawn = settings.consumer(rng)
        drawn |= {"way": way, "isolation_level": rng.choice(("read_committed", "read_uncommitted"))}
        if way != renewal_reader.ASSIGNED:
            drawn |= {"enable_auto_commit": auto_commit, "auto_commit_interval_ms": interval_ms}
        ops = renewal_reader.draw_ops(rng, count=rng.randint(20, 60), mean_ms=mean_ms, commits=not auto_commit)
        clients.append(
            ClientPlan(name=f"{prefix}{way}{number}", role=renewal_reader.ROLE, settings=drawn, ops=ops)
        )  # fmt: skip
    return clients
