"""`semel txn why`: explains the state of a transactional id, what it waits for, and its fences."""

from __future__ import annotations

import difflib
from typing import Any

import click

from semel import Admin, TopicPartition
from semel._edge import Edge
from semel.admin import TransactionDescription
from semel.cli.shared.client_settings import ClientSettings, client_options
from semel.cli.shared.common import failure, json_option, run, say_json, tell
from semel.cli.shared.open_transactions import TIMEOUT_NEVER_MS, open_transactions
from semel.cli.shared.times import duration, moment, plural
from semel.cli.txn.facts import facts_of
from semel.errors import TransactionalIdNotFound


@click.command()
@client_options()
@click.argument("name", metavar="TRANSACTIONAL_ID")
@json_option
def why(client: ClientSettings, name: str, as_json: bool) -> None:
    """Explain a transactional id: its state, what it waits for, and which clients fenced it and why."""

    async def work() -> tuple[TransactionDescription, dict[TopicPartition, int | None]]:
        async with client.admin() as admin:
            try:
                (found,) = await admin.describe_transactions([name])
            except TransactionalIdNotFound as e:
                raise await _unknown(admin, name, e) from None
            return found, await first_offsets(admin, found)

    found, where = run(work())
    now_ms = Edge().now_ms()
    if as_json:
        say_json(facts(found, where, now_ms))
    else:
        tell(*summary(found, where, now_ms))


async def _unknown(admin: Admin, name: str, error: TransactionalIdNotFound) -> click.ClickException:
    known = [row.transactional_id for row in await admin.list_transactions()]
    lines = [
        f"{name}: no coordinator has this transactional id.",
        f"  {error.message}.",
        "  It was never used on this cluster, or is spelled differently, or has expired because it was not used",
        "  (transactional.id.expiration.ms, 7 days by default).",
        "  If its producer still runs: its next request fails; create a new producer.",
    ]
    if near := difflib.get_close_matches(name, known, n=3, cutoff=0.6):
        lines.append(f"  Similar ids: {', '.join(near)}")
    return failure(*lines)


async def first_offsets(admin: Admin, found: TransactionDescription) -> dict[TopicPartition, int | None]:
    """The partitions of an open transaction with its first offset in each; None where it has no records."""
    if not found.is_open or not found.partitions:
        return {}
    first = {
        each.partition: each.first_offset
        for each in await open_transactions(admin, found.partitions)
        if each.producer.producer_id == found.producer_id
    }
    return {at: first.get(at) for at in found.partitions}


def facts(found: TransactionDescription, where: dict[TopicPartition, int | None], now_ms: int) -> dict[str, Any]:
    """PURE. The state of a transactional id as plain types. where: the result of `first_offsets`."""
    return {
        **facts_of(found),
        "text": _waits_for(found, now_ms),
        "first_offsets": [
            {"topic": at.topic, "partition": at.partition, "first_offset": first} for at, first in where.items()
        ],
        "advice": _advice(found),
    }


def summary(found: TransactionDescription, where: dict[TopicPartition, int | None], now_ms: int) -> list[str]:
    """PURE. The lines to print. where: the result of `first_offsets`."""
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
    lines = ["  Fenced epochs, the latest first:"]
    lines += [f"    {fence.text}" for fence in reversed(found.fences)]
    return [*lines, f"  {_advice(found)}"]


NO_LEDGER = (
    "Not known: the client that initialised it, and when and why producers of it were fenced. Broker {broker} keeps no "
    "fence ledger: it is Apache Kafka or another Kafka."
)
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
