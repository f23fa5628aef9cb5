"""The open transactions of a partition, which hold back its last stable offset, and the expected end of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from typing import Any

import msgspec

from semel._texts import duration, iso, moment
from semel.admin import AclFilter, Admin, ProducerState, ResourceType, TransactionDescription
from semel.errors import (
    ClusterAuthorizationFailedError,
    SecurityDisabled,
    TransactionalIdNotFound,
    UnsupportedVersionError,
)
from semel.structs import TopicPartition

TIMEOUT_NEVER_MS = 2**31 - 1
"""The timeout of transactions in a two-phase commit (KIP-939)."""
MAYBE_HIDDEN = "its transactional id is hidden from this principal: seeing it needs DESCRIBE on it"


class Verdict(Enum):
    """The coordinator's view of a transaction that is open in a partition."""

    ONGOING = "ongoing"
    TWO_PHASE = "two-phase"
    """Its outcome is decided outside of the cluster; it has no timeout."""
    ENDING = "ending"
    """Decided; the markers are being written."""
    HANGING = "hanging"
    """No coordinator has it: it will never end by itself."""


class OpenTransaction(msgspec.Struct, frozen=True, kw_only=True):
    """A transaction open in `partition`, with its coordinator's description; None when no coordinator has it.

    may_be_hidden: no coordinator shows it, and the brokers have an authorizer. It looks as if it hangs, and may be one
    whose transactional id this principal may not describe.
    """

    partition: TopicPartition
    producer: ProducerState
    verdict: Verdict
    transaction: TransactionDescription | None = None
    may_be_hidden: bool = False

    @property
    def first_offset(self) -> int:
        assert self.producer.current_txn_start_offset is not None, "a holder has a transaction open"
        return self.producer.current_txn_start_offset


def classify(
    partition: TopicPartition, producer: ProducerState, known: Sequence[TransactionDescription]
) -> OpenTransaction:
    """PURE. The verdict on an open transaction. known: the transactional ids with this producer id, as their
    coordinators describe them.
    """
    for transaction in known:
        if transaction.is_open and partition in transaction.partitions:
            verdict = Verdict.ENDING
            if transaction.state == "Ongoing":
                verdict = Verdict.TWO_PHASE if transaction.timeout_ms == TIMEOUT_NEVER_MS else Verdict.ONGOING
            return OpenTransaction(partition=partition, producer=producer, verdict=verdict, transaction=transaction)
    newest = known[0] if known else None
    return OpenTransaction(partition=partition, producer=producer, verdict=Verdict.HANGING, transaction=newest)


async def open_transactions(admin: Admin, partitions: Iterable[TopicPartition]) -> list[OpenTransaction]:
    """The transactions open in these partitions, sorted by partition and first offset.

    A transaction that ends between two requests may look like a hanging one. So the partition is asked again before a
    transaction is called hanging. Raises UnsupportedVersionError of brokers before KIP-664, and
    TopicAuthorizationFailedError without READ on a topic.
    """
    states = await admin.describe_producers(partitions)
    found = await _judged(admin, states)
    doubtful = list(dict.fromkeys(each.partition for each in found if each.verdict is Verdict.HANGING))
    if doubtful:
        again = {
            (at, state.producer_id, state.current_txn_start_offset)
            for at, listed in (await admin.describe_producers(doubtful)).items()
            for state in listed
        }
        found = [
            each
            for each in found
            if each.verdict is not Verdict.HANGING
            or (each.partition, each.producer.producer_id, each.first_offset) in again
        ]
    if any(_is_in_doubt(each) for each in found) and await _has_authorizer(admin):
        found = [msgspec.structs.replace(each, may_be_hidden=_is_in_doubt(each)) for each in found]
    return sorted(found, key=lambda each: (each.partition, each.first_offset))


def _is_in_doubt(found: OpenTransaction) -> bool:
    return found.verdict is Verdict.HANGING and found.transaction is None


async def _has_authorizer(admin: Admin) -> bool:
    """Whether the brokers have an authorizer, as far as they say it."""
    try:
        return await may_list_acls(admin)
    except ClusterAuthorizationFailedError:
        return True


async def may_list_acls(admin: Admin) -> bool:
    """Whether there are access control entries to be listed. Raises ClusterAuthorizationFailedError without DESCRIBE on
    the cluster.
    """
    try:
        await admin.describe_acls(AclFilter(resource_type=ResourceType.CLUSTER))
    except (SecurityDisabled, UnsupportedVersionError):
        return False
    return True


async def _judged(admin: Admin, states: Mapping[TopicPartition, Sequence[ProducerState]]) -> list[OpenTransaction]:
    open_ones = [
        (partition, state)
        for partition, listed in states.items()
        for state in listed
        if state.current_txn_start_offset is not None
    ]
    producer_ids = sorted({state.producer_id for _, state in open_ones})
    if not producer_ids:
        return []
    known: dict[int, list[TransactionDescription]] = {}
    listings = await admin.list_transactions(producer_ids=producer_ids)
    for transaction in await describe_known(admin, [row.transactional_id for row in listings]):
        known.setdefault(transaction.producer_id, []).append(transaction)
    for row in listings:  # the producer id may have changed since the listing
        known.setdefault(row.producer_id, [])
    return [classify(partition, state, known.get(state.producer_id, ())) for partition, state in open_ones]


async def describe_known(admin: Admin, names: Sequence[str]) -> list[TransactionDescription]:
    """As `describe_transactions`, without the ids that expired after they were listed."""
    try:
        return await admin.describe_transactions(names)
    except TransactionalIdNotFound:
        found = []
        for name in names:
            try:
                found += await admin.describe_transactions([name])
            except TransactionalIdNotFound:
                continue
        return found


def by_transaction(found: Iterable[OpenTransaction]) -> list[list[OpenTransaction]]:
    """PURE. The partitions of each transaction, in the order in which the transactions appear first."""
    groups: dict[tuple[object, ...], list[OpenTransaction]] = {}
    for each in found:
        name = None if each.transaction is None else each.transaction.transactional_id
        groups.setdefault((each.producer.producer_id, each.producer.producer_epoch, name, each.verdict), []).append(
            each
        )
    return list(groups.values())


def open_transaction_facts(holders: Sequence[OpenTransaction]) -> dict[str, Any]:
    """PURE. One transaction as plain types, for JSON. holders: its partitions."""
    holder, transaction = holders[0], holders[0].transaction
    is_known = transaction is not None and holder.verdict is not Verdict.HANGING
    since_ms = transaction.start_time_ms if transaction is not None and is_known else None
    expires_ms = transaction.expires_at_ms if transaction is not None and is_known else None
    return {
        "transactional_id": None if transaction is None else transaction.transactional_id,
        "producer_id": holder.producer.producer_id,
        "producer_epoch": holder.producer.producer_epoch,
        "verdict": holder.verdict.value,
        "may_be_hidden": holder.may_be_hidden,
        "opened_by": None if transaction is None else transaction.owner or None,
        "open_since": iso(since_ms),
        "open_since_ms": since_ms,
        "expires": iso(expires_ms),
        "expires_ms": expires_ms,
        "partitions": [
            {
                "topic": each.partition.topic,
                "partition": each.partition.partition,
                "first_offset": each.first_offset,
                "last_record": iso(each.producer.last_timestamp),
                "last_record_ms": None if each.producer.last_timestamp < 0 else each.producer.last_timestamp,
            }
            for each in holders
        ],
    }


def describe_transaction(holders: Sequence[OpenTransaction], now_ms: int) -> list[tuple[str, str]]:
    """PURE. Pairs of a caption and a sentence: its producer, its start, its expected end, the safe action, and with an
    empty caption the command for that action. holders: the partitions of one transaction.
    """
    holder = holders[0]
    producer, transaction = holder.producer, holder.transaction
    who = f"producer {producer.producer_id}, epoch {producer.producer_epoch}"
    if transaction is not None:
        who = f"transactional id {transaction.transactional_id} ({who})"
    if len(holders) == 1:
        who += f", with its first record here at offset {holder.first_offset:,}"
    lines = [("held by", who)]
    if transaction is not None and transaction.owner:
        lines.append(("started by", transaction.owner))
    lines += [("open since", _since(holder, now_ms)), ("ends", _end(holder, now_ms))]
    if holder.may_be_hidden:
        lines.append(("unless", MAYBE_HIDDEN))
    action, command = _safe_action(holders)
    return [*lines, ("safe", action), *([("", command)] if command else [])]


def _since(holder: OpenTransaction, now_ms: int) -> str:
    transaction = holder.transaction
    if transaction is not None and holder.verdict is not Verdict.HANGING and transaction.start_time_ms is not None:
        return f"{moment(transaction.start_time_ms, now_ms)}, {duration(now_ms - transaction.start_time_ms)} ago"
    last = holder.producer.last_timestamp
    return (
        "unknown" if last < 0 else f"at least {moment(last, now_ms)}, its last record ({duration(now_ms - last)} ago)"
    )


def _end(holder: OpenTransaction, now_ms: int) -> str:
    transaction = holder.transaction
    match holder.verdict:
        case Verdict.HANGING:
            return "never by itself: no coordinator has a transaction that is open in this partition"
        case Verdict.TWO_PHASE:
            return "when the system that coordinates its two-phase commit decides it; it has no timeout"
        case Verdict.ENDING:
            assert transaction is not None
            outcome = "commit" if transaction.state == "PrepareCommit" else "abort"
            return f"soon: the {outcome} is decided, and the coordinator writes the markers until all are written"
        case Verdict.ONGOING:
            assert transaction is not None
            expires = transaction.expires_at_ms
            if expires is None:
                return "when its producer commits or aborts"
            when = f"at {moment(expires, now_ms)}"
            when += f", in {duration(expires - now_ms)}" if expires > now_ms else ", at the coordinator's next sweep"
            who = "its producer commits or aborts"
            if transaction.transaction_group:
                who = f"the driver of its transaction group decides step {transaction.group_epoch}, or begins another"
            return (
                f"when {who}; otherwise the coordinator aborts it {when} "
                f"(transaction.timeout.ms is {duration(transaction.timeout_ms)})"
            )


def _safe_action(holders: Sequence[OpenTransaction]) -> tuple[str, str]:
    """The advice, and the command for it; "" without one."""
    holder, transaction = holders[0], holders[0].transaction
    match holder.verdict:
        case Verdict.HANGING:
            place, action = (
                f"{holder.partition.topic}:{holder.partition.partition}",
                "write the abort marker that is missing",
            )
            if len(holders) > 1:
                place, action = (
                    "TOPIC:PARTITION",
                    "write the abort markers that are missing, for each of these partitions",
                )
            return action, f"semel txn abort --partition {place} --producer-id {holder.producer.producer_id}"
        case Verdict.ENDING:
            reason = "wait; if this lasts, look in the coordinator's log for the reason why it cannot write the markers"
            return reason, ""
        case Verdict.TWO_PHASE:
            return "let that system decide; a commit or an abort by hand may contradict its decision", ""
        case Verdict.ONGOING:
            assert transaction is not None
            if group := transaction.transaction_group:
                return "wait, or abort the whole step, which fences its driver", f"semel txn abort --group {group}"
            action = "wait, or abort it, which fences its producer; its records never become visible"
            return action, f"semel txn abort {transaction.transactional_id}"
