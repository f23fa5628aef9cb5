"""Plans with faults for one safeguard, for situations that random faults hardly ever produce.

Each function takes a plan as drawn from its seed and keeps its workloads. The faults are its own, at times drawn from
the seed.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

from msgspec.structs import replace

from sim.cluster import BROKER, NAMES_OF
from sim.disk import DiskWeather
from sim.faults import WRITE_TXN_MARKERS, Fault
from sim.network import NetworkWeather
from sim.plan import RunPlan, open_late
from sim.workloads.administrator import draw_deletions
from sim.workloads.plan import Op, TopicPlan
from sim.workloads.renewer import draw_ops as draw_renewals
from sim.workloads.settings import consumer_protocol_broker

BROKERS = NAMES_OF[3]
PRODUCE, OFFSET_COMMIT, CREATE_TOPICS, DELETE_RECORDS, CONSUMER_GROUP_HEARTBEAT = 0, 8, 19, 21, 68
ONE, STORE, EVERYBODY = 0, 2, 3
"""The peers of a fault: another broker, the store, all brokers and the store."""


def calm(plan: RunPlan, faults: Iterator[Fault], **settings: Any) -> RunPlan:
    """The plan with an undisturbed network and disk, and with these faults only. Settings have `_` for `.`."""
    plan.network, plan.disk, plan.finale = NetworkWeather(), DiskWeather(), "none"
    plan.broker |= {name.replace("_", "."): value for name, value in settings.items()}
    plan.faults = sorted(faults, key=lambda fault: fault.at_ms)
    return plan


def slow(
    at_ms: float, host: str, whom: int, lasting_ms: float, by_ms: float, other: int = 0, *, answers: bool = True
) -> Fault:
    """Delay by `by_ms` the messages from a peer to `host`; without `answers`, those from `host` to the peer."""
    args = {"whom": whom, "other": other, "by_ms": by_ms, "answers": int(answers)}
    return Fault(at_ms=int(at_ms), kind="slow peers", host=host, lasting_ms=int(lasting_ms), args=args)


def has_both_protocols(plan: RunPlan) -> bool:
    """Whether some members of the group are of the consumer protocol, and others classic ones."""
    protocols = {
        client.settings.get("group_protocol", "classic")
        for workload in plan.workloads
        for client in workload.clients
        if client.role == "member"
    }
    return len(protocols) > 1


def opened_late(plan: RunPlan) -> RunPlan:
    """A single broker opens its logs after it listens, and often ends."""
    rng = Random(f"opened late/{plan.seed}")
    open_late(calm(plan, iter(())), rng, until_ms=30_000)
    if plan.settings.get("durability") != "os":
        plan.finale = rng.choice(("kill", "power loss"))
    return plan


def late_marker(plan: RunPlan) -> RunPlan:
    """A coordinator's markers are delayed, and the coordinator is killed soon after it sent them."""
    rng = Random(f"late marker/{plan.seed}")

    def faults() -> Iterator[Fault]:
        for at_ms in range(500, 33_000, 7_000):
            coordinator = rng.choice(BROKERS)
            args = {"api_key": WRITE_TXN_MARKERS, "by_ms": rng.uniform(2_100, 3_300), "count": 2, "answers": 0}
            yield Fault(at_ms=at_ms, kind="hold", host=coordinator, args=args)
            yield Fault(
                at_ms=at_ms,
                kind="kill broker",
                host=coordinator,
                lasting_ms=rng.choice((50, 4_000)),
                aim=WRITE_TXN_MARKERS,
                aim_ms=round(rng.uniform(0.1, 20), 3),
            )

    return calm(
        plan,
        faults(),
        transaction_version=1,
        broker_session_timeout_ms=2_000,
        replica_lag_time_max_ms=1_000,
        transaction_state_log_num_partitions=3,
    )


def late_news(plan: RunPlan) -> RunPlan:
    """Random brokers get changes from the store late, and sometimes also messages of another broker."""
    rng = Random(f"late news/{plan.seed}")

    def faults() -> Iterator[Fault]:
        for at_ms in range(500, 40_000, 4_000):
            host = rng.choice(BROKERS)
            yield slow(at_ms, host, STORE, 3_500, rng.choice((400, 1_500, 2_500)))
            if rng.random() < 0.5:
                yield slow(at_ms, host, ONE, 3_000, rng.choice((100, 600, 1_200)), rng.randrange(2))

    return calm(
        plan,
        faults(),
        broker_session_timeout_ms=6_000,
        replica_lag_time_max_ms=10_000,
        leader_imbalance_check_interval_seconds=1,
    )


def parted_logs(plan: RunPlan) -> RunPlan:
    """Brokers are cut off from the others and from the store, and still get records.

    When they are back, retention has deleted the offsets at which the logs diverged.
    """
    rng = Random(f"parted logs/{plan.seed}")
    for workload in plan.workloads:
        for topic in workload.topics:
            topic.configs["retention.ms"] = "1000"

    def faults() -> Iterator[Fault]:
        for at_ms in range(1_000, 40_000, 6_000):
            alone: dict[str, float] = {"whom": EVERYBODY, "other": 0, "ways": 2}
            yield Fault(at_ms=at_ms, kind="cut peers", host=rng.choice(BROKERS), lasting_ms=4_000, args=alone)

    return calm(plan, faults(), broker_session_timeout_ms=1_000, log_retention_check_interval_ms=300)


def lost_outcome(plan: RunPlan) -> RunPlan:
    """Right after its decision a coordinator is cut off from the store, and its followers are slow. It has written a
    decision that may be lost, and answers with an error. The first driver retries late; its deputy does not wait for
    it.
    """
    rng = Random(f"lost outcome/{plan.seed}")
    drivers = [client for workload in plan.workloads for client in workload.clients if client.role == "driver"]
    for driver in drivers[:1]:
        driver.settings |= {"retry_backoff_ms": 4_500, "retry_backoff_max_ms": 4_500, "max_block_ms": 20_000}

    def faults() -> Iterator[Fault]:
        for at_ms in range(1_000, 36_000, 9_000):
            for host in BROKERS:
                deaf: dict[str, float] = {"whom": STORE, "other": 0, "ways": rng.randrange(2)}
                yield Fault(
                    at_ms=at_ms, kind="cut peers", host=host, lasting_ms=4_000, moment="PrepareCommit", args=deaf
                )
                for other in (0, 1):
                    late = slow(at_ms, host, ONE, 4_000, 3_000, other)
                    yield replace(late, moment="PrepareCommit", aim_ms=round(rng.uniform(0.1, 2), 3))

    return calm(plan, faults(), broker_session_timeout_ms=2_000, transaction_state_log_num_partitions=3)


def lost_decision(plan: RunPlan) -> RunPlan:
    """Power losses right after the decision on a step of a transaction group, on disks with slow syncs."""
    rng = Random(f"lost decision/{plan.seed}")

    def faults() -> Iterator[Fault]:
        for at_ms in range(500, 40_000, 3_000):
            aim_ms = round(rng.uniform(0.1, 25), 3)
            lasting_ms = rng.choice((100, 1_000))
            yield Fault(
                at_ms=at_ms,
                kind="power loss",
                host=BROKER,
                lasting_ms=lasting_ms,
                moment="StepCommitted",
                aim_ms=aim_ms,
            )

    plan = calm(plan, faults(), durability="fsync")
    plan.disk = DiskWeather(sync_ms=(2.0, 30.0))
    return plan


def lasting_readers(plan: RunPlan) -> RunPlan:
    """Brokers are killed one after the other. Each reader keeps one consumer for the whole run. The consumer buffers
    little, and refreshes metadata only when it must.
    """
    rng = Random(f"lasting readers/{plan.seed}")
    for client in (client for workload in plan.workloads for client in workload.clients):
        if client.role in ("reader", "member"):
            client.ops = [op for op in client.ops if op.kind != "renew"]
            client.settings |= {"metadata_max_age_ms": 300_000, "max_partition_fetch_bytes": 200, "max_poll_records": 3}

    def faults() -> Iterator[Fault]:
        for at_ms in range(2_000, 30_000, 5_000):
            yield Fault(
                at_ms=at_ms + rng.randrange(2_000),
                kind="kill broker",
                host=rng.choice(BROKERS),
                lasting_ms=rng.choice((200, 2_500)),
            )

    return calm(plan, faults(), broker_session_timeout_ms=2_000)


def long_absence(plan: RunPlan) -> RunPlan:
    """Random brokers are cut off from the store for longer than tombstones stay."""
    rng = Random(f"long absence/{plan.seed}")

    def faults() -> Iterator[Fault]:
        for at_ms in range(2_000, 40_000, 18_000):
            alone: dict[str, float] = {"whom": STORE, "other": 0, "ways": 2}
            at_ms += rng.randrange(3_000)
            yield Fault(at_ms=at_ms, kind="cut peers", host=rng.choice(BROKERS), lasting_ms=15_000, args=alone)

    return calm(plan, faults(), broker_session_timeout_ms=2_000, log_cleaner_backoff_ms=200)


def deletions_cut_short(plan: RunPlan) -> RunPlan:
    """Power losses during deletions of records, which happen all the time.

    Answers to producers are delayed, so that producers send batches again.
    """
    rng = Random(f"deletions cut short/{plan.seed}")
    (workload,) = plan.workloads
    writers = [client for client in workload.clients if client.role in ("writer", "transactor")]
    for client in workload.clients:
        if client.role == "administrator":
            client.ops = draw_deletions(rng, workload.topics, count=40, mean_ms=600)

    def faults() -> Iterator[Fault]:
        for at_ms in range(500, 40_000, 1_000):
            late: dict[str, float] = {"api_key": PRODUCE, "by_ms": rng.uniform(1_000, 6_000), "count": 3, "answers": 1}
            changes: dict[str, float] = {"changes": rng.randrange(2, 9)}
            yield Fault(at_ms=at_ms, kind="hold", host=rng.choice(writers).name, args=late)
            yield Fault(at_ms=at_ms, kind="power loss amid changes", host=BROKER, aim=DELETE_RECORDS, args=changes)

    return calm(plan, faults(), durability="fsync")


def deletions_answered_early(plan: RunPlan) -> RunPlan:
    """A power loss right after each deletion of records: after its answer, if the answer does not wait for the disk."""
    rng = Random(f"deletions answered early/{plan.seed}")
    (workload,) = plan.workloads
    for client in workload.clients:
        if client.role == "administrator":
            client.ops = draw_deletions(rng, workload.topics, count=8, mean_ms=1_500)

    def faults() -> Iterator[Fault]:
        for at_ms in range(500, 20_000, 1_000):
            aim_ms = round(rng.uniform(1, 12), 3)
            yield Fault(at_ms=at_ms, kind="power loss", host=BROKER, lasting_ms=100, aim=DELETE_RECORDS, aim_ms=aim_ms)

    plan = calm(plan, faults(), durability="fsync")
    plan.disk = DiskWeather(sync_ms=(2.0, 30.0))
    return plan


def renewed_and_killed(plan: RunPlan) -> RunPlan:
    """The broker is killed as soon as a topic is created again, before its first record: with entries of the former
    topic in the checkpoint files, its partitions would be missing."""
    rng = Random(f"renewed and killed/{plan.seed}")

    def faults() -> Iterator[Fault]:
        for at_ms in range(2_000, 40_000, 2_000):
            aim_ms = round(rng.uniform(1, 15), 3)
            yield Fault(at_ms=at_ms, kind="kill broker", host=BROKER, lasting_ms=100, aim=CREATE_TOPICS, aim_ms=aim_ms)

    return calm(plan, faults(), log_flush_offset_checkpoint_interval_ms=1_000)


def rolls_and_power_losses(plan: RunPlan) -> RunPlan:
    """Batches of which each fills a segment, five at a time, on a disk with slow syncs; and power losses amid them."""
    rng = Random(f"rolls and power losses/{plan.seed}")
    for workload in plan.workloads:
        for topic in workload.topics:
            topic.configs["segment.bytes"] = "1024"
        for client in (client for client in workload.clients if client.role == "writer"):
            client.settings |= {
                "linger_ms": 0,
                "max_batch_size": 1,
                "max_in_flight_requests_per_connection": 5,
                "compression_type": None,
                "pad_bytes": 700,
                "delivery_timeout_ms": 60_000,
                "enable_idempotence": True,
            }
            sends = [[workload.topics[0].name, 0, f"k{number}", False] for number in range(6)]
            client.ops = [Op(kind="burst", pause_ms=200, args={"sends": sends, "waits": False})] * 60

    def faults() -> Iterator[Fault]:
        for at_ms in range(500, 20_000, 700):
            aim_ms = round(rng.uniform(1, 20), 3)
            yield Fault(at_ms=at_ms, kind="power loss", host=BROKER, lasting_ms=50, aim=PRODUCE, aim_ms=aim_ms)

    plan = calm(plan, faults(), durability="fsync", log_segment_bytes=1_024)
    plan.disk = DiskWeather(sync_ms=(10.0, 60.0))
    return plan


def late_commits(plan: RunPlan) -> RunPlan:
    """Commit of members of the consumer protocol are held until the member has committed again over another
    connection, in a group whose members stay."""
    rng = Random(f"late commits/{plan.seed}")
    members = [client for workload in plan.workloads for client in workload.clients if client.role == "subscriber"]
    for client in members:
        client.ops = [op for op in client.ops if op.kind in ("poll", "commit")]

    def faults() -> Iterator[Fault]:
        for at_ms in range(500, 20_000, 500):
            late: dict[str, float] = {
                "api_key": OFFSET_COMMIT,
                "until": OFFSET_COMMIT,
                "past": 2,
                "by_ms": 2,
                "breaks": 1,
            }
            yield Fault(at_ms=at_ms, kind="late", host=rng.choice(members).name, args=late)

    return calm(plan, faults())


def late_heartbeats(plan: RunPlan) -> RunPlan:
    """Heartbeats of members of the consumer protocol are held until the member has sent more of them over another
    connection. Members revoke slowly, and the group waits for them."""
    rng = Random(f"late heartbeats/{plan.seed}")
    members = [client for workload in plan.workloads for client in workload.clients if client.role == "subscriber"]
    timing = {"session_timeout_ms": 6_000, "heartbeat_ms": 600, "rebalance_timeout_ms": 24_000}
    for client in members:
        client.settings |= {**timing, "request_timeout_ms": 700, "revoke_ms": 5_000}
        for op in client.ops:
            op.pause_ms = min(op.pause_ms, 1_500)
    for workload in plan.workloads:
        workload.broker |= consumer_protocol_broker(timing)
        for topic in workload.topics:
            topic.partitions = 4

    def faults() -> Iterator[Fault]:
        for at_ms in range(300, 25_000, 700):
            late: dict[str, float] = {
                "api_key": CONSUMER_GROUP_HEARTBEAT,
                "until": CONSUMER_GROUP_HEARTBEAT,
                "past": rng.choice((2, 3, 4, 6, 8, 12)),
                "by_ms": rng.choice((1, 50)),
                "breaks": 1,
            }
            yield Fault(at_ms=at_ms, kind="late", host=rng.choice(members).name, args=late)

    return calm(plan, faults())


def lost_heartbeat_answers(plan: RunPlan) -> RunPlan:
    """Answers to heartbeats of the consumer protocol arrive too late. Members come and go, and change what they
    subscribe to, so that the answer before may be out of date when the member asks again."""
    rng = Random(f"lost heartbeat answers/{plan.seed}")
    timing = {"session_timeout_ms": 1_500, "heartbeat_ms": 300, "rebalance_timeout_ms": 1_500}
    for workload in plan.workloads:
        workload.broker |= consumer_protocol_broker(timing)
        names = [topic.name for topic in workload.topics]
        for topic in workload.topics:
            topic.partitions = 4
        for client in workload.clients:
            if client.role != "subscriber":
                continue
            client.settings |= {**timing, "request_timeout_ms": 700, "revoke_ms": 100}
            for op in client.ops:
                op.pause_ms = min(op.pause_ms, 300)
                if op.kind == "look":
                    op.kind, op.args = "subscribe", {"topics": rng.choice((names, names[:1]))}
    members = [client for workload in plan.workloads for client in workload.clients if client.role == "subscriber"]

    def faults() -> Iterator[Fault]:
        for at_ms in range(300, 25_000, 500):
            late: dict[str, float] = {"api_key": CONSUMER_GROUP_HEARTBEAT, "by_ms": 1_500, "count": 1, "answers": 1}
            yield Fault(at_ms=at_ms, kind="hold", host=rng.choice(members).name, args=late)

    return calm(plan, faults())


def removals_stored_late(plan: RunPlan) -> RunPlan:
    """Members of the consumer protocol are paused for a little longer than their session lasts.

    Brokers get messages of other brokers late, so the removal of a member is stored slowly. The member comes back
    meanwhile, sends a few heartbeats, and is paused again, so that it does not learn of its removal.
    """
    rng = Random(f"removals stored late/{plan.seed}")
    members = [client for workload in plan.workloads for client in workload.clients if client.role == "subscriber"]
    timing = {"session_timeout_ms": 3_000, "heartbeat_ms": 300, "rebalance_timeout_ms": 6_000}
    for client in members:
        client.settings |= timing
    for workload in plan.workloads:
        workload.broker |= consumer_protocol_broker(timing)

    def faults() -> Iterator[Fault]:
        for at_ms in range(2_000, 38_000, 9_000):
            for host in BROKERS:
                yield from (slow(at_ms, host, ONE, 8_000, 700, other) for other in (0, 1))
            name, first_ms = rng.choice(members).name, rng.randrange(3_000, 4_500)
            yield Fault(at_ms=at_ms, kind="pause client", host=name, lasting_ms=first_ms)
            again_ms = at_ms + first_ms + rng.randrange(100, 700)
            yield Fault(at_ms=again_ms, kind="pause client", host=name, lasting_ms=3_000)

    return calm(plan, faults(), replica_lag_time_max_ms=10_000)


def deposed_unawares(plan: RunPlan) -> RunPlan:
    """A broker gets SIGTERM while messages between it and the store are slow. Other brokers are elected as leaders,
    and the broker learns that late.

    A member of the consumer protocol is paused a little later.
    """
    rng = Random(f"deposed unawares/{plan.seed}")
    members = [client for workload in plan.workloads for client in workload.clients if client.role == "subscriber"]
    timing = {"session_timeout_ms": 3_000, "heartbeat_ms": 300, "rebalance_timeout_ms": 6_000}
    for workload in plan.workloads:
        workload.broker |= consumer_protocol_broker(timing)
    for client in members:
        client.settings |= {**timing, "request_timeout_ms": 5_000}

    def faults() -> Iterator[Fault]:
        for at_ms in range(3_000, 30_000, 9_000):
            host = rng.choice(BROKERS)
            yield slow(at_ms, host, STORE, 4_500, 3_000, answers=rng.random() < 0.5)
            yield Fault(at_ms=at_ms + rng.randrange(500), kind="terminate broker", host=host)
            stops_ms = at_ms + rng.randrange(500, 4_000)
            yield Fault(at_ms=stops_ms, kind="pause client", host=rng.choice(members).name, lasting_ms=8_000)

    return calm(plan, faults(), broker_session_timeout_ms=6_000)


def commits_amid_renewals(plan: RunPlan) -> RunPlan:
    """A topic is deleted and created again every other second. Commits of its readers are held for longer than the
    readers wait for an answer, so that they are tried again."""
    rng = Random(f"commits amid renewals/{plan.seed}")
    clients = [client for workload in plan.workloads for client in workload.clients]
    readers = [client for client in clients if client.role == "renewal-reader"]
    for client in readers:
        client.settings |= {"request_timeout_ms": 700, "default_api_timeout_ms": 5_000, "metadata_max_age_ms": 2_000}
    for client in clients:
        for op in client.ops:
            op.pause_ms = min(op.pause_ms, 300)
        if client.role == "renewer":
            client.ops = draw_renewals(rng, count=12, partitions_max=1, mean_ms=0)
            for op in client.ops:
                op.pause_ms = rng.randrange(500, 3_500) if op.kind == "delete" else 0

    def faults() -> Iterator[Fault]:
        for at_ms in range(500, 25_000, 400):
            late: dict[str, float] = {
                "api_key": OFFSET_COMMIT,
                "by_ms": rng.uniform(700, 3_000),
                "count": 2,
                "answers": 0,
            }
            yield Fault(at_ms=at_ms, kind="hold", host=rng.choice(readers).name, args=late)

    return calm(plan, faults())


def refusals_amid_moves(plan: RunPlan) -> RunPlan:
    """Writers send a few small batches and, right behind them, one above segment.bytes. Leaders are cut off from the
    store and hear late that followers have a small batch, so that the batch waits until another broker leads."""
    rng = Random(f"refusals amid moves/{plan.seed}")
    for workload in plan.workloads:
        for client in workload.clients:
            if client.role != "writer":
                continue
            client.settings |= {
                "linger_ms": 0,
                "max_batch_size": 16_384,
                "max_in_flight_requests_per_connection": 5,
                "compression_type": None,
                "pad_bytes": 700,
                "delivery_timeout_ms": 60_000,
                "enable_idempotence": True,
            }
            client.ops = [op for _ in range(40) for op in _small_and_large(rng, workload.topics)]

    def faults() -> Iterator[Fault]:
        for at_ms in range(2_000, 40_000, 6_000):
            host = rng.choice(BROKERS)
            deaf: dict[str, float] = {"whom": STORE, "other": 0, "ways": 2}
            yield Fault(at_ms=at_ms, kind="cut peers", host=host, lasting_ms=3_000, args=deaf)
            yield from (slow(at_ms, host, ONE, 3_000, 2_500, other) for other in (0, 1))

    return calm(
        plan, faults(), log_segment_bytes=2_048, broker_session_timeout_ms=1_000, replica_lag_time_max_ms=10_000
    )


def _small_and_large(rng: Random, topics: list[TopicPlan]) -> Iterator[Op]:
    topic = rng.choice(topics)
    partition = rng.randrange(topic.partitions)
    for records in (1, 1, 1, 1, 12):
        sends = [[topic.name, partition, None, False]] * records
        pause_ms = rng.randrange(300) if records == 1 else 5
        yield Op(kind="burst", pause_ms=pause_ms, args={"sends": sends, "waits": False})
