"""Safeguards in the producer state of a log: each batch is stored once, in order, and never from a fenced producer."""

from __future__ import annotations

from random import Random
from typing import Any

from crc32c import crc32c
from semel_broker.coordination.producer_owners import ProducerOwners
from semel_protocol.batch import BatchHeader
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.log import snapshot
from semel_storage.log.durability import Steps
from semel_storage.log.log import Log
from semel_storage.log.snapshot import Snapshots
from semel_storage.producers import producers
from semel_storage.producers.producers import BatchPlace, ProducerState

from sim.ablations.ablation import Seam, both, broker_ends, faults, power_fails, safeguard
from sim.ablations.durability import frequent_checkpoints, slow_disk
from sim.ablations.worlds import short_producer_expiration, uncertain_snapshots
from sim.plan import RunPlan, add_intruder
from sim.workloads import intruder

LOSES_ANSWERS = faults("reset", "kill broker", "cut", "hold", "late", "power loss", "slow link")


def idempotent_bursts(plan: RunPlan) -> bool:
    """Whether an idempotent producer has several batches in flight: its batches are small."""
    clients = [client for workload in plan.workloads for client in workload.clients if client.role == "writer"]
    return any(
        client.settings.get("enable_idempotence", True) and client.settings["max_batch_size"] <= 200
        for client in clients
    )


def long_transactions(plan: RunPlan) -> bool:
    """Whether transactions may stay open without a request for more than two seconds."""
    clients = [client for workload in plan.workloads for client in workload.clients if client.role == "transactor"]
    return any(client.settings["transaction_timeout_ms"] > 2_000 for client in clients)


def forgiving(seam: Seam, *forgiven: ErrorCode) -> None:
    """`producers.check` accepts batches that it would refuse with one of these codes."""
    check = producers.check

    def forgiving_check(state: ProducerState | None, header: BatchHeader) -> BatchPlace | None:
        try:
            return check(state, header)
        except KafkaError as error:
            if error.code in forgiven:
                return None
            raise

    seam.replace(producers, "check", forgiving_check)


def with_intruder(plan: RunPlan) -> RunPlan:
    """The plan with an intruder, and with the authorizer that it may have."""
    if not any(client.role == intruder.ROLE for workload in plan.workloads for client in workload.clients):
        add_intruder(plan, Random(f"intruder of {plan.seed}"), share=1)
    return plan


def without_owners(seam: Seam) -> None:
    seam.replace(ProducerOwners, "check", lambda self, owner, producer_id, sender: None)


safeguard(
    "producer ids have owners",
    "no client writes into the transaction of another, or in the place of its batches",
    "idempotent",
    "transactional",
    occasion=with_intruder,
)(without_owners)
safeguard(
    "producer ids have owners, on each broker",
    "a leader that has never seen a producer knows the owner of its id",
    "idempotent",
    "transactional",
    brokers=3,
    occasion=with_intruder,
)(without_owners)


@safeguard("duplicate window", "a batch that is sent again after a lost answer is stored once", shows=LOSES_ANSWERS)
def duplicate_window(seam: Seam) -> None:
    check = producers.check

    def forgetful_check(state: ProducerState | None, header: BatchHeader) -> None:
        check(state, header)

    seam.replace(producers, "check", forgetful_check)


@safeguard("sequence check", "a batch is not stored while the batch before it is missing", shows=LOSES_ANSWERS)
def sequence_check(seam: Seam) -> None:
    forgiving(seam, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)


@safeguard("producer epoch check", "a partition refuses batches of an epoch that it knows to be fenced")
def epoch_check(seam: Seam) -> None:
    forgiving(seam, ErrorCode.INVALID_PRODUCER_EPOCH)


@safeguard(
    "window in snapshots",
    "after a restart, retries of the last five batches are recognized, not only of the last one",
    shows=both(broker_ends, LOSES_ANSWERS, idempotent_bursts),
)
def window_in_snapshots(seam: Seam) -> None:
    seam.replace(snapshot, "_decode_trailer", lambda *_: {})


@safeguard(
    "producer state in snapshots",
    "a restart keeps the state of producers whose batches lie below the recovery point",
    shows=broker_ends,
)
def state_in_snapshots(seam: Seam) -> None:
    seam.replace(snapshot, "decode", lambda *_, **__: [])


@safeguard(
    "snapshots end with the log",
    "a snapshot of records that a power loss removed is not used for other records at their offsets",
    shows=both(power_fails, slow_disk, frequent_checkpoints),
    given=uncertain_snapshots,
)
def snapshots_end_with_log(seam: Seam) -> None:
    seam.replace(Snapshots, "remove_above", lambda self, offset: None)


@safeguard(
    "CRC of snapshots",
    "a snapshot that a power loss left half written is not used",
    shows=both(power_fails),
)
def snapshot_crc(seam: Seam) -> None:
    decode = snapshot.decode

    def credulous(data: Any, **more: Any) -> list[ProducerState]:
        body = bytes(data)[snapshot._HEAD.size :]
        return decode(snapshot._HEAD.pack(snapshot.VERSION, crc32c(body)) + body, **more)

    seam.replace(snapshot, "decode", credulous)


@safeguard(
    "producers outlive their records",
    "deleting a producer's last record does not delete its producer state (KIP-360)",
    "retention",
)
def producers_outlive_records(seam: Seam) -> None:
    deletion = Log.deletion_of_segments

    def with_producers(self: Log, old: Any) -> Steps[None]:
        yield from deletion(self, old)
        states = self.producers._states
        for state in self.producers.all():
            if state.last_offset < self.start_offset and state.txn_first_offset < 0:
                del states[state.producer_id]

    seam.replace(Log, "deletion_of_segments", with_producers)


@safeguard(
    "open transactions do not expire",
    "the state of a silent producer does not expire while its transaction is open",
    "retention",
    shows=long_transactions,
    given=short_producer_expiration,
)
def open_do_not_expire(seam: Seam) -> None:
    def expired(states: Any, now_ms: int, expiration_ms: int) -> list[int]:
        return [each for each in sorted(states) if now_ms - states[each].last_append_ms >= expiration_ms]

    seam.replace(producers, "expired", expired)
