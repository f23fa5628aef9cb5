"""PURE: transactions and transaction groups as plain types, for JSON."""

from __future__ import annotations

from typing import Any

from semel.admin import FenceRecord, TransactionDescription, TransactionGroupDescription
from semel.cli.shared.times import iso


def facts_of(found: TransactionDescription) -> dict[str, Any]:
    """A transactional id as its coordinator knows it."""
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
        "partitions": [f"{at.topic}-{at.partition}" for at in found.partitions],
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


def group_facts(found: TransactionGroupDescription) -> dict[str, Any]:
    """A transaction group with its members."""
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
