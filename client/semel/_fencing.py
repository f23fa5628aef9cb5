"""Who fenced this producer, when and why: asked of the coordinator once, for the exception's text.

Other brokers than semel keep no ledger of it; there the exception tells who has the transactional id now.
"""

from __future__ import annotations

import logging

from semel_protocol.messages.k65_describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    DescribeTransactionsResponseTransaction,
)

from semel._cluster import TRANSACTION, Cluster
from semel._config import ProducerConfig
from semel._transaction_manager import TransactionManager
from semel.errors import BrokerResponseError, InvalidProducerIdMapping, KafkaError, ProducerFenced

log = logging.getLogger(__name__)

ASKING_TIMEOUT_MS_MAX = 5_000
"""The story is not worth more waiting."""


async def fenced(
    cluster: Cluster,
    config: ProducerConfig,
    manager: TransactionManager,
    error: BrokerResponseError,
    *,
    proven: bool = False,
) -> ProducerFenced | None:
    """The exception of a producer that was fenced, with the story; None when the coordinator does not confirm it.

    proven: the coordinator has said so itself; whether it tells the story or not.
    """
    row = await _described(cluster, config)
    is_other = row is not None and not row.error_code and _identity(row) != _identity(manager)
    if not proven and not is_other:
        return None
    story = _story(row, manager) if row is not None else ""
    if not story and row is not None and is_other:
        story = f"producer id {row.producer_id} epoch {row.producer_epoch} has it now ({row.transaction_state})"
    made = ProducerFenced(f"{_who(config, manager)}: {story or 'the coordinator does not say by whom'}")
    made.__cause__ = error
    return made


async def forgotten(
    cluster: Cluster, config: ProducerConfig, manager: TransactionManager, error: InvalidProducerIdMapping
) -> InvalidProducerIdMapping:
    """The exception of a producer whose transactional id the coordinator does not know (any more), with the story."""
    row = await _described(cluster, config)
    story = _story(row, manager) if row is not None else ""
    if not story:
        return error
    made = InvalidProducerIdMapping(f"{_who(config, manager)}: {story}")
    made.__cause__ = error
    return made


def _who(config: ProducerConfig, manager: TransactionManager) -> str:
    return (
        f"transactional_id {config.transactional_id!r}, producer id {manager.producer_id} "
        f"epoch {manager.producer_epoch}"
    )


def _identity(of: TransactionManager | DescribeTransactionsResponseTransaction) -> tuple[int, int]:
    return of.producer_id, of.producer_epoch


def _story(row: DescribeTransactionsResponseTransaction, manager: TransactionManager) -> str:
    """The line of the ledger that shut us out: of all that are past our epoch, the oldest."""
    for fence in row.fences:
        if fence.old_producer_id == manager.producer_id and fence.old_epoch >= manager.producer_epoch:
            return fence.text
    return ""


async def _described(cluster: Cluster, config: ProducerConfig) -> DescribeTransactionsResponseTransaction | None:
    assert config.transactional_id is not None
    timeout_ms = min(config.request_timeout_ms, ASKING_TIMEOUT_MS_MAX)
    try:
        connection = await cluster.coordinator_connection(config.transactional_id, TRANSACTION, timeout_ms=timeout_ms)
        if not connection.serves(DescribeTransactionsRequest):
            return None
        answer: DescribeTransactionsResponse = await connection.request(
            DescribeTransactionsRequest(transactional_ids=[config.transactional_id]), timeout_ms=timeout_ms
        )
    except KafkaError as trouble:
        log.debug("no story of how %r was fenced: %s", config.transactional_id, trouble)
        return None
    return answer.transaction_states[0] if answer.transaction_states else None
