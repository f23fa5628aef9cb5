"""`semel txn`: lists, describes and aborts transactions, and finds hanging ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.text import Text
from semel_protocol.tables import Table

from semel import TopicPartition
from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import (
    FOUND_TROUBLE,
    confirm,
    failure,
    json_option,
    run,
    say,
    say_json,
    show,
    tell,
    tell_captioned,
)
from semel._edge import Edge
from semel._texts import compact, duration, iso, moment, names_of, plural
from semel.admin import TransactionDescription, TransactionGroupDescription, TransactionListing
from semel.cli.txn.groups import abort_group, groups, groups_table
from semel.cli.txn.timeline import timeline
from semel.cli.txn.why import why
from semel.diagnose import (
    NO_LEDGER,
    OpenTransaction,
    Verdict,
    by_transaction,
    describe_known,
    open_transaction_facts,
    open_transactions,
    overdue_groups,
    partitions_of,
    topics_of,
    transaction_facts,
    transaction_group_facts,
)
from semel.diagnose.holders import MAYBE_HIDDEN

STATES = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "PrepareEpochFence",
    "Dead",
)
REASON = "semel txn abort"


@click.group()
def txn() -> None:
    """Show transactions: open ones, hanging ones, fences; abort one."""


txn.add_command(groups)
txn.add_command(timeline)
txn.add_command(why)


@txn.command("list")
@client_options()
@click.option(
    "-s",
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES),
    metavar="STATE",
    help=f"List only ids in this state; repeatable. States: {', '.join(STATES)}. Default: all states.",
)
@click.option("-o", "--open", "only_open", is_flag=True, help="List only ids whose transaction is not complete.")
@click.option(
    "--older-than", type=float, metavar="SECONDS", help="List only ids whose transaction is open for longer than this."
)
@click.option("-q", "--quiet", is_flag=True, help="Print only the transactional ids, one in each line.")
@json_option
def list_(
    client: ClientSettings,
    states: tuple[str, ...],
    only_open: bool,
    older_than: float | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """List the transactional ids with their states, producers and coordinators."""
    if only_open or older_than is not None:
        chosen = [state for state in STATES if state == "Ongoing" or state.startswith("Prepare")]
        states = tuple(state for state in chosen if not states or state in states)
        if not states:
            raise click.UsageError("open transactions do not have these states: leave out --state, or --open")

    async def work() -> tuple[list[TransactionListing], dict[str, TransactionDescription]]:
        async with client.admin() as admin:
            rows = await admin.list_transactions(states=states)
            asked = [row.transactional_id for row in rows if row.state not in ("Empty", "Dead")]
            return rows, {each.transactional_id: each for each in await describe_known(admin, asked)}

    found, described = run(work())
    now_ms = Edge().now_ms()
    rows = [_plain(row, described.get(row.transactional_id), now_ms) for row in found]
    if older_than is not None:
        rows = [row for row in rows if (row["open_for_ms"] or 0) > older_than * 1000]
    if quiet:
        say(*(row["transactional_id"] for row in rows))
    elif as_json:
        say_json(rows)
    else:
        show(ids_table(rows))


def ids_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """PURE. rows: as `semel txn list --json`."""
    numbers = ("producer", "epoch", "parts", "coord")
    shown = Table(
        "", "transactional id", "state", "open for", *numbers, "opened by", right=numbers, below=("opened by",)
    )
    for row in rows:
        shown.add_row(
            row["transactional_id"],
            row["state"],
            None if row["open_for_ms"] is None else duration(row["open_for_ms"]),
            str(row["producer_id"]),
            None if row["producer_epoch"] is None else str(row["producer_epoch"]),
            len(row["partitions"]) or None,
            str(row["coordinator"]),
            row["opened_by"],
        )
    return shown


def _plain(row: TransactionListing, found: TransactionDescription | None, now_ms: int) -> dict[str, Any]:
    """A transactional id as plain types. found: its description; None if its coordinator did not give one."""
    is_open = found is not None and found.is_open
    started_ms = found.start_time_ms if found is not None and is_open else None
    return {
        "transactional_id": row.transactional_id,
        "state": row.state if found is None else found.state,
        "open_since": iso(started_ms),
        "open_since_ms": started_ms,
        "open_for_ms": _age_ms(found, now_ms),
        "producer_id": row.producer_id if found is None else found.producer_id,
        "producer_epoch": None if found is None else found.producer_epoch,
        "partitions": names_of(found.partitions) if found is not None and is_open else [],
        "coordinator": row.coordinator,
        "opened_by": None if found is None else found.owner or None,
    }


def _age_ms(found: TransactionDescription | None, now_ms: int) -> int | None:
    if found is None or not found.is_open or found.start_time_ms is None:
        return None
    return max(0, now_ms - found.start_time_ms)


@txn.command()
@client_options()
@click.argument("names", nargs=-1, required=True)
@json_option
def describe(client: ClientSettings, names: tuple[str, ...], as_json: bool) -> None:
    """Show the state of transactional ids at their coordinators, and their fence ledgers: who fenced them, and why."""

    async def work() -> list[TransactionDescription]:
        async with client.admin() as admin:
            return await admin.describe_transactions(names)

    now_ms = Edge().now_ms()
    found = run(work())
    if as_json:
        say_json([transaction_facts(each) for each in found])
        return
    for number, each in enumerate(found):
        if number:
            tell("")
        _describe(each, now_ms)


def _describe(found: TransactionDescription, now_ms: int) -> None:
    tell(Text(f"{found.transactional_id}: {found.state}", "bold"))
    pairs = [("producer", f"id {found.producer_id}, epoch {found.producer_epoch}")]
    if found.owner:
        pairs.append(("initialised by", found.owner))
    elif not found.has_ledger:
        pairs.append(("initialised by", "not known"))
    if found.transaction_group:
        pairs.append(("transaction group", f"{found.transaction_group}, step {found.group_epoch}"))
    pairs += [("coordinator", f"broker {found.coordinator}"), ("timeout", duration(found.timeout_ms))]
    if found.is_open and found.start_time_ms is not None:
        open_for = duration(now_ms - found.start_time_ms)
        pairs.append(("open since", f"{moment(found.start_time_ms, now_ms)} ({open_for})"))
    if found.partitions:
        pairs.append(("partitions", compact(found.partitions)))
    if not found.has_ledger:
        pairs.append(("fences", NO_LEDGER.format(broker=found.coordinator)))
    tell_captioned(pairs)
    if found.fences:
        tell("")
        show(fences_table(found, now_ms))


def fences_table(found: TransactionDescription, now_ms: int) -> Table:
    """PURE. The fence ledger, the latest entry first."""
    ledger = Table("Fenced", "when", "epoch", "why", "by", below=("by", "why"))
    for fence in reversed(found.fences):
        ledger.add_row(
            moment(fence.at_ms, now_ms),
            f"{fence.old_epoch} → {'-' if fence.new_epoch < 0 else fence.new_epoch}",
            fence.reason.replace("_", " ") + (f": {fence.note}" if fence.note else ""),
            fence.by,
        )
    return ledger


@txn.command()
@client_options()
@click.argument("topics", nargs=-1)
@json_option
def hanging(client: ClientSettings, topics: tuple[str, ...], as_json: bool) -> None:
    """Find transactions that are open in a partition and that no coordinator will end.

    Checks TOPICS, or all topics. Without TOPICS it also finds transaction groups whose step is open for longer than its
    timeout. Exit status 0: there is none. 3: it found some. 1: the command failed.
    """
    now_ms = Edge().now_ms()

    async def work() -> tuple[int, list[OpenTransaction], list[TransactionGroupDescription]]:
        async with client.admin() as admin:
            found = await topics_of(admin, topics)
            partitions = [TopicPartition(each.name, p.partition) for each in found for p in each.partitions]
            open_ones = await open_transactions(admin, partitions)
            hanging = [each for each in open_ones if each.verdict is Verdict.HANGING]
            return len(partitions), hanging, [] if topics else await overdue_groups(admin, now_ms)

    looked_at, found, late = run(work())
    if as_json:
        say_json(
            {
                "partitions_checked": looked_at,
                "hanging": [open_transaction_facts(each) for each in by_transaction(found)],
                "overdue_groups": [transaction_group_facts(each) for each in late],
            }
        )
    elif found or late:
        _show_hanging(found, late, now_ms)
    else:
        say(f"No hanging transaction in {plural(looked_at, 'partition')}.")
    if found or late:
        raise SystemExit(FOUND_TROUBLE)


def _show_hanging(found: Sequence[OpenTransaction], late: Sequence[TransactionGroupDescription], now_ms: int) -> None:
    if late:
        show(groups_table(late, now_ms, "Open for longer than their timeout"))
        tell("End one with: semel txn abort --group NAME")
    if found:
        if late:
            tell("")
        show(hanging_table(found, now_ms))
        if any(each.may_be_hidden for each in found):
            tell(f"The brokers have an authorizer. A transaction looks like this, too, if {MAYBE_HIDDEN}.")
        tell("End one with: semel txn abort --partition TOPIC:PARTITION --producer-id N")


def hanging_table(found: Sequence[OpenTransaction], now_ms: int) -> Table:
    """PURE. One row for each partition of a hanging transaction."""
    numbers = ("producer", "epoch", "first offset")
    shown = Table(
        "",
        *("partition", *numbers, "last record", "transactional id"),
        right=numbers,
        below=("transactional id",),
    )
    for each in found:
        producer, transaction = each.producer, each.transaction
        shown.add_row(
            f"{each.partition.topic}:{each.partition.partition}",
            str(producer.producer_id),
            str(producer.producer_epoch),
            each.first_offset,
            None if producer.last_timestamp < 0 else f"{duration(now_ms - producer.last_timestamp)} ago",
            None if transaction is None else transaction.transactional_id,
        )
    return shown


@txn.command()
@client_options()
@click.argument("names", nargs=-1, metavar="[TRANSACTIONAL_ID]...")
@click.option(
    "-p",
    "--partition",
    "place",
    metavar="TOPIC:PARTITION",
    help="The partition of a hanging transaction; needs --producer-id.",
)
@click.option("-g", "--group", metavar="NAME", help="Abort the open step of this transaction group.")
@click.option(
    "--producer-id",
    type=click.IntRange(min=0),
    metavar="N",
    help="The producer id of the hanging transaction; `semel txn hanging` shows it.",
)
@click.option(
    "-r",
    "--reason",
    default=REASON,
    show_default=True,
    metavar="TEXT",
    help="The reason to note in the fence ledger of semel's brokers. It has no effect with --partition.",
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
def abort(
    client: ClientSettings,
    names: tuple[str, ...],
    place: str | None,
    group: str | None,
    producer_id: int | None,
    reason: str,
    yes: bool,
) -> None:
    """Abort open transactions: of transactional ids, a hanging one, or the step of a transaction group.

    With TRANSACTIONAL_ID the coordinator aborts the transaction and fences its producer, as when a new producer starts.
    With --partition and --producer-id the partition's leader writes the missing abort marker of a hanging transaction.
    With --group the coordinator aborts the open step and fences its members and its driver.
    """
    if sum(map(bool, (names, place, group))) != 1 or (place is None) != (producer_id is None):
        raise click.UsageError("give transactional ids, or both --partition and --producer-id, or --group")
    if group is not None:
        run(abort_group(client, group, reason or REASON, yes=yes))
    elif place is None:
        run(_abort_known(client, names, reason, yes))
    else:
        assert producer_id is not None
        run(_abort_hanging(client, place, producer_id, yes))


async def _abort_known(client: ClientSettings, names: Sequence[str], reason: str, yes: bool) -> None:
    async with client.admin() as admin:
        described = await admin.describe_transactions(names)
        for found in described:
            if found.state != "Ongoing":
                raise failure(f"{found.transactional_id}: {NOT_TO_ABORT.get(found.state, found.state)}")
        for found in described:
            since = (
                "" if found.start_time_ms is None else f", open for {duration(Edge().now_ms() - found.start_time_ms)},"
            )
            what = f"the transaction of {found.transactional_id}{since} in {plural(len(found.partitions), 'partition')}"
            if not yes:
                confirm(f"Abort {what} and fence its producer?")
            await admin.fence_producers([found.transactional_id], reason or REASON)
            say(f"{found.transactional_id}: aborted; its producer (epoch {found.producer_epoch}) is fenced")
            if not found.has_ledger and reason not in ("", REASON):
                say(f"The reason is not noted: broker {found.coordinator} keeps no fence ledger")


NOT_TO_ABORT = {
    "PrepareCommit": "is decided and will commit; it cannot be aborted any more",
    "PrepareAbort": "is being aborted already; the coordinator writes the markers until all are written",
    "PrepareEpochFence": "is being aborted already",
    "Empty": "has no transaction open",
    "CompleteCommit": "has no transaction open; the last one was committed",
    "CompleteAbort": "has no transaction open; the last one was aborted",
    "Dead": "is being removed",
}


async def _abort_hanging(client: ClientSettings, place: str, producer_id: int, yes: bool) -> None:
    async with client.admin() as admin:
        if ":" not in place:
            raise click.BadParameter(f"{place!r}: write TOPIC:PARTITION, such as orders:0", param_hint="--partition")
        (partition,) = await partitions_of(admin, [place])
        open_ones = [
            each for each in await open_transactions(admin, [partition]) if each.producer.producer_id == producer_id
        ]
        if not open_ones:
            raise failure(f"producer {producer_id} has no transaction open in {place}")
        (found,) = open_ones
        if found.verdict is not Verdict.HANGING:
            assert found.transaction is not None
            raise failure(
                f"this transaction is not hanging: its coordinator knows it ({found.transaction.transactional_id}, "
                f"{found.transaction.state}). Try: semel txn why {found.transaction.transactional_id}"
            )
        if found.may_be_hidden:
            tell(
                f"The brokers have an authorizer. If {MAYBE_HIDDEN}, this transaction may be in progress, and "
                "aborting it in one partition breaks it."
            )
        if not yes:
            confirm(
                f"Abort the transaction of producer {producer_id} in {place}, from offset {found.first_offset:,} on?"
            )
        await admin.abort_transaction(partition, found.producer)
        say(f"{place}: the transaction of producer {producer_id} is aborted")
