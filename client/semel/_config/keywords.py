"""The keyword arguments of `Producer` and `Consumer`, for editors and type checkers. A test compares them with the
structs of the settings.

Serializers and deserializers are not among them: they decide the type arguments of `Producer[K, V]` and
`Consumer[K, V]`, so the signatures name them.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable
from typing import Literal, TypedDict

from semel._config.client import CompressionType, Partitioner, SaslMechanism, SecurityProtocol, TokenProvider
from semel._config.consumer import Strategies
from semel._edge import Edge
from semel.structs import GroupStep


class ClientKeywords(TypedDict, total=False):
    """The keyword arguments that all clients have in common."""

    bootstrap_servers: str | Iterable[str]
    client_id: str
    request_timeout_ms: int
    bootstrap_timeout_ms: int
    metadata_max_age_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    connections_max_idle_ms: int | None
    max_block_ms: int
    receive_frame_bytes_max: int
    security_protocol: SecurityProtocol
    ssl_context: ssl.SSLContext | None
    ssl_cafile: str | None
    ssl_certfile: str | None
    ssl_keyfile: str | None
    ssl_password: str | None
    ssl_check_hostname: bool
    sasl_mechanism: SaslMechanism
    sasl_plain_username: str | None
    sasl_plain_password: str | None
    sasl_oauth_token_provider: TokenProvider | None
    edge: Edge | None


class ProducerKeywords(ClientKeywords, total=False):
    """The keyword arguments of `Producer`, without the serializers."""

    acks: Literal[0, 1, -1, "all"]
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    transaction_group_step: GroupStep | None
    compression_type: CompressionType | None
    max_batch_size: int
    linger_ms: float
    partitioner: Partitioner | None
    max_request_size: int
    buffer_memory: int
    delivery_timeout_ms: int
    max_in_flight_requests_per_connection: int


class ConsumerKeywords(ClientKeywords, total=False):
    """The keyword arguments of `Consumer`, without the deserializers."""

    group_id: str | None
    group_instance_id: str | None
    group_protocol: Literal["classic", "consumer"]
    group_remote_assignor: str | None
    auto_offset_reset: Literal["latest", "earliest", "none"]
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    max_poll_records: int | None
    max_poll_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int | None
    partition_assignment_strategy: Strategies
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    fetch_buffer_bytes: int
    isolation_level: Literal["read_uncommitted", "read_committed"]
    check_crcs: bool
    exclude_internal_topics: bool
    allow_auto_create_topics: bool
    client_rack: str
    default_api_timeout_ms: int
    consumer_timeout_ms: int | None
