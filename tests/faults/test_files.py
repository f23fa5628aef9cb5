"""Tests of damage to files, and of forged epochs: the broker itself could have written such a record."""

from __future__ import annotations

from pathlib import Path

import pytest
from semel_broker.txn.model.metadata import TransactionMetadata, TransactionState
from semel_broker.txn.model.records import metadata_of, row_of
from semel_protocol.batch import crc_ok, iterate, stamp
from semel_protocol.records import Record, build_batch, decode_batch

from faults.files import damage, file_of, forge_epoch


def batch_of(offset: int, key: bytes | None, value: bytes | None) -> bytes:
    batch = bytearray(build_batch([Record(0, 1_700_000_000_000, key, value)]))
    stamp(batch, offset, 0)
    return bytes(batch)


@pytest.mark.parametrize(
    ("how", "number", "left"),
    [
        ("empty", 0, b""),
        ("truncate", 2, b"abc"),
        ("truncate", 99, b""),
        ("flip", 1, b"a\x9dcde"),
        ("flip", 6, b"a\x9dcde"),
        ("append", 3, b"abcde\x01\x08\x0f"),
    ],
)
def test_damage(tmp_path: Path, how: str, number: int, left: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abcde")
    damage(path, how, number)
    assert path.read_bytes() == left


def test_delete_removes_and_cut_takes_whole_batches_off_the_end(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000000.log"
    batches = [batch_of(offset, None, b"x" * offset) for offset in range(4)]
    path.write_bytes(b"".join(batches))
    damage(path, "cut", 1)
    assert path.read_bytes() == b"".join(batches[:3])
    damage(path, "cut", 2)
    assert path.read_bytes() == batches[0]
    damage(path, "delete")
    assert not path.exists()


def test_the_file_of_a_kind_is_the_newest_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    for base in (0, 7):
        (tmp_path / "t-0" / f"{base:020d}.log").touch()
    assert file_of(tmp_path, "t", 0, "log").name == f"{7:020d}.log"
    assert file_of(tmp_path, "t", 0, "recovery-point") == tmp_path / "recovery-point-offset-checkpoint"
    with pytest.raises(FileNotFoundError, match=r"t-0 has no .txnindex"):
        file_of(tmp_path, "t", 0, "txnindex")


def test_a_forged_epoch_is_one_more_valid_record_of_the_same_id(tmp_path: Path) -> None:
    mine, other = (
        TransactionMetadata(
            transactional_id=name,
            producer_id=number,
            producer_epoch=3,
            timeout_ms=1000,
            state=TransactionState.COMPLETE_COMMIT,
            last_update_ms=5,
        )
        for number, name in enumerate(("tx", "other"), 7)
    )
    path = tmp_path / "__transaction_state-2" / "00000000000000000000.log"
    path.parent.mkdir()
    path.write_bytes(batch_of(0, *row_of(mine)) + batch_of(1, *row_of(other)))
    forge_epoch(tmp_path, "tx", 32_764)
    header, batch = list(iterate(path.read_bytes()))[-1]
    assert header.base_offset == 2
    assert crc_ok(batch, header)
    found = metadata_of("tx", decode_batch(batch, header)[0].value or b"")
    assert (found.producer_id, found.producer_epoch, found.state) == (7, 32_764, TransactionState.COMPLETE_COMMIT)
    with pytest.raises(ValueError, match="knows nothing of nobody"):
        forge_epoch(tmp_path, "nobody", 1)
