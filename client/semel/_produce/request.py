"""Builds one Produce request from batches, and chooses its version."""

from __future__ import annotations

from semel_protocol.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from semel_protocol.schema import Message

from semel._config.client import CODEC_OF
from semel._config.producer import ProducerConfig
from semel._net.connection import Connection
from semel._produce.accumulator import Batch
from semel._produce.transaction_state import TransactionState
from semel.errors import UnsupportedVersionError

ZSTD, ZSTD_VERSION_MIN = 4, 7
ENROLS_VERSION = 12
"""The Produce version that adds its partitions to the transaction (KIP-890)."""


def produce_request(
    batches: dict[Batch, bytes], config: ProducerConfig, transaction: TransactionState | None
) -> ProduceRequest:
    """The batches and their bytes as one request."""
    topics: dict[str, list[ProduceRequestPartition]] = {}
    for batch, records in batches.items():
        queue = batch.queue
        topics.setdefault(queue.topic, []).append(ProduceRequestPartition(index=queue.partition, records=records))
    return ProduceRequest(
        transactional_id=None if transaction is None else transaction.transactional_id,
        acks=config.required_acks,
        timeout_ms=config.request_timeout_ms,
        topic_data=[ProduceRequestTopic(name=topic, partition_data=rows) for topic, rows in topics.items()],
    )


def produce_version_max(
    connection: Connection, config: ProducerConfig, transaction: TransactionState | None
) -> int | None:
    """The highest version to use; None for no limit. Raises UnsupportedVersionError when the broker is too old."""
    if CODEC_OF[config.compression_type] == ZSTD and connection.version(ProduceRequest) < ZSTD_VERSION_MIN:
        raise UnsupportedVersionError(f"compression_type='zstd': {connection.name} is too old for it")
    if transaction is None or transaction.version < 2:
        return None
    check_serves(connection, ProduceRequest, ENROLS_VERSION)
    return ENROLS_VERSION


def check_serves(connection: Connection, request: type[Message], version: int) -> None:
    """Raise UnsupportedVersionError when a broker with transaction.version=2 does not serve this version."""
    if not connection.serves(request, version):
        raise UnsupportedVersionError(
            f"{connection.name} has finalized transaction.version=2 but does not serve {request.__name__} v{version}"
        )
