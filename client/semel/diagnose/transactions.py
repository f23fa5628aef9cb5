"""Transactional ids and transaction groups: their state, what they wait for, and the fences of their producers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from semel._texts import duration, iso, moment, names_of, plural
from semel.admin import Admin, FenceRecord, TransactionDescription, TransactionGroupDescription
from semel.diagnose.holders import TIMEOUT_NEVER_MS, open_transactions
from semel.errors import UnsupportedVersionError
from semel.structs import TopicPartition

NO_LEDGER = (
    "Not known: the client that initialised it, and when and why producers of it were fenced. Broker {broker} keeps no "
    "fence ledger: it is Apache Kafka or another Kafka."
)
FENCES_KEPT = 16
"""The fences of an id that a coordinator of semel keeps."""
LOOP_FENCES_MIN = 4
"""Fewer fences by instances in turn may be restarts."""
OLDER_EPOCHS = (
    "A producer of this id with an older epoch gets ProducerFenced; with transaction.version=2 the epoch also rises "
    "with each transaction."
)

ADVICE = {
    "new_instance": "If both instances are meant to run, give each its own transactional id.",
    "timed_out": "Find out why it did not commit in time: commit smaller transactions, or raise transaction.timeout.ms "
    "of the producer. Then start a new producer with the same transactional id.",
    "admin": "When the reason for it is gone, start a new producer with the same transactional id.",
    "expired": "A new producer with the same transactional id can start at any time.",
    "failover": "A new producer with the same transactional id can start at any time.",
    "group_begun": "The driver of its transaction group has begun another step: only members of that step may write.",
    "group_decided": "The driver of its transaction group decided the step without this transaction.",
}
"""The action after a fence, by its reason."""


class TransactionFindings(msgspec.Struct, frozen=True):
    """The facts about a transactional id. first_offsets: the partitions of its open transaction, each with its first
    offset there; None where it has no record, or its marker is written.
    """

    transaction: TransactionDescription
    first_offsets: Mapping[TopicPartition, int | None]


async def diagnose_transaction(admin: Admin, transactional_id: str) -> TransactionFindings:
    """The facts about a transactional id. Raises TransactionalIdNotFound when no coordinator has it."""
    (found,) = await admin.describe_transactions([transactional_id])
    if not found.is_open or not found.partitions:
        return TransactionFindings(found, {})
    first = {
        each.partition: each.first_offset
        for each in await open_transactions(admin, found.partitions)
        if each.producer.producer_id == found.producer_id
    }
    return TransactionFindings(found, {at: first.get(at) for at in found.partitions})


async def overdue_groups(admin: Admin, now_ms: int) -> list[TransactionGroupDescription]:
    """The transaction groups whose step is open past its timeout; none when the brokers do not serve transaction
    groups.
    """
    try:
        found = await admin.describe_transaction_groups()
    except UnsupportedVersionError:
        return []
    return [each for each in found if each.is_overdue(now_ms)]


def transaction_facts(found: TransactionDescription) -> dict[str, Any]:
    """PURE. A transactional id as its coordinator knows it, as plain types."""
    started_ms = found.start_time_ms if found.is_open else None
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "coordinator": found.coordinator,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "initialised_by": found.owner or None,
        "transaction_group": found.transaction_group or None,
        "step": found.group_epoch if found.transaction_group else None,
        "timeout_ms": found.timeout_ms,
        "open_since": iso(started_ms),
        "open_since_ms": started_ms,
        "expires": iso(found.expires_at_ms),
        "expires_ms": found.expires_at_ms,
        "last_update": iso(found.last_update_time_ms),
        "last_update_ms": found.last_update_time_ms,
        "partitions": names_of(found.partitions),
        "fences": [_fence(each) for each in reversed(found.fences)] if found.has_ledger else None,
    }


def _fence(fence: FenceRecord) -> dict[str, Any]:
    return {
        "at": iso(fence.at_ms),
        "at_ms": fence.at_ms,
        "reason": fence.reason,
        "old_producer_id": fence.old_producer_id,
        "old_epoch": fence.old_epoch,
        "new_producer_id": None if fence.new_producer_id < 0 else fence.new_producer_id,
        "new_epoch": None if fence.new_epoch < 0 else fence.new_epoch,
        "by": fence.by or None,
        "note": fence.note or None,
        "text": fence.text,
    }


def transaction_group_facts(found: TransactionGroupDescription) -> dict[str, Any]:
    """PURE. A transaction group with its members, as plain types."""
    return {
        "transaction_group": found.name,
        "step": found.epoch,
        "state": found.state,
        "coordinator": found.coordinator,
        "owner": found.owner or None,
        "client": found.client or None,
        "timeout_ms": found.timeout_ms,
        "began": iso(found.began_ms),
        "began_ms": found.began_ms,
        "last_update": iso(found.last_update_time_ms),
        "last_update_ms": found.last_update_time_ms,
        "committed_token": found.decided_token,
        "committed_step": None if found.decided_token is None else found.decided_epoch,
        "note": found.note or None,
        "members": [
            {
                "transactional_id": each.transactional_id,
                "step": each.group_epoch,
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "state": each.state,
                "open_since": iso(each.start_time_ms if each.is_open else None),
                "open_since_ms": each.start_time_ms if each.is_open else None,
            }
            for each in found.members
        ],
    }


def transaction_findings_facts(findings: TransactionFindings, now_ms: int) -> dict[str, Any]:
    """PURE. The findings as plain types, as `semel txn why --json` prints them."""
    found = findings.transaction
    return {
        **transaction_facts(found),
        "text": _waits_for(found, now_ms),
        "first_offsets": [
            {"topic": at.topic, "partition": at.partition, "first_offset": first}
            for at, first in findings.first_offsets.items()
        ],
        "advice": _advice(found),
    }


def transaction_lines(findings: TransactionFindings, now_ms: int) -> list[str]:
    """PURE. The findings in words: the state, the producer, the open partitions, the fences."""
    found, where = findings.transaction, findings.first_offsets
    lines = [f"{found.transactional_id}: {found.state}. {_waits_for(found, now_ms)}"]
    lines.append(
        f"  Producer id {found.producer_id}, epoch {found.producer_epoch}, coordinated by broker {found.coordinator}."
    )
    if found.owner:
        lines.append(f"  Initialised by {found.owner}.")
    if where:
        lines.append(f"  Its transaction is open in {plural(len(where), 'partition')}:")
        for at, first in where.items():
            state = "no record of it, or its marker is written" if first is None else f"from offset {first:,}"
            lines.append(f"    {at.topic}-{at.partition}: {state}")
    return [*lines, *_ledger(found)]


def _waits_for(found: TransactionDescription, now_ms: int) -> str:
    since = ""
    if found.start_time_ms is not None:
        since = f"Open since {moment(found.start_time_ms, now_ms)} ({duration(now_ms - found.start_time_ms)}). "
    match found.state:
        case "Ongoing" if found.timeout_ms == TIMEOUT_NEVER_MS:
            return f"{since}It takes part in a two-phase commit: its outcome is decided outside, and it has no timeout."
        case "Ongoing":
            expires = found.expires_at_ms
            left = 0 if expires is None else expires - now_ms
            end = f"in {duration(left)}" if left > 0 else "at its next sweep"
            if group := found.transaction_group:
                return (
                    f"{since}It waits for the driver of transaction group {group} to decide step {found.group_epoch}; "
                    f"otherwise the coordinator aborts the step, {end} at the latest. See: semel txn groups {group}"
                )
            return (
                f"{since}It waits for its producer to commit or abort; otherwise the coordinator aborts it {end} "
                f"(transaction.timeout.ms = {found.timeout_ms})."
            )
        case "PrepareCommit" | "PrepareAbort" | "PrepareEpochFence":
            outcome = "commit" if found.state == "PrepareCommit" else "abort"
            return f"{since}The {outcome} is decided and durable; it waits until every partition has its marker."
        case "CompleteCommit":
            return f"Its last transaction was committed{_at(found, now_ms)}; it waits for nothing."
        case "CompleteAbort":
            return f"Its last transaction was aborted{_at(found, now_ms)}; it waits for nothing."
        case "Empty":
            return "Its producer is initialised and has no transaction; it waits for nothing."
        case _:
            return "It is being removed."


def _at(found: TransactionDescription, now_ms: int) -> str:
    last_ms = found.last_update_time_ms
    return "" if last_ms is None else f" at {moment(last_ms, now_ms)}, {duration(now_ms - last_ms)} ago"


def _ledger(found: TransactionDescription) -> list[str]:
    if not found.has_ledger:
        return [f"  {NO_LEDGER.format(broker=found.coordinator)}", f"  {OLDER_EPOCHS}"]
    if not found.fences:
        return ["  It was never fenced."]
    loop = _loop(found.fences)
    shown = found.fences if loop is None else (*found.fences[: -len(loop)], found.fences[-1])
    lines = [] if loop is None else [_loop_words(loop)]
    lines.append(
        "  Fenced epochs, the latest first:"
        if loop is None
        else "  The last of these fences, and those before the loop:"
    )
    lines += [f"    {fence.text}" for fence in reversed(shown)]
    if len(found.fences) >= FENCES_KEPT:
        lines.append(f"  There may be older ones: the coordinator keeps the last {FENCES_KEPT}.")
    return [*lines, f"  {_advice(found)}"]


def _loop(fences: Sequence[FenceRecord]) -> Sequence[FenceRecord] | None:
    """The fences at the end in which a few clients took the id from each other, again and again; None: no such loop."""
    length = 0
    for fence in reversed(fences):
        if fence.reason != "new_instance":
            break
        length += 1
    loop = fences[len(fences) - length :]
    clients = {fence.by for fence in loop}
    return loop if length >= LOOP_FENCES_MIN and 2 <= len(clients) <= length // 2 else None


def _loop_words(loop: Sequence[FenceRecord]) -> str:
    clients = list(dict.fromkeys(fence.by or "an unknown client" for fence in reversed(loop)))
    lasted = duration(loop[-1].at_ms - loop[0].at_ms)
    return f"  Fenced {len(loop)} times in {lasted}, in turn by {', '.join(clients[:-1])} and {clients[-1]}."


def _advice(found: TransactionDescription) -> str | None:
    """The advice after the last fence; None when there is none. A producer that fenced itself to recover (RESUMED), or
    used up its epochs, goes on by itself.
    """
    if not found.fences:
        return None
    last = found.fences[-1]
    if last.reason in ("resumed", "epoch_exhausted"):
        return f"Epoch {last.old_epoch} gave way by the client library's own request; nothing is to be done."
    stop = f"A producer with epoch {last.old_epoch} or older gets ProducerFenced: stop it."
    return f"{stop} {ADVICE[last.reason]}" if last.reason in ADVICE else stop
