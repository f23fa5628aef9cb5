"""The file of the audit log: appended to, rotated, and no reason to stop."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from broker.wire import EventLog
from semel_broker import audit_file
from semel_broker.audit_file import AuditFile, open_audit
from semel_broker.config.settings import ConfigError


def test_lines_are_appended_to_a_file_that_others_cannot_read(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    for line in ("a", "b"):
        file = AuditFile(str(path), EventLog())
        file.write(line)
        file.close()
    assert path.read_text() == "a\nb\n"
    assert path.stat().st_mode & 0o777 & ~0o640 == 0


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_file_that_logrotate_has_moved_is_opened_again(tmp_path: Path, is_created_again: bool) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(str(path), EventLog())
    file.write("before")
    path.rename(tmp_path / "audit.log.1")
    if is_created_again:
        path.touch()
    file.write("after")
    file.close()
    assert (tmp_path / "audit.log.1").read_text() == "before\n"
    assert path.read_text() == "after\n"


def test_a_full_disk_costs_lines_and_has_one_error_in_the_log() -> None:
    log = EventLog()
    file = AuditFile("/dev/full", log)
    for _ in range(100):
        file.write("line")
    file.close()
    (line,) = log.lines
    assert line[0] == "audit_log_not_written"
    assert line[1]["error"] == os.strerror(28)  # ENOSPC


def test_a_disk_with_room_again_is_told_and_the_torn_line_stays_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, log = tmp_path / "audit.log", EventLog()
    file = AuditFile(str(path), log)
    real = os.write
    answers = [2, OSError(28, "No space left on device"), OSError(28, "No space left on device")]

    def write(descriptor: int, data: bytes) -> int:
        if not answers:
            return real(descriptor, data)
        answer = answers.pop(0)
        if isinstance(answer, OSError):
            raise answer
        return real(descriptor, data[:answer])

    monkeypatch.setattr(audit_file.os, "write", write)
    for line in ("first", "second", "third"):
        file.write(line)
    file.close()
    assert path.read_text() == "fi\nthird\n"
    assert [event for event, _ in log.lines] == ["audit_log_not_written", "audit_log_written_again"]
    assert log.lines[1][1]["lost_lines"] == 2


def test_a_file_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"audit\.log\.file = .*missing/audit\.log: it cannot be opened: No such file"
    ):
        open_audit(str(tmp_path / "missing" / "audit.log"), EventLog())


def test_text_that_is_no_utf_8_is_written_nevertheless(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(str(path), EventLog())
    file.write("\ud800")
    file.close()
    assert path.read_text() == "\\ud800\n"


def test_standard_output_and_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert open_audit("", EventLog()) is None
    stream = open_audit("-", EventLog())
    assert stream is not None
    stream.write("line")
    stream.close()
    assert capsys.readouterr().out == "line\n"
