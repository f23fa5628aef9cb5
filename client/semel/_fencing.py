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
from semel.errors import BrokerResponseError, KafkaError, ProducerFenced, error_for

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
    assert config.transactional_id is not None
    try:
        row = await _described(cluster, config, config.transactional_id)
    except KafkaError as trouble:
        log.debug("no story of how %r was fenced: %s", config.transactional_id, trouble)
        row = None
    mine = (manager.producer_id, manager.producer_epoch)
    is_other = row is not None and (row.producer_id, row.producer_epoch) != mine
    if not proven and not is_other:
        return None
    story = _story(row, manager) if row is not None and is_other else "the coordinator does not say by whom"
    made = ProducerFenced(
        f"transactional_id {config.transactional_id!r}, producer id {mine[0]} epoch {mine[1]}: {story}"
    )
    made.__cause__ = error
    return made


async def _described(
    cluster: Cluster, config: ProducerConfig, transactional_id: str
) -> DescribeTransactionsResponseTransaction | None:
    timeout_ms = min(config.request_timeout_ms, ASKING_TIMEOUT_MS_MAX)
    connection = await cluster.coordinator_connection(transactional_id, TRANSACTION, timeout_ms=timeout_ms)
    if not connection.serves(DescribeTransactionsRequest):
        return None
    answer: DescribeTransactionsResponse = await connection.request(
        DescribeTransactionsRequest(transactional_ids=[transactional_id]), timeout_ms=timeout_ms
    )
    for row in answer.transaction_states:
        if row.error_code:
            raise error_for(row.error_code, f"describing the transaction of {transactional_id!r}")
        return row
    return None


def _story(row: DescribeTransactionsResponseTransaction, manager: TransactionManager) -> str:
    """What the ledger says of our epoch, else who has the id now."""
    return f"producer id {row.producer_id} epoch {row.producer_epoch} has it now ({row.transaction_state})"
