"""The file of the audit log: appended to, rotated, and written by a thread. A failure does not stop the broker."""

from __future__ import annotations

import contextlib
import io
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from broker.wire import EventLog
from semel_broker import audit_file
from semel_broker.audit_file import AuditFile, AuditStream, audit_room, open_audit
from semel_broker.config.settings import ConfigError
from semel_broker.logging import LogOutput
from semel_broker.output import line_writer
from semel_broker.output.line_queue import Room

pytestmark = pytest.mark.real_time

ENOSPC = OSError(28, "No space left on device")


def stdout() -> LogOutput:
    return LogOutput(io.StringIO(), audit_room=audit_room(is_required=False))


def written(file: AuditFile, *lines: str) -> None:
    """Write lines, and wait until they are in the file."""
    for line in lines:
        file.write(line)
    assert file._writer.flush(20)


def test_lines_are_appended_to_a_file_that_others_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for line in ("a", "b"):
        file = AuditFile(str(path), EventLog())
        file.write(line)
        file.close(20)
    assert path.read_text() == "a\nb\n"
    assert path.stat().st_mode & 0o777 & ~0o640 == 0


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_file_that_logrotate_has_moved_is_opened_again(tmp_path: Path, is_created_again: bool) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(str(path), EventLog())
    written(file, "before")
    path.rename(tmp_path / "audit.log.1")
    if is_created_again:
        path.touch()
    file.write("after")
    file.close(20)
    assert (tmp_path / "audit.log.1").read_text() == "before\n"
    assert path.read_text() == "after\n"


def full(monkeypatch: pytest.MonkeyPatch, *answers: int | OSError) -> Callable[[], None]:
    """Make the next writes write so many bytes, or fail. The last value holds until the returned function is called."""
    real, left = os.write, list(answers)
    has_room = threading.Event()

    def write(descriptor: int, data: memoryview) -> int:
        if has_room.is_set():
            return real(descriptor, data)
        answer = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(answer, OSError):
            raise answer
        return real(descriptor, data[:answer])

    monkeypatch.setattr(audit_file.os, "write", write)
    monkeypatch.setattr(line_writer, "AGAIN_S", 0.01)
    return has_room.set


def test_a_full_disk_has_one_error_in_the_log_and_costs_the_lines_beyond_the_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "LINES_MAX", 10)
    make_room = full(monkeypatch, ENOSPC)
    log = EventLog()
    path = tmp_path / "audit.log"
    file = AuditFile(str(path), log)
    for number in range(100):
        file.write(f"line {number}")
    assert file.lost_lines == 90
    make_room()
    assert file._writer.flush(20)
    file.close(20)
    lines = path.read_text().splitlines()
    assert lines[:10] == [f"line {number}" for number in range(10)]
    told = [json.loads(line) for line in lines[10:]]
    assert {each["decision"] for each in told} == {"lost"}
    assert sum(each["times"] for each in told) == 90
    assert [event for event, _ in log.lines] == ["audit_log_not_written", "audit_log_written_again"]
    assert log.lines[1][1]["lost_lines"] == 90


def test_a_disk_with_room_again_gets_the_rest_of_the_torn_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, log = tmp_path / "audit.log", EventLog()
    make_room = full(monkeypatch, 2, ENOSPC)
    file = AuditFile(str(path), log)
    for line in ("first", "second", "third"):
        file.write(line)
    make_room()
    file.close(20)
    assert path.read_text() == "first\nsecond\nthird\n"
    assert file.lost_lines == 0


def test_a_torn_line_is_whole_in_the_next_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, log = tmp_path / "audit.log", EventLog()
    make_room = full(monkeypatch, 9, ENOSPC)
    file = AuditFile(str(path), log)
    file._writer._changed.acquire()  # both lines in one write
    file.write("first")
    file.write("second")
    file._writer._changed.release()
    while not log.lines:
        threading.Event().wait(0.001)
    path.rename(tmp_path / "audit.log.1")
    make_room()
    file.close(20)
    assert (tmp_path / "audit.log.1").read_text() == "first\nsec"
    assert path.read_text() == "second\n"


@pytest.mark.proves("unread-output")
def test_a_named_pipe_without_a_reader_holds_neither_the_start_nor_a_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "LINES_MAX", 10)
    path = tmp_path / "audit.pipe"
    os.mkfifo(path)
    log = EventLog()
    file = AuditFile(str(path), log)
    line = "x" * 65_535
    for _ in range(100):
        file.write(line)
    assert file.lost_lines > 80
    assert [event for event, _ in log.lines] == ["audit_log_not_written"]
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    read: list[bytes] = []
    while not file._writer.flush(0.001):
        with contextlib.suppress(BlockingIOError):
            read.append(os.read(reader, 1 << 20))
    file.close(20)
    with contextlib.suppress(BlockingIOError):
        while chunk := os.read(reader, 1 << 20):
            read.append(chunk)
    os.close(reader)
    kept = b"".join(read).decode().splitlines()
    told = [json.loads(each)["times"] for each in kept if each != line]
    assert sum(told) == file.lost_lines
    assert len(kept) - len(told) + sum(told) == 100


def test_required_lines_wait_beyond_the_room_and_requests_are_refused_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_file, "LINES_MAX", 10)
    make_room = full(monkeypatch, ENOSPC)
    log = EventLog()
    path = tmp_path / "audit.log"
    file = AuditFile(str(path), log, is_required=True)
    assert not file.is_behind()
    for number in range(100):
        file.write(f"line {number}")
    assert file.is_behind()
    make_room()
    assert file._writer.flush(20)
    assert not file.is_behind()
    file.close(20)
    assert path.read_text().splitlines() == [f"line {number}" for number in range(100)]
    assert file.lost_lines == 0
    assert [event for event, _ in log.lines] == ["audit_log_not_written", "audit_log_written_again"]


def test_a_write_that_hangs_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_file, "BEHIND_S", 0.0)
    path = tmp_path / "audit.pipe"
    os.mkfifo(path)
    file = AuditFile(str(path), EventLog(), is_required=True)
    file.write("x" * 200_000)  # more than the pipe takes
    while not file.is_behind():
        threading.Event().wait(0.001)
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    while not file._writer.flush(0.001):
        with contextlib.suppress(BlockingIOError):
            os.read(reader, 1 << 20)
    assert not file.is_behind()
    os.close(reader)
    file.close(20)


def test_a_file_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"audit\.log\.file = .*missing/audit\.log: it cannot be opened: No such file"
    ):
        open_audit(str(tmp_path / "missing" / "audit.log"), EventLog(), stdout())


def test_text_that_is_no_utf_8_is_written_nevertheless(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(str(path), EventLog())
    file.write("\ud800")
    file.close(20)
    assert path.read_text() == "\\ud800\n"


def test_standard_output_and_none() -> None:
    assert open_audit("", EventLog(), stdout()) is None
    printed = io.StringIO()
    output = LogOutput(printed, audit_room=Room(10, 1_000))
    audit = open_audit("-", EventLog(), output)
    assert isinstance(audit, AuditStream)
    audit.write("line")
    audit.close(20)
    assert output.close(20)
    assert printed.getvalue() == "line\n"
    assert (audit.lost_lines, audit.is_behind()) == (0, False)
