"""Every bound of the broker that is not a setting, in one place. Each input is checked against its bound before memory
is taken for it. Bounds that an operator may move are settings (`config.py`): `socket.request.max.bytes`,
`message.max.bytes`, `max.connections`, `group.max.size` and others."""

import msgspec

KIB = 1 << 10
MIB = 1 << 20


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Bounds on what one peer, one request or one topic may take. Tests make them small."""

    # A frame that is not a Produce: nothing else a client sends is large.
    control_frame_bytes_max: int = 16 * MIB
    # Elements of all arrays in one request, however small: as many as a broker may have partitions. Each takes some
    # hundred bytes of memory once it is decoded.
    request_elements_max: int = 100_000
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
    # A frame up to this size does not stand behind larger ones for memory.
    small_frame_bytes: int = 1 * MIB
    # While connections wait for memory: one that holds as much and moves less within this time is closed.
    stalled_frame_bytes: int = 16 * KIB
    stalled_frame_timeout_ms: int = 500
    # A frame begun must be complete within this time (slow loris).
    partial_frame_timeout_ms: int = 60_000
    # While Fetches wait for the memory of answers: a peer that takes less than `stalled_frame_bytes` within this time
    # is closed.
    stalled_reader_timeout_ms: int = 500

    topic_name_length_max: int = 249  # so that "<topic>-<partition>.<id>-delete" stays a legal file name
    partitions_per_topic_max: int = 10_000
    partitions_max: int = 100_000
    config_value_length_max: int = 32 * KIB

    # What a produced batch may decompress to: all of it is looked at, one batch at a time.
    inflated_batch_bytes_max: int = 32 * MIB
    # Work on the records of produced batches in one turn of the loop, in bytes decompressed; about 5 ms.
    record_work_per_turn: int = 4 * MIB
    # Of the batches of a compacted topic, which compaction reads whole while everybody else waits.
    keyed_batch_records_max: int = 100_000

    # Of the batches of a topic whose compression.type is not `producer`; one of that size is inflated at a time.
    recompressed_batch_inflated_bytes_max: int = 16 * MIB

    # Of a partition of an internal topic, in the segment that is open and therefore never compacted; then it is rolled.
    # A start reads all of them, and by segment.bytes alone there might be 5 GB.
    journal_uncompacted_bytes_max: int = 1 * MIB

    # A request for a group or transactional id whose coordinator is still reading what is stored waits for so long.
    coordinator_load_hold_ms_max: int = 20_000
    # A request that meets a transaction which is being ended waits for so long; clients wait 30 s for an answer.
    transaction_hold_ms_max: int = 20_000
    # Another broker's answer, to markers and to questions about transactions, is waited for so long.
    peer_request_timeout_ms: int = 30_000
    # What it waits for here at most (the end of a transaction, other replicas), before it is told to ask again.
    peer_hold_ms_max: int = 2_000
    # Of a client id or an operator's note in the fence ledger, which is stored with every record of its transaction.
    fence_text_length_max: int = 200
    # Of the transactions that commit as one. All their records are one batch of __transaction_state: below 1 MiB, and
    # 8 MiB if each has a ledger full of the longest lines.
    transaction_group_members_max: int = 1_000
    # Of what a step of a transaction group is committed as, which is kept for as long as the group.
    transaction_group_token_length_max: int = 1_000
