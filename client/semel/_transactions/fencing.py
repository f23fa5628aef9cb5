"""The reason why this producer was fenced, requested from its coordinator once, for the text of the exception.

A member of a transaction group is also fenced when its step is over. The fence ledger is semel's own. With other
brokers the exception names the producer that has the transactional id now.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

from semel_protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransaction,
)
from semel_protocol.messages.k20003_describe_transaction_groups import (
    DescribeTransactionGroupsRequest,
    DescribeTransactionGroupsResponse,
    DescribeTransactionGroupsResponseGroup,
)
from semel_protocol.schema import Message

from semel._admin.types import client_text
from semel._config.producer import ProducerConfig
from semel._net.cluster import TRANSACTION, Cluster
from semel._produce.sequences import TransactionManager
from semel.errors import BrokerResponseError, InvalidProducerIdMapping, KafkaError, ProducerFenced
from semel.structs import GroupStep

log = logging.getLogger(__name__)

ASKING_TIMEOUT_MS_MAX = 5_000
"""Bounds the wait for the reason: the exception is raised without it."""


async def fenced(
    cluster: Cluster,
    config: ProducerConfig,
    manager: TransactionManager,
    error: BrokerResponseError,
    *,
    proven: bool = False,
) -> ProducerFenced | None:
    """The exception of a fenced producer, with the reason; None when the coordinator does not confirm that it is
    fenced.

    proven: the coordinator itself has refused the producer, so no confirmation is needed.
    """
    if proven and not manager.has_producer_id:
        return None  # the producer was never initialised: the refusal says why
    row = await _described(cluster, config)
    is_other = row is not None and not row.error_code and _identity(row) != _identity(manager)
    text = _fence_text(row, manager) if row is not None else ""
    if not text and config.transaction_group_step is not None:
        text = await _step_end_text(cluster, config, config.transaction_group_step)
    if not proven and not is_other and not text:
        return None
    if not text and row is not None and is_other:
        text = _other_text(row, config)
    made = ProducerFenced(f"{_producer_text(config, manager)}: {text or 'the coordinator does not say by whom'}")
    made.__cause__ = error
    return made


def _other_text(row: DescribeTransactionsResponseTransaction, config: ProducerConfig) -> str:
    """The reason that a coordinator without a fence ledger gives: the producer that has the id now."""
    now = f"producer id {row.producer_id} epoch {row.producer_epoch} has it now ({row.transaction_state})"
    if row.last_update_time_ms >= 0:
        return now
    return (
        f"{now}. Another producer with this transactional_id was started, or the coordinator aborted a transaction "
        f"that was open for longer than transaction_timeout_ms={config.transaction_timeout_ms}; this broker keeps no "
        "fence ledger that says which"
    )


async def is_committed(cluster: Cluster, config: ProducerConfig, manager: TransactionManager) -> bool:
    """Whether the step has committed the prepared transaction of a producer with an old epoch.

    A step that aborts a transaction writes that into the ledger of its id. False also when the coordinator does not
    answer.
    """
    step = config.transaction_group_step
    assert step is not None
    row, group = await _described(cluster, config), await _described_group(cluster, config, step)
    if row is None or row.error_code or group is None:
        return False
    return group.decided_epoch == step.epoch and not _fence_text(row, manager)


async def forgotten(
    cluster: Cluster, config: ProducerConfig, manager: TransactionManager, error: InvalidProducerIdMapping
) -> InvalidProducerIdMapping:
    """The exception for a transactional id that the coordinator does not know (any more), with the reason if known."""
    row = await _described(cluster, config)
    text = _fence_text(row, manager) if row is not None else ""
    if not text:
        return error
    made = InvalidProducerIdMapping(f"{_producer_text(config, manager)}: {text}")
    made.__cause__ = error
    return made


def _producer_text(config: ProducerConfig, manager: TransactionManager) -> str:
    return (
        f"transactional_id {config.transactional_id!r}, producer id {manager.producer_id} "
        f"epoch {manager.producer_epoch}"
    )


def _identity(of: TransactionManager | DescribeTransactionsResponseTransaction) -> tuple[int, int]:
    return of.producer_id, of.producer_epoch


def _fence_text(row: DescribeTransactionsResponseTransaction, manager: TransactionManager) -> str:
    """The text of the ledger entry that fenced this producer: the oldest entry past its epoch."""
    for fence in row.fences:
        if fence.old_producer_id == manager.producer_id and fence.old_epoch >= manager.producer_epoch:
            return fence.text
    return ""


async def _step_end_text(cluster: Cluster, config: ProducerConfig, step: GroupStep) -> str:
    """How the step ended; "" when it is not over or the coordinator does not answer."""
    row = await _described_group(cluster, config, step)
    if row is None or (row.group_epoch, row.state) == (step.epoch, "Open"):
        return ""
    return f"step {step.epoch} of transaction group {step.group!r} is over: {_how_step_ended(row, step)}"


def _how_step_ended(row: DescribeTransactionGroupsResponseGroup, step: GroupStep) -> str:
    if row.group_epoch != step.epoch:
        by = ", ".join(part for part in (row.owner, client_text(row.client_id, row.client_host)) if part)
        return f"step {row.group_epoch} was begun at {_moment(row.begin_time_ms)} by {by or 'an unknown client'}"
    how = f"committed as {row.decided_token!r}" if row.decided_epoch == step.epoch else "aborted"
    return f"it was {how} at {_moment(row.last_update_time_ms)}" + (f": {row.note}" if row.note else "")


def _moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


async def _described(cluster: Cluster, config: ProducerConfig) -> DescribeTransactionsResponseTransaction | None:
    assert config.transactional_id is not None
    request = DescribeTransactionsRequest(transactional_ids=[config.transactional_id])
    answer: DescribeTransactionsResponse | None = await _asked(cluster, config, request)
    return answer.transaction_states[0] if answer is not None and answer.transaction_states else None


async def _described_group(
    cluster: Cluster, config: ProducerConfig, step: GroupStep
) -> DescribeTransactionGroupsResponseGroup | None:
    request = DescribeTransactionGroupsRequest(groups=[step.group])
    answer: DescribeTransactionGroupsResponse | None = await _asked(cluster, config, request)
    row = answer.groups[0] if answer is not None and answer.groups else None
    return None if row is None or row.error_code else row


async def _asked(cluster: Cluster, config: ProducerConfig, request: Message) -> Any:
    """The coordinator's answer; None without one."""
    assert config.transactional_id is not None
    timeout_ms = min(config.request_timeout_ms, ASKING_TIMEOUT_MS_MAX)
    try:
        connection = await cluster.coordinator_connection(config.transactional_id, TRANSACTION, timeout_ms=timeout_ms)
        if not connection.serves(type(request)):
            return None
        return await connection.request(request, timeout_ms=timeout_ms)
    except KafkaError as trouble:
        log.debug("cannot find out why %r was fenced: %s", config.transactional_id, trouble)
        return None
