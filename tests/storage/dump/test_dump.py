"""`semel log dump`: its output, and its reports of invalid files."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from semel_protocol.batch import seal
from semel_protocol.control import ControlType, EndTxnMarker, build_marker
from semel_storage.dump.command import log
from semel_storage.dump.internal import DECODERS, text
from semel_storage.dump.render import styled_line, when
from semel_storage.dump.rows import DumpOptions, DumpRow, RowKind, aborted_rows, epoch_rows, log_rows, snapshot_rows
from semel_storage.internal_topics import (
    TRANSACTION_GROUP_KEY,
    TRANSACTION_GROUP_VALUE,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupMetadataValueMember,
    OffsetCommitKey,
    OffsetCommitValue,
    TransactionGroupKey,
    TransactionGroupValue,
    TransactionLogKey,
    TransactionLogValue,
    TransactionLogValuePartitions,
    encode_versioned,
)
from semel_storage.segments.log_config import LogConfig
from support.logs import NOW_MS, DataDirectory, Pair, batch_of

LOG = "00000000000000000000.log"


def written(root: Path, batches: list[bytes], directory: str = "t-0") -> Path:
    """The directory of a partition after a clean stop."""
    data = DataDirectory.of_batches(LogConfig(index_interval_bytes=0), batches)
    data.log.close()
    path = root / directory
    path.mkdir()
    for name in data.disk.listdir(data.directory):
        (path / name).write_bytes(data.disk.read_bytes(f"{data.directory}/{name}"))
    return path


def dump(*arguments: object) -> Result:
    return CliRunner().invoke(log, ["dump", *map(str, arguments)])


def marker() -> bytes:
    return build_marker(EndTxnMarker(ControlType.COMMIT, 3), producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS)


TWO = [
    batch_of([(b"k1", b"v1"), (b"k2", None), (None, "wörld\n".encode()), (b"\xff\x00", b"x")], producer=(7, 0, 0)),
    marker(),
]

GOLDEN = """\
baseOffset: 0 lastOffset: 3 count: 4 baseSequence: 0 lastSequence: 3 producerId: 7 producerEpoch: 0 \
partitionLeaderEpoch: 0 isTransactional: false isControl: false position: 0 CreateTime: 1700000000003 size: 105 \
magic: 2 compresscodec: none crc: {crc0} isvalid: true
| offset: 0 CreateTime: 1700000000000 keySize: 2 valueSize: 2 producerId: 7 producerEpoch: 0 sequence: 0 \
headers: {{}} key: k1 payload: v1
| offset: 1 CreateTime: 1700000000001 keySize: 2 valueSize: -1 producerId: 7 producerEpoch: 0 sequence: 1 \
headers: {{}} key: k2 payload: null
| offset: 2 CreateTime: 1700000000002 keySize: -1 valueSize: 7 producerId: 7 producerEpoch: 0 sequence: 2 \
headers: {{}} key: null payload: wörld\\n
| offset: 3 CreateTime: 1700000000003 keySize: 2 valueSize: 1 producerId: 7 producerEpoch: 0 sequence: 3 \
headers: {{}} key: 0xff00 payload: x
baseOffset: 4 lastOffset: 4 count: 1 baseSequence: -1 lastSequence: -1 producerId: 7 producerEpoch: 0 \
partitionLeaderEpoch: 0 isTransactional: true isControl: true position: 105 CreateTime: 1700000000000 size: 78 \
magic: 2 compresscodec: none crc: {crc1} isvalid: true
| offset: 4 CreateTime: 1700000000000 keySize: 4 valueSize: 6 producerId: 7 producerEpoch: 0 sequence: -1 \
headers: {{}} endTxnMarker: COMMIT coordinatorEpoch: 3
"""


def test_batches_and_records_are_printed_as_kafkas_tool_prints_them(tmp_path: Path) -> None:
    path = written(tmp_path, TWO) / LOG
    result = dump(path)
    assert result.exit_code == 0
    crcs = [int.from_bytes(batch[17:21], "big") for batch in TWO]
    assert result.output == GOLDEN.format(crc0=crcs[0], crc1=crcs[1])


def test_options_choose_what_is_shown(tmp_path: Path) -> None:
    path = written(tmp_path, TWO) / LOG
    assert [line[:13] for line in dump("--no-records", path).output.splitlines()] == ["baseOffset: 0", "baseOffset: 4"]
    assert "payload" not in dump("--no-values", path).output
    offsets = [row["offset"] for row in rows("--from-offset", 2, "--limit", 2, path) if row["kind"] == "record"]
    assert offsets == [2, 3]
    assert [row["baseOffset"] for row in rows("--limit", 1, "--no-records", path)] == [0]


def rows(*arguments: object) -> list[dict[str, object]]:
    result = dump("--json", *arguments)
    assert result.exit_code == 0, result.output
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_json_lines_carry_the_same_facts(tmp_path: Path) -> None:
    found = rows(written(tmp_path, TWO) / LOG)
    assert [row["kind"] for row in found] == ["batch", *["record"] * 4, "batch", "record"]
    assert found[2]["payload"] is None
    assert found[3]["payload"] == "wörld\\n"
    assert found[0]["isvalid"] is True


def test_indexes_snapshot_and_epochs_are_printed(tmp_path: Path) -> None:
    path = written(tmp_path, TWO)
    assert dump(path / "00000000000000000000.index").output == "offset: 4 position: 105\n"
    assert dump(path / "00000000000000000000.timeindex").output.endswith("offset: 3\n")
    assert dump(path / "leader-epoch-checkpoint").output == "leaderEpoch: 0 startOffset: 0\n"
    snapshot = dump(path / "00000000000000000005.snapshot").output
    assert snapshot.startswith("producerId: 7 producerEpoch: 0 coordinatorEpoch: 3 ")
    assert "firstSequence: 0 lastSequence: 3 lastOffset: 3 " in snapshot


def test_a_directory_prints_all_its_logs_in_order(tmp_path: Path) -> None:
    path = written(tmp_path, TWO)
    (path / "00000000000000000009.log").write_bytes(b"")
    lines = dump("--no-records", path).output.splitlines()
    assert lines[0].endswith("00000000000000000000.log:")
    assert lines[-1].endswith("00000000000000000009.log:")
    (tmp_path / "empty").mkdir()
    assert dump(tmp_path / "empty").exit_code == 1


# Damage


def test_a_torn_tail_is_shown_at_every_byte() -> None:
    data = TWO[0] + TWO[1]
    for cut in range(len(TWO[0]) + 1, len(data)):
        found = list(log_rows(data[:cut], DumpOptions(decoder=DECODERS["plain"], records=False)))
        assert [row.kind for row in found] == [RowKind.BATCH, RowKind.PROBLEM]
        assert found[-1].facts["position"] == len(TWO[0])
        assert found[-1].facts["bytes"] == cut - len(TWO[0])
        assert found[-1].facts["problem"].startswith("torn tail")


@pytest.mark.parametrize(
    ("change", "position", "words"),
    [
        pytest.param(lambda b: b[:-3] + b"\xee" + b[-2:], 105, "the CRC does not match", id="bit-rot"),
        pytest.param(lambda b: b + bytes(500), 183, "torn tail: only zeros", id="zero-filled-tail"),
        pytest.param(lambda b: b[:105] + bytes(78) + b, 105, "corrupt: zeros instead of a batch", id="hole"),
        pytest.param(lambda b: b[:121] + b"\x01" + b[122:], 105, "corrupt: magic 1", id="old-magic"),
        pytest.param(lambda b: b[:113] + bytes(4) + b[117:], 105, "corrupt: batch length 0", id="lying-length"),
        pytest.param(lambda b: b + b[:105], 183, "offset 0, but at least 5 is expected", id="offset-goes-back"),
    ],
)
def test_an_invalid_log_is_reported_with_status_1(tmp_path: Path, change: object, position: int, words: str) -> None:
    path = written(tmp_path, TWO) / LOG
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]
    result = dump(path)
    assert result.exit_code == 1
    (line,) = [line for line in result.output.splitlines() if "problem: " in line]
    assert f"position: {position}" in line
    assert words in line
    assert result.output.startswith("baseOffset: 0 "), "what can be read is shown"


def test_invalid_records_with_a_matching_crc_are_reported() -> None:
    lying = bytearray(TWO[0])
    lying[60] = 9
    seal(lying)
    found = list(log_rows(lying, DumpOptions(decoder=DECODERS["plain"])))
    assert [row.kind for row in found] == [RowKind.BATCH, RowKind.PROBLEM]
    assert "the records are invalid" in found[1].facts["problem"]


def test_an_index_that_contradicts_its_log_is_reported(tmp_path: Path) -> None:
    path = written(tmp_path, TWO) / "00000000000000000000.index"
    path.write_bytes(bytes.fromhex("0000000300000000000000030000000100000004000003e80000"))
    result = dump(path)
    assert result.exit_code == 1
    found = [line for line in result.output.splitlines() if "problem" in line]
    assert found[0].endswith("entries must ascend")
    assert "contradicts the log" in found[1]
    assert found[2].endswith("the log is shorter")
    assert found[3] == "position: 24 problem: torn tail: 2 bytes are not an entry of 8 bytes"


def test_damaged_small_files_are_reported_without_a_traceback(tmp_path: Path) -> None:
    path = written(tmp_path, TWO)
    snapshot = path / "00000000000000000005.snapshot"
    snapshot.write_bytes(snapshot.read_bytes()[:-1])
    assert dump(snapshot).exit_code == 1
    assert [row.kind for row in epoch_rows(b"0\n2\n0 0\nx y\n")] == [RowKind.ENTRY, RowKind.PROBLEM]
    assert [row.kind for row in epoch_rows(b"")] == [RowKind.PROBLEM]
    assert [row.kind for row in snapshot_rows(b"")] == [RowKind.PROBLEM]
    assert dump(tmp_path / "nothing.log").exit_code == 2
    (tmp_path / "notes.txt").write_text("x")
    assert "not one of .log" in dump(tmp_path / "notes.txt").output


def test_aborted_transactions_of_a_txnindex() -> None:
    (row,) = aborted_rows(bytes.fromhex("0000" + "%016x" * 4 % (7, 10, 20, 21)))
    assert row.facts == {"version": 0, "producerId": 7, "firstOffset": 10, "lastOffset": 20, "lastStableOffset": 21}


# Internal topics

OFFSET_KEY = encode_versioned(OffsetCommitKey(group="g", topic="flights", partition=3), 1)
GROUP_KEY = encode_versioned(GroupMetadataKey(group="g"), 2)
TXN_KEY = encode_versioned(TransactionLogKey(transactional_id="pay"), 0)


def decoded(root: Path, directory: str, pairs: list[Pair]) -> list[tuple[object, object]]:
    path = written(root, [batch_of(pairs)], directory) / LOG
    return [(row["key"], row["payload"]) for row in rows(path) if row["kind"] == "record"]


def test_consumer_offsets_are_decoded(tmp_path: Path) -> None:
    member = GroupMetadataValueMember(
        member_id="m-1",
        client_id="c",
        client_host="/127.0.0.1",
        session_timeout=10_000,
        subscription=bytes.fromhex("0001 00000001 0007666c6967687473 ffffffff 00000000"),
        assignment=b"\xffopaque",
    )
    group = GroupMetadataValue(protocol_type="consumer", generation=4, protocol="range", leader="m-1", members=[member])
    commit = OffsetCommitValue(offset=42, metadata="note", commit_timestamp=NOW_MS)
    found = decoded(
        tmp_path,
        "__consumer_offsets-7",
        [
            (OFFSET_KEY, encode_versioned(commit, 3)),
            (OFFSET_KEY, None),
            (GROUP_KEY, encode_versioned(group, 3)),
            (b"\x00\x63", b"future"),
            (b"\x00", b"short"),
            (GROUP_KEY, b"\x00\x03\x00"),
            (OFFSET_KEY, encode_versioned(OffsetCommitValue(offset=43, topic_id=b"\1" * 16), 4)),
        ],
    )
    key = {"type": "offset_commit", "group": "g", "topic": "flights", "partition": 3}
    assert found[0][0] == key
    assert found[0][1] == {
        "version": 3,
        "offset": 42,
        "leader_epoch": -1,
        "metadata": "note",
        "commit_timestamp": NOW_MS,
        "expire_timestamp": -1,
    }
    assert found[1] == (key, None)
    assert found[2][0] == {"type": "group_metadata", "group": "g"}
    (shown,) = found[2][1]["members"]  # type: ignore[index]
    assert shown["member_id"] == "m-1"
    assert shown["subscription"] == {"version": 1, "topics": ["flights"], "user_data": None}
    assert shown["assignment"] == "0xff6f7061717565"
    assert found[2][1]["generation"] == 4  # type: ignore[index]
    assert found[3][0] == {"type": "unknown v99", "bytes": "\\x00c"}
    assert "too short" in found[4][0]["type"]  # type: ignore[index]
    assert "unreadable" in found[5][1]  # type: ignore[operator]
    assert found[6][1]["topic_id"] == "AQEBAQEBAQEBAQEBAQEBAQ"  # type: ignore[index]


def test_transaction_state_is_decoded(tmp_path: Path) -> None:
    value = TransactionLogValue(
        producer_id=9,
        producer_epoch=1,
        transaction_timeout_ms=60_000,
        transaction_status=2,
        transaction_partitions=[TransactionLogValuePartitions(topic="t", partition_ids=[0, 2])],
        previous_producer_id=8,
    )
    found = decoded(tmp_path, "__transaction_state-0", [(TXN_KEY, encode_versioned(value, 1))])
    assert found[0][0] == {"type": "transaction", "transactional_id": "pay"}
    assert found[0][1]["transaction_status"] == "PrepareCommit"  # type: ignore[index]
    assert found[0][1]["previous_producer_id"] == 8  # type: ignore[index]
    assert found[0][1]["transaction_partitions"] == [{"topic": "t", "partition_ids": [0, 2]}]  # type: ignore[index]


def test_transaction_groups_and_members_are_decoded(tmp_path: Path) -> None:
    group = TransactionGroupValue(
        group_epoch=7,
        state=1,
        owner="query 4",
        client_id="driver",
        client_host="10.0.0.9",
        timeout_ms=60_000,
        begin_time_ms=NOW_MS,
        last_update_time_ms=NOW_MS + 5,
        decided_token="query 4:12",
        decided_epoch=7,
        note="",
    )
    member = TransactionLogValue(producer_id=9, producer_epoch=1, transaction_timeout_ms=1, transaction_status=2)
    member.group_epoch = 7
    key = encode_versioned(TransactionGroupKey(group="sink"), TRANSACTION_GROUP_KEY)
    found = decoded(
        tmp_path,
        "__transaction_state-3",
        [
            (key, encode_versioned(group, TRANSACTION_GROUP_VALUE)),
            (encode_versioned(TransactionLogKey(transactional_id="sink/a"), 0), encode_versioned(member, 1)),
            (key, None),
        ],
    )
    assert found[0][0] == {"type": "transaction_group", "group": "sink"}
    assert found[0][1]["state"] == "Committed"  # type: ignore[index]
    assert (found[0][1]["decided_token"], found[0][1]["group_epoch"]) == ("query 4:12", 7)  # type: ignore[index]
    assert found[1][0] == {"type": "transaction", "transactional_id": "sink/a"}
    assert found[1][1]["group_epoch"] == 7  # type: ignore[index]
    assert found[2] == ({"type": "transaction_group", "group": "sink"}, None)


def test_the_decoder_can_be_chosen(tmp_path: Path) -> None:
    path = written(tmp_path, [batch_of([(OFFSET_KEY, None)])], "copy-0") / LOG
    assert '"group": "g"' in dump("--decoder", "offsets", path).output
    assert '"group": "g"' not in dump(path).output


# On a terminal


def test_styled_lines_have_the_same_facts(tmp_path: Path) -> None:
    data = (written(tmp_path, TWO) / LOG).read_bytes() + b"x"
    lines = [styled_line(row).plain for row in log_rows(data, DumpOptions(decoder=DECODERS["plain"]))]
    assert lines[0].startswith("0..3  4 records, 105 bytes at 0  none  2023-11-14 22:13:20.003  producer 7/0 seq 0..3")
    assert lines[1].endswith("k1 → v1")
    assert lines[2].endswith("k2 → tombstone")
    assert "COMMIT  coordinator epoch 3" in lines[6]
    assert lines[7].startswith("✗ torn tail")
    assert styled_line(DumpRow(RowKind.ENTRY, {"offset": 1, "position": 2})).plain == "offset 1  position 2  "


@pytest.mark.parametrize("timestamp_ms", [-1, 10**18])
def test_a_timestamp_out_of_range_is_shown_as_a_number(timestamp_ms: int) -> None:
    assert when(timestamp_ms) == str(timestamp_ms)


def test_text_is_one_printable_line() -> None:
    assert text("a\tb\nç".encode()) == "a\\tb\\nç"
    assert text(b"\xfe\xff") == "0xfeff"
    assert text(b"") == ""
    assert text(None) is None
