"""`semel log check`: the report, JSON, exit statuses, and the same result in one process and in several."""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result
from semel_broker.testing.in_process import EphemeralBroker
from semel_protocol.batch import read_header
from semel_protocol.extras import install_command
from semel_protocol.records import Record, build_batch
from semel_storage.check import audit as module
from semel_storage.dump.command import log
from storage.check.test_check import sound


def run(*arguments: object) -> Result:
    return CliRunner().invoke(log, ["check", *map(str, arguments)])


def test_a_sound_directory_has_status_0(tmp_path: Path) -> None:
    done = run(sound().write(tmp_path))
    assert done.exit_code == 0, done.output
    assert "The logs are sound." in done.output


def test_a_damaged_byte_has_status_3_and_is_located(tmp_path: Path) -> None:
    sound().write(tmp_path)
    (segment,) = (tmp_path / "t-0").glob("*.log")
    data = bytearray(segment.read_bytes())
    data[100] ^= 1
    segment.write_bytes(data)
    done = run(tmp_path)
    assert done.exit_code == 3
    assert "CRC-32C" in done.output
    assert "t-0 @ 0" in done.output
    found = msgspec.json.decode(run(tmp_path, "--json").stdout)
    assert found["is_sound"] is False


def test_a_folder_without_partitions_has_status_1(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert done.exit_code == 1
    assert "name the log.dir of a broker" in done.output


def test_several_processes_find_what_one_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = sound()
    made.write(tmp_path, segment_batches=3)
    made.write(tmp_path, segment_batches=2, name="u-0")
    alone = module.audit(tmp_path, processes=1).partitions
    monkeypatch.setattr(module, "ALONE_BYTES_MAX", 0)
    steps: list[tuple[int, int]] = []
    assert module.audit(tmp_path, processes=2, progress=lambda *done: steps.append(done)).partitions == alone
    assert steps[-1][0] == steps[-1][1] > 0


def test_what_a_broker_wrote_is_sound(semel_broker: EphemeralBroker, tmp_path: Path) -> None:
    async def write(node: object) -> None:
        partition = node.broker.topics.partition("t", 0)  # type: ignore[attr-defined]
        for number in range(100):
            batch = build_batch([Record(0, number, b"k", b"v")])
            partition.append(batch, header=read_header(batch), acks_all=False)

    semel_broker.create_topic("t")
    semel_broker.call(write)
    semel_broker.stop()
    done = run(semel_broker.save(tmp_path), "--json")
    assert done.exit_code == 0, done.output
    (partition,) = msgspec.json.decode(done.stdout)["partitions"]
    assert (partition["records"], partition["end_offset"]) == (100, 100)


def test_a_missing_numpy_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("semel_storage.check.") and "command" not in name]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numpy", None)
    done = run(tmp_path)
    assert done.exit_code == 1
    assert install_command("check") in done.output
