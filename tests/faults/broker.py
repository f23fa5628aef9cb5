"""A broker process for faults: it can also be paused, end by itself, and have its data on a small disk."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from pathlib import Path

from support.processes import BrokerProcess

from faults.small_disk import SmallDisk

DEATH_POLL_S = 0.02


class StillAlive(Exception):  # noqa: N818 (it is an outcome of a scenario, not a bug)
    """The process should have ended by itself and still runs."""


class ProxiedBroker(BrokerProcess):
    """A broker behind a proxy. `advertised_port`: the proxy's. Methods that wait for the process do so in a thread."""

    def __init__(self, data_dir: Path, settings: dict[str, str], advertised_port: int, disk: SmallDisk | None) -> None:
        super().__init__(data_dir, **settings, **{"advertised.port": str(advertised_port)})
        self.disk = disk
        if disk is not None:
            self.prefix = disk.prefix
        self.is_paused = False

    @property
    def files(self) -> Path:
        """The data directory as this process sees it; the broker's mount namespace may show another path."""
        return self.data_dir if self.disk is None else self.disk.outside

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def up(self) -> None:
        """Start the broker, for the first time or again. Returns when it is ready."""
        await asyncio.to_thread(self.start, 30)

    async def down(self, number: signal.Signals) -> int:
        """Send SIGKILL or SIGTERM, and wait for the end. Returns the exit status."""
        if self.is_paused and number is not signal.SIGKILL:
            self.resume()
        self.is_paused = False
        return await asyncio.to_thread(self._end, number)

    async def died(self, timeout_s: float = 20) -> int:
        """Wait until the process ends by itself. Returns its exit status. Raises StillAlive."""
        process = self._process
        assert process is not None, "the broker is not running"
        deadline = time.monotonic() + timeout_s
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise StillAlive(f"it still runs after {timeout_s:g} s")
            await asyncio.sleep(DEATH_POLL_S)
        return await asyncio.to_thread(self._end, signal.SIGKILL)

    def pause(self) -> None:
        """Send SIGSTOP. The kernel still accepts connections and acknowledges packets; the broker does not answer."""
        self.is_paused = True
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        self.is_paused = False
        os.kill(self.pid, signal.SIGCONT)

    def keep(self, target: Path) -> None:
        """Copy data and log to `target`, to examine them later."""
        target.mkdir(parents=True, exist_ok=True)
        (target / "broker.log").write_text("\n".join(self.log) + "\n")
        if self.disk is not None:
            self.disk.keep(target / "data")
        elif self.data_dir.exists() and self.data_dir != target / "data":
            shutil.copytree(self.data_dir, target / "data", dirs_exist_ok=True)
