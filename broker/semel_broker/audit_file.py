"""EDGE: the output of the audit log: a file or standard output, written by a thread, and no reason to stop.

A full or hanging disk does not stop the broker. The lines wait then. If there is no room for more, they are lost and
counted, or (`audit.log.required`) the broker refuses the requests that must have a line. The log has one error when
that begins, and the number of lost lines when it ends. The audit log has that number in the place of the lost lines.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Mapping
from typing import Final

from semel_broker.config.settings import ConfigError
from semel_broker.logging import AUDIT, LogOutput, iso
from semel_broker.output.line_queue import Lost, Room
from semel_broker.output.line_writer import LineWriter
from semel_broker.world import Logger

MODE: Final = 0o640
STANDARD_OUTPUT: Final = "-"
LINES_MAX, BYTES_MAX = 20_000, 8 << 20
BEHIND_S: Final = 2.0
"""A write that takes longer means that lines may wait long."""


def audit_room(*, is_required: bool) -> Room:
    """The room of waiting lines. Where they are required, those of admitted requests wait also beyond the bounds."""
    return Room(LINES_MAX, BYTES_MAX, is_hard=not is_required)


def lost_line(lines: int, since: str) -> str:
    """The line of the audit log in the place of lost ones. `since`: when the first one came, ISO 8601."""
    return f'{{"time":"{since}","decision":"lost","times":{lines},"since":"{since}"}}'


class FileSink:
    """A file that is appended to, and opened again when it has been moved. Its user may read it, and its group."""

    def __init__(self, path: str) -> None:
        """Raise OSError if it cannot be opened."""
        self._path = path
        self._descriptor = self._open()
        self._identity = _identity(os.fstat(self._descriptor))

    def write(self, data: bytes, at: int) -> int:
        """See `Sink`. In a new file, the line begins again of which the earlier file has the first bytes."""
        if self._follow_rotation():
            return data.rfind(b"\n", 0, at) + 1
        return at + os.write(self._descriptor, memoryview(data)[at:])

    def close(self) -> None:
        os.close(self._descriptor)

    def _open(self) -> int:
        # A named pipe without a reader would hold the opening; opened for both, it takes lines until it is full.
        access = os.O_RDWR if _is_pipe(self._path) else os.O_WRONLY
        return os.open(self._path, access | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)

    def _follow_rotation(self) -> bool:
        """Open the file again if the path is not that of the open one any more. Raises OSError."""
        try:
            if _identity(os.stat(self._path)) == self._identity:
                return False
        except FileNotFoundError:
            pass
        fresh = self._open()
        os.close(self._descriptor)
        self._descriptor, self._identity = fresh, _identity(os.fstat(fresh))
        return True


class AuditFileOutage:
    """The events about an audit log that is not written: one when it begins, one when it ends.

    The event loop and the thread of the writer call it.
    """

    def __init__(self, path: str, log: Logger) -> None:
        self._path, self._log = path, log
        self._lock = threading.Lock()
        self._is_told = False

    def begin(self, error: str | None) -> None:
        """Lines wait or are lost. `error`: of the operating system."""
        with self._lock:
            if self._is_told:
                return
            self._is_told = True
        self._log.error(
            "audit_log_not_written",
            file=self._path,
            error=error or "its output takes no lines",
            do="make room on its disk, repair it, read its pipe, or let the user of the broker write there",
        )

    def end(self, lost: Mapping[str, int]) -> None:
        """All lines are written. `lost`: those that were lost meanwhile, by kind."""
        with self._lock:
            if not self._is_told:
                return
            self._is_told, lines = False, lost.get(AUDIT, 0)
        self._log.warning("audit_log_written_again", file=self._path, lost_lines=lines)


class AuditFile:
    """The audit log in a file. `is_required`: see `audit.log.required`."""

    def __init__(self, path: str, log: Logger, *, is_required: bool = False) -> None:
        """Raise ConfigError if the file cannot be opened."""
        self._is_required = is_required
        self._trouble = AuditFileOutage(path, log)
        try:
            self._sink = FileSink(path)
        except OSError as error:
            what_to_do = "make it writable for this user, or give another file"
            raise ConfigError(f"audit.log.file = {path}: it cannot be opened: {error.strerror}; {what_to_do}") from None
        self._writer = LineWriter(
            self._sink,
            {AUDIT: audit_room(is_required=is_required)},
            _describe,
            name="semel-audit",
            gone=(),
            on_failed=lambda error: self._trouble.begin(error.strerror),
            on_drained=self._trouble.end,
        )

    @property
    def lost_lines(self) -> int:
        """Since the start."""
        return self._writer.lost_lines(AUDIT)

    def write(self, line: str) -> None:
        """Queue a line. If there is no room, it is lost."""
        if not self._writer.put(AUDIT, f"{line}\n".encode(errors="backslashreplace")):
            self._trouble.begin(None)

    def is_behind(self) -> bool:
        """Whether requests that must have a line are refused now."""
        if not self._is_required or not self._writer.is_behind(AUDIT, BEHIND_S):
            return False
        self._trouble.begin(None)
        return True

    def close(self, wait_s: float) -> None:
        """Write the lines that wait, for at most `wait_s` seconds."""
        if self._writer.close(wait_s):
            self._sink.close()
        else:
            self._trouble.begin(None)


class AuditStream:
    """The audit log on standard output, between the lines of the log."""

    def __init__(self, output: LogOutput, *, is_required: bool = False) -> None:
        self._output, self._is_required = output, is_required
        output.audit_lost = lost_line

    @property
    def lost_lines(self) -> int:
        """Since the start."""
        return self._output.lost_audit_lines

    def write(self, line: str) -> None:
        """Queue a line. If there is no room, it is lost."""
        self._output.put(AUDIT, line)

    def is_behind(self) -> bool:
        """Whether requests that must have a line are refused now."""
        return self._is_required and self._output.is_behind(BEHIND_S)

    def close(self, wait_s: float) -> None:
        """The log closes standard output."""


def open_audit(
    path: str, log: Logger, output: LogOutput, *, is_required: bool = False
) -> AuditFile | AuditStream | None:
    """The audit log of `audit.log.file`; None: there is none. `output`: standard output. Raises ConfigError."""
    if not path:
        return None
    if path == STANDARD_OUTPUT:
        return AuditStream(output, is_required=is_required)
    return AuditFile(path, log, is_required=is_required)


def _describe(lost: Lost) -> bytes:
    return f"{lost_line(lost.lines[AUDIT], iso(lost.since_ms))}\n".encode()


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except FileNotFoundError:
        return False
