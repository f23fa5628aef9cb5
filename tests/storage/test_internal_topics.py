"""The records of the internal topics, byte for byte as Kafka's coordinators write them."""

import pytest
from semel_protocol.errors import ProtocolError
from semel_protocol.schema import Message
from semel_storage.internal_topics import (
    VERSIONS,
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupPartitionMetadataKey,
    ConsumerGroupPartitionMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    ConsumerGroupTargetAssignmentMetadataKey,
    ConsumerGroupTargetAssignmentMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupMetadataValueMember,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionLogKey,
    TransactionLogValue,
    TransactionLogValuePartitions,
    decode_offsets_key,
    decode_versioned,
    encode_versioned,
    version_of,
)

GROUP = GroupMetadataValue(
    protocol_type="consumer",
    generation=1,
    protocol="range",
    leader="m",
    current_state_timestamp=5,
    members=[
        GroupMetadataValueMember(
            member_id="m",
            group_instance_id="i",
            client_id="c",
            client_host="h",
            rebalance_timeout=3,
            session_timeout=2,
            subscription=b"s",
            assignment=b"a",
        )
    ],
)
TRANSACTION = TransactionLogValue(
    producer_id=1,
    previous_producer_id=9,
    producer_epoch=2,
    transaction_timeout_ms=3,
    transaction_status=1,
    transaction_partitions=[TransactionLogValuePartitions(topic="t", partition_ids=[4])],
    transaction_last_update_timestamp_ms=6,
    transaction_start_timestamp_ms=7,
)
COMMIT = OffsetCommitValue(offset=5, leader_epoch=1, metadata="m", commit_timestamp=7, expire_timestamp=8)


@pytest.mark.parametrize(
    ("message", "version", "hexed"),
    [
        (OffsetCommitKey(group="g", topic="t", partition=3), 1, "0001 000167 000174 00000003"),
        (GroupMetadataKey(group="g"), 2, "0002 000167"),
        (TransactionLogKey(transactional_id="x"), 0, "0000 000178"),
        (COMMIT, 0, "0000 0000000000000005 00016d 0000000000000007"),
        (COMMIT, 1, "0001 0000000000000005 00016d 0000000000000007 0000000000000008"),
        (COMMIT, 3, "0003 0000000000000005 00000001 00016d 0000000000000007"),
        (COMMIT, 4, "0004 0000000000000005 00000001 026d 0000000000000007 00"),
        (
            GROUP,
            0,
            (
                "0000 0008636f6e73756d6572 00000001 000572616e6765 00016d 00000001"
                "00016d 000163 000168 00000002 0000000173 0000000161"
            ),
        ),
        (
            GROUP,
            3,
            (
                "0003 0008636f6e73756d6572 00000001 000572616e6765 00016d 0000000000000005 00000001"
                "00016d 000169 000163 000168 00000003 00000002 0000000173 0000000161"
            ),
        ),
        (
            GROUP,
            4,
            (
                "0004 09636f6e73756d6572 00000001 0672616e6765 026d 0000000000000005 02"
                "026d 0269 0263 0268 00000003 00000002 0273 0261 00 00"
            ),
        ),
        (
            TRANSACTION,
            1,
            (
                "0001 0000000000000001 0002 00000003 01 02 0274 02 00000004 00 0000000000000006 0000000000000007"
                "01 00 08 0000000000000009"
            ),
        ),
    ],
)
def test_golden_bytes(message: Message, version: int, hexed: str) -> None:
    assert encode_versioned(message, version) == bytes.fromhex(hexed)


@pytest.mark.parametrize("message", [COMMIT, GROUP, TRANSACTION], ids=lambda m: type(m).__name__)
def test_every_version_decodes_to_the_fields_it_has(message: Message) -> None:
    low, high = VERSIONS[type(message)]
    for version in range(low, high + 1):
        encoded = encode_versioned(message, version)
        assert encode_versioned(decode_versioned(type(message), encoded), version) == encoded


def test_newer_key_types_are_not_malformed_keys() -> None:
    assert decode_offsets_key(b"\x00\x0bwhatever") is None
    assert decode_offsets_key(b"\x00\x00\x00\x01g\x00\x01t\x00\x00\x00\x00") == OffsetCommitKey(
        group="g", topic="t", partition=0
    )
    for malformed in (b"", b"\x00", b"\x00\x01\x00\x09g", b"\x00\x02\xff\xff"):
        with pytest.raises(ProtocolError):
            decode_offsets_key(malformed)
    with pytest.raises(ProtocolError, match="v9 is unknown"):
        decode_versioned(OffsetCommitValue, b"\x00\x09")


@pytest.mark.parametrize(
    ("cls", "hexed"),
    [
        (ConsumerGroupMetadataKey, "0003000167"),
        (ConsumerGroupMetadataValue, "00000000000700"),
        (ConsumerGroupMetadataValue, "0000000000070100080000000000000005"),
        (ConsumerGroupPartitionMetadataKey, "0004000167"),
        (
            ConsumerGroupPartitionMetadataValue,
            "000002000000000000000100000000000000020274000000030200000001020272000000",
        ),
        (ConsumerGroupMemberMetadataKey, "000500016700016d"),
        (
            ConsumerGroupMemberMetadataValue,
            "00000269000263032f68030274027504782e2a000493e00672616e676500",
        ),
        (
            ConsumerGroupMemberMetadataValue,
            "000001010263032f68010100000001010100110100000005020672616e67650301020000",
        ),
        (ConsumerGroupTargetAssignmentMetadataKey, "0006000167"),
        (ConsumerGroupTargetAssignmentMetadataValue, "0000000000070100080000000000000009"),
        (ConsumerGroupTargetAssignmentMemberKey, "000700016700016d"),
        (
            ConsumerGroupTargetAssignmentMemberValue,
            "000002000000000000000100000000000000020300000000000000020000",
        ),
        (ConsumerGroupCurrentMemberAssignmentKey, "000800016700016d"),
        (
            ConsumerGroupCurrentMemberAssignmentValue,
            (
                "00000000000700000006010200000000000000010000000000000002020000000000020000000000000001000000000000000202"
                "00000002010005020000000600"
            ),
        ),
        (ConsumerGroupRegularExpressionKey, "00100001670003782e2a"),
        (ConsumerGroupRegularExpressionValue, "0000020378610000000000000003000000000000000400"),
    ],
)
def test_records_of_consumer_groups_are_those_of_kafkas_own_encoder(cls: type[Message], hexed: str) -> None:
    data = bytes.fromhex(hexed)
    assert encode_versioned(decode_versioned(cls, data), version_of(data)) == data
