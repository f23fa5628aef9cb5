"""`semel txn why`: explains the state of a transactional id, what it waits for, and its fences."""

from __future__ import annotations

import difflib

import click

from semel import Admin
from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import failure, json_option, run, say_json, tell
from semel._edge import Edge
from semel.diagnose import TransactionFindings, diagnose_transaction, transaction_findings_facts, transaction_lines
from semel.errors import TransactionalIdNotFound


@click.command()
@client_options()
@click.argument("name", metavar="TRANSACTIONAL_ID")
@json_option
def why(client: ClientSettings, name: str, as_json: bool) -> None:
    """Explain a transactional id: its state, what it waits for, and which clients fenced it and why."""

    async def work() -> TransactionFindings:
        async with client.admin() as admin:
            try:
                return await diagnose_transaction(admin, name)
            except TransactionalIdNotFound as e:
                raise await _unknown(admin, name, e) from None

    found = run(work())
    now_ms = Edge().now_ms()
    if as_json:
        say_json(transaction_findings_facts(found, now_ms))
    else:
        tell(*transaction_lines(found, now_ms))


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
