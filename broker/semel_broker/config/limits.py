"""PURE: the bounds of the broker that are not settings.

Each input is checked against its bound before memory is allocated for it. Bounds that an operator can change are
settings (`broker_settings.py`): `socket.request.max.bytes`, `message.max.bytes`, `max.connections`, `group.max.size`
and others.
"""

import msgspec

KIB = 1 << 10
MIB = 1 << 20


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on the resources of one peer, one request or one topic. Tests use smaller ones."""

    # A frame that is not a Produce: nothing else a client sends is large.
    control_frame_bytes_max: int = 16 * MIB
    # Elements of all arrays in one request, however small: as many as a broker may have partitions. Each takes some
    # hundred bytes of memory once it is decoded.
    request_elements_max: int = 100_000
    # Logs that a broker without a cluster opens before it listens. The others are opened when they are used, and one
    # after the other in the background.
    logs_opened_at_start_max: int = 256
    # Logs opened in the background in one turn of the loop. A slice ends by the clock, too, but a log may be large.
    logs_opened_in_turn_max: int = 16
    # After a process that was killed, so many logs are made durable by one sync of the file system. Fewer are synced
    # one by one, as the file system may have much of other programs to write.
    left_logs_synced_together_min: int = 16
    # Partitions of all fetch sessions together. Each takes some 300 bytes.
    fetch_session_partitions_max: int = 200_000
    # Requests that a connection starts before others have their turn, and bytes of these.
    turn_requests_max: int = 4
    turn_bytes_max: int = 1 * MIB
    # Requests read from one connection and not yet answered. At either bound the connection is no longer read.
    in_flight_requests_max: int = 256
    in_flight_bytes_max: int = 128 * MIB
    # The same sum over all connections together; and the bytes of all answers that wait for others, or of which the
    # kernel has not taken the last byte. An answer to Fetch takes at most a part of what is left of the second, so that
    # peers that do not read leave some of it to the others.
    total_in_flight_bytes_max: int = 512 * MIB
    total_write_buffer_bytes_max: int = 256 * MIB
    answer_part_of_free: int = 16
    answer_bytes_min: int = 64 * KIB
    # A frame up to this size does not wait for memory behind larger ones.
    small_frame_bytes: int = 1 * MIB
    # While connections wait for memory: one that holds this many bytes and receives fewer within the time is closed.
    stalled_frame_bytes: int = 16 * KIB
    stalled_frame_timeout_ms: int = 500
    # A frame begun must be complete within this time (slow loris).
    partial_frame_timeout_ms: int = 60_000
    # While Fetches wait for the memory of answers: a peer that takes less than `stalled_frame_bytes` within this time
    # is closed.
    stalled_reader_timeout_ms: int = 500

    # TLS handshakes in progress, in all and from one IPv4 address or IPv6 network (/64). At a bound the oldest one
    # without a byte for `tls_handshake_stalled_ms` is closed for a new one; without such a one the new one is closed.
    tls_handshakes_max: int = 1_024
    tls_handshakes_per_address_max: int = 256
    tls_handshake_stalled_ms: int = 1_000
    # A handshake must be complete within this time and this number of received bytes.
    tls_handshake_timeout_ms: int = 10_000
    tls_handshake_bytes_max: int = 128 * KIB
    # Bytes encrypted at once for one connection; the rest follows when the kernel has taken them.
    tls_write_bytes: int = 256 * KIB

    # Connections with SASL that are not authenticated yet: as for handshakes of TLS. They must be authenticated within
    # this time. Until then a request has at most this size, and a token at most sasl.server.max.receive.size.
    unauthenticated_connections_max: int = 1_024
    unauthenticated_connections_per_address_max: int = 256
    unauthenticated_stalled_ms: int = 1_000
    authentication_timeout_ms: int = 30_000
    unauthenticated_frame_bytes_max: int = 16 * KIB
    # Time between the answer to a failed authentication and the end of the connection: some clients that find both at
    # once do not read the answer.
    last_answer_ms: int = 500

    # While a connection is not read, its peer may go: between two looks at such connections.
    hang_up_check_ms: int = 500
    # First requests of new connections whose client is above a quota: those that would start later than this, or with
    # which more bytes would wait, are not kept. Their connection is closed after a second.
    quota_wait_s_max: int = 30
    quota_waiting_bytes_max: int = 64 * MIB

    # UTF-8 bytes of the id of a transaction, a group, a member and a static member. They are kept in memory, in records
    # and in logs, and matched against patterns. The coordinator makes member ids of the first letters of a client id.
    id_bytes_max: int = 4 * KIB
    member_id_prefix_length_max: int = 255
    # Committed offsets of all groups that this broker coordinates, with those of open transactions: beyond it a group
    # without members gets no new ones. Each takes some 300 bytes, and its metadata (offset.metadata.max.bytes).
    committed_offsets_max: int = 1_000_000
    topic_name_length_max: int = 249  # so that "<topic>-<partition>.<id>-delete" stays a legal file name
    partitions_per_topic_max: int = 10_000
    partitions_max: int = 100_000
    config_value_length_max: int = 32 * KIB

    # Decompressed bytes of a produced batch. All records are checked, one batch at a time.
    inflated_batch_bytes_max: int = 32 * MIB
    # Work on the records of produced batches in one turn of the loop, in bytes decompressed; about 5 ms.
    record_work_per_turn: int = 4 * MIB
    # Records in a batch of a compacted topic: compaction reads a batch whole and blocks the loop meanwhile.
    keyed_batch_records_max: int = 100_000

    # Decompressed bytes of a batch of a topic whose compression.type is not `producer`; one batch at a time.
    recompressed_batch_inflated_bytes_max: int = 16 * MIB
    # Bytes of records recompressed at once in a turn before later batches are queued: 5 to 10 ms of work.
    recompressed_at_once_bytes: int = 128 * KIB

    # Bytes in the open segment of an internal topic's partition; then it is rolled. An open segment is not compacted,
    # and a start reads all of them: with segment.bytes alone that could be 5 GB.
    journal_uncompacted_bytes_max: int = 1 * MIB

    # Clients that push metrics (KIP-714), series of one of them, and decompressed bytes of a push.
    telemetry_instances_max: int = 4_096
    telemetry_instance_series_max: int = 1_000
    telemetry_inflated_bytes_max: int = 4 * MIB

    # Time for which a request waits while its coordinator loads the partition of the internal topic.
    coordinator_load_hold_ms_max: int = 20_000
    # Time for which a request waits while its transaction is being ended; clients wait 30 s for a response.
    transaction_hold_ms_max: int = 20_000
    # Time for another broker to answer WriteTxnMarkers or AddPartitionsToTxn.
    peer_request_timeout_ms: int = 30_000
    # Time for which such a request waits here (for the end of a transaction, for replicas) before it is to be repeated.
    peer_hold_ms_max: int = 2_000
    # Length of a client id or an operator's note in the fence ledger, which each record of the transaction stores.
    fence_text_length_max: int = 200
    # Members of a transaction group. All their records are one batch of __transaction_state: below 1 MiB, and 8 MiB if
    # each has a ledger full of the longest lines.
    transaction_group_members_max: int = 1_000
    # Length of the token of a step of a transaction group, which is kept as long as the group.
    transaction_group_token_length_max: int = 1_000
