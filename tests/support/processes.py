"""A real broker process for tests: started, killed and started again on one port and one data directory."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

END_GRACE_S = 5.0
NO_RESERVE = {"log.min.free.bytes": "0"}
"""No file of 16 MiB is kept back for a full disk: a run of the suite starts a thousand brokers."""


async def why_it_failed(process: asyncio.subprocess.Process) -> str:
    """The exit status and the stderr of a process without the expected output. A running process is killed.

    The text is for the message of the test: without it a failure that occurs once in a thousand runs cannot be
    explained.
    """
    status = "it ended with status"
    try:
        async with asyncio.timeout(END_GRACE_S):  # its stdout may close a moment before it ends
            await process.wait()
    except TimeoutError:
        process.kill()
        await process.wait()
        status = "it was running, and was killed: status"
    errors = b"(not a pipe)" if process.stderr is None else await process.stderr.read()
    return f"{status} {process.returncode}, stderr: {errors.decode(errors='replace') or '(empty)'}"


class BrokerProcess:
    """`semel serve` as a child. The port is chosen at the first start and kept over restarts, unless the setting
    `listeners` is given: then `ports` has those of the listeners, and `port` is the first of them.

    `prefix`: the words before the command, for a broker that lives in other namespaces.
    """

    prefix: tuple[str, ...] = ()
    module = "semel_broker"
    """The module that runs as `semel serve`."""

    def __init__(self, data_dir: Path, **settings: str) -> None:
        self.data_dir = data_dir
        self.settings = settings
        self.port = 0
        self.ports: dict[str, int] = {}
        self.log: list[str] = []
        self.is_read = threading.Event()
        """While it is not set, the test does not read the broker's output."""
        self.is_read.set()
        self._process: subprocess.Popen[str] | None = None
        self._is_ready = False
        self._reader: threading.Thread | None = None
        self._lock = threading.Lock()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the broker is not running"
        return self._process.pid

    def start(self, timeout_s: float = 20) -> BrokerProcess:
        with self._lock:
            if self._process is not None and self._process.poll() is None:
                return self  # killed again before its restart had begun: that restart was the one for both
            ready = threading.Event()
            self._is_ready = False
            arguments = ["--data-dir", str(self.data_dir), "--log-format", "json"]
            if "listeners" not in self.settings:
                arguments += ["--port", str(self.port)]
            for key, value in {**NO_RESERVE, **self.settings}.items():
                arguments += ["--set", f"{key}={value}"]
            self._process = subprocess.Popen(
                [*self.prefix, sys.executable, "-m", self.module, *arguments],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                env={**os.environ, "PYTHONUNBUFFERED": "1"},
            )
            self._reader = threading.Thread(target=self._read, args=(self._process, ready), daemon=True)
            self._reader.start()
            if not ready.wait(timeout_s) or not self._is_ready:
                self._process.kill()
                self._process.wait()
                self._process = None  # or the next start would take the dying one for a running one
                raise RuntimeError("the broker did not get ready:\n" + "\n".join(self.log[-30:]))
        return self

    def _read(self, process: subprocess.Popen[str], ready: threading.Event) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.is_read.wait()
            self.log.append(line.rstrip())
            if not ready.is_set() and line.startswith("{"):
                fields = json.loads(line)
                if fields.get("event") == "ready":
                    self.port = int(fields["port"])
                    self.ports = fields.get("listeners", {"PLAINTEXT": self.port})
                    self._is_ready = True
                    ready.set()
        ready.set()

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def ended(self, timeout_s: float = 30) -> int:
        """Wait until the process has ended by itself. Returns the exit status."""
        with self._lock:
            assert self._process is not None, "the broker was not started"
            status = self._process.wait(timeout_s)
            self._process = None
            if self._reader is not None:
                self._reader.join(5)
            return status

    def kill(self) -> None:
        """Send SIGKILL: data that has not reached the kernel is lost."""
        self._end(signal.SIGKILL)

    def stop(self, timeout_s: float = 30) -> int:
        """Send SIGTERM. Returns the exit status."""
        return self._end(signal.SIGTERM, timeout_s)

    def kill_and_restart(self, down_s: float = 0.3) -> None:
        """Send SIGKILL now. A thread starts the broker again after `down_s`."""
        self.kill()

        def later() -> None:
            time.sleep(down_s)  # how long the broker stays down, not a wait for something
            self.start()

        threading.Thread(target=later, daemon=True).start()

    def _end(self, number: signal.Signals, timeout_s: float = 30) -> int:
        with self._lock:
            process = self._process
            if process is None:
                return 0
            process.send_signal(number)
            try:
                status = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                last = "\n".join(self.log[-30:])
                raise RuntimeError(f"the broker ignored {number.name} for {timeout_s} s:\n{last}") from None
            self._process = None
            if self._reader is not None:
                self._reader.join(5)
            return status
