"""EDGE: the state folder of a running project: its lock, its control socket, logs and volumes."""

from __future__ import annotations

import fcntl
import os
import shutil
from pathlib import Path
from typing import IO

from tools.cluster.compose import Mount

DEFAULT = ".cluster"


class RunningError(RuntimeError):
    """Another process runs a project with this state folder."""


class StateFolder:
    """`.cluster/`: `lock`, `control`, `supervisor.log`, `logs/NAME.log`, `volumes/NAME/`."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self._lock: IO[str] | None = None

    def log(self, service: str) -> Path:
        return self.path / "logs" / f"{service}.log"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def control(self) -> Path:
        return self.path / "control"

    @property
    def supervisor_log(self) -> Path:
        return self.path / "supervisor.log"

    def volume(self, mount: Mount, project_folder: Path) -> Path:
        """The directory of a volume: below this folder, or the source of a bind mount."""
        if mount.is_named:
            return self.path / "volumes" / mount.source
        return (project_folder / Path(mount.source).expanduser()).resolve()

    def prepare(self) -> None:
        """Create the folder, with a .gitignore that excludes it."""
        self.logs.mkdir(parents=True, exist_ok=True)
        (self.path / "volumes").mkdir(exist_ok=True)
        (self.path / ".gitignore").write_text("*\n")

    def take(self) -> None:
        """Lock the folder until `release` or the end of this process. Raises RunningError."""
        self.prepare()
        lock = (self.path / "lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.close()
            raise RunningError(
                f"{self.path} is in use by process {self.owner()}, which runs a project there: "
                "end it with `python -m tools.cluster down`, or use another folder with --state"
            ) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        self._lock = lock

    def release(self) -> None:
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def owner(self) -> str:
        """The id of the process that has locked the folder; "" if it is unknown."""
        try:
            return (self.path / "lock").read_text()
        except OSError:
            return ""

    def is_taken(self) -> bool:
        """Whether a process runs a project with this folder now."""
        if self._lock is not None:
            return True
        try:
            with (self.path / "lock").open() as lock:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        return False

    def wait_until_free(self) -> None:
        """Return when no process runs a project with this folder."""
        with (self.path / "lock").open() as lock:
            fcntl.flock(lock, fcntl.LOCK_SH)

    def remove_volumes(self) -> None:
        if (self.path / "volumes").exists():
            shutil.rmtree(self.path / "volumes")
