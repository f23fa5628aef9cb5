"""Asking a broker for a producer id: the one thing a Sender has to wait for before it may send (KIP-98)."""

import asyncio
import logging

from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

from semel._cluster import Cluster
from semel._config import ProducerConfig
from semel._retry import Backoff
from semel.errors import KafkaError, error_for

log = logging.getLogger(__name__)

NO_TRANSACTION_TIMEOUT_MS = 0x7FFFFFFF


async def new_producer_id(cluster: Cluster, config: ProducerConfig) -> tuple[int, int]:
    """A fresh (producer id, epoch), asked for until some broker gives one; records meanwhile wait, and time out.

    Raises KafkaError when the brokers refuse for good.
    """
    backoff = Backoff(cluster.edge, config.retry_backoff_ms, config.retry_backoff_max_ms)
    while True:
        try:
            connection = await cluster.any_connection()
            answer: InitProducerIdResponse = await connection.request(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS),
                timeout_ms=config.request_timeout_ms,
            )
            if answer.error_code:
                raise error_for(answer.error_code, "asking for a producer id")
            return answer.producer_id, answer.producer_epoch
        except KafkaError as error:
            if not error.retriable:
                raise
            log.warning("no producer id yet, trying again: %s", error)
        await asyncio.sleep(backoff.next_ms() / 1000)
