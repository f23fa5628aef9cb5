"""Transactions: the list, the open ones that hold readers back, and one transactional id with its ledger."""

from __future__ import annotations

from typing import Any

from semel import Admin
from semel.admin import TransactionDescription
from semel.diagnose import (
    FENCES_KEPT,
    NO_LEDGER,
    describe_known,
    diagnose_transaction,
    transaction_facts,
    transaction_findings_facts,
)

from semel_console.facts.cluster import all_ends, holders
from semel_console.query import QueryParameters

OLDER_FENCES = f"There may be older fences: the coordinator keeps the last {FENCES_KEPT} of an id."
DESCRIBED_MAX = 500
"""The number of transactional ids that a listing describes; open ones come first."""


async def transactions(admin: Admin, query: QueryParameters, now_ms: int) -> dict[str, Any]:
    """Transactional ids, open ones first, and the transactions that hold readers back, hanging ones among them."""
    listed = await admin.list_transactions()
    ordered = sorted(listed, key=lambda row: row.state in ("Empty", "CompleteCommit", "CompleteAbort", "Dead"))
    described = await describe_known(admin, [row.transactional_id for row in ordered[:DESCRIBED_MAX]])
    by_name = {each.transactional_id: each for each in described}
    rows = []
    for row in ordered:
        found = by_name.get(row.transactional_id)
        plain: dict[str, Any] = {
            "transactional_id": row.transactional_id,
            "state": row.state,
            "producer_id": row.producer_id,
            "coordinator": row.coordinator,
        }
        rows.append(plain if found is None else {**plain, **_listed(found)})
    return {
        "now_ms": now_ms,
        "total": len(rows),
        "transactions": rows[: 2 * DESCRIBED_MAX],
        "holders": await holders(admin, await all_ends(admin), now_ms),
    }


def _listed(found: TransactionDescription) -> dict[str, Any]:
    facts = transaction_facts(found)
    fences = facts.pop("fences")
    return {**facts, "fences": None if fences is None else len(fences), "last_fence": fences[0] if fences else None}


async def transaction(admin: Admin, query: QueryParameters, now_ms: int) -> dict[str, Any]:
    """One transactional id: its state in a sentence, where it is open, and its fences, the latest first."""
    findings = await diagnose_transaction(admin, query.text("id"))
    found = findings.transaction
    note = None if found.has_ledger else NO_LEDGER.format(broker=found.coordinator)
    older = OLDER_FENCES if len(found.fences) >= FENCES_KEPT else None
    facts = transaction_findings_facts(findings, now_ms)
    return {**facts, "now_ms": now_ms, "is_open": found.is_open, "no_ledger": note, "older_fences": older}
