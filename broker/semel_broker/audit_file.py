"""EDGE: the file of the audit log: appended to, opened again when it has been moved, and no reason to stop.

A full disk costs lines of the audit, and does not stop the broker. The log has one error when that begins, and the
number of lost lines when it ends.
"""

from __future__ import annotations

import os
import sys
from typing import Final

from semel_broker.config.settings import ConfigError
from semel_broker.world import Logger

MODE: Final = 0o640
STANDARD_OUTPUT: Final = "-"


class AuditFile:
    """Lines in a file. Its user may read it, and its group; a file that exists keeps its mode."""

    def __init__(self, path: str, log: Logger) -> None:
        """Raises ConfigError if it cannot be opened."""
        self._path, self._log = path, log
        self._lost = 0
        self.lost_lines = 0
        """Since the start."""
        self._is_torn = False  # the last line is incomplete
        try:
            self._descriptor = self._open()
        except OSError as error:
            raise ConfigError(f"audit.log.file = {path}: it cannot be opened: {error.strerror}") from None
        self._identity = _identity(os.fstat(self._descriptor))

    def write(self, line: str) -> None:
        """Append a line. If that fails, it is lost."""
        try:
            self._follow_rotation()
            start = "\n" if self._is_torn else ""
            data = f"{start}{line}\n".encode(errors="backslashreplace")
            while data:
                data = data[os.write(self._descriptor, data) :]
                self._is_torn = bool(data)
        except OSError as error:
            if not self._lost:
                self._log.error(
                    "audit_log_not_written",
                    file=self._path,
                    error=error.strerror,
                    do="make room on its disk, or let the broker's user write there; until then audit lines are lost",
                )
            self._lost += 1
            self.lost_lines += 1
            return
        if self._lost:
            self._log.warning("audit_log_written_again", file=self._path, lost_lines=self._lost)
            self._lost = 0

    def close(self) -> None:
        os.close(self._descriptor)

    def _open(self) -> int:
        return os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, MODE)

    def _follow_rotation(self) -> None:
        """Open the file again if the path is not that of the open one any more. Raises OSError."""
        try:
            if _identity(os.stat(self._path)) == self._identity:
                return
        except FileNotFoundError:
            pass
        fresh = self._open()
        os.close(self._descriptor)
        self._descriptor, self._identity, self._is_torn = fresh, _identity(os.fstat(fresh)), False


class AuditStream:
    """Lines on standard output."""

    lost_lines = 0

    def write(self, line: str) -> None:
        try:
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
        except (OSError, ValueError):  # its reader is gone, as for the log
            pass

    def close(self) -> None:
        """Standard output stays open."""


def open_audit(path: str, log: Logger) -> AuditFile | AuditStream | None:
    """The audit log of `audit.log.file`; None: there is none. Raises ConfigError."""
    if not path:
        return None
    return AuditStream() if path == STANDARD_OUTPUT else AuditFile(path, log)


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
