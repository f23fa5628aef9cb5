"""A disk of a few MiB, seen only by processes in its namespace: a tmpfs in a user and mount namespace, without root.

It needs Linux with unprivileged user namespaces. `why_not()` returns what is missing.
"""

from __future__ import annotations

import errno
import shutil
import subprocess
from functools import cache
from pathlib import Path

BALLAST = "ballast"


@cache
def why_not() -> str | None:
    """None if this machine allows a small disk, otherwise the reason for a skip."""
    for tool in ("unshare", "nsenter", "mount"):
        if shutil.which(tool) is None:
            return f"{tool} (util-linux) is not installed"
    probe = [
        "unshare",
        "--user",
        "--map-root-user",
        "--mount",
        "mount",
        "-t",
        "tmpfs",
        "-o",
        "size=1m",
        "tmpfs",
        "/mnt",
    ]
    try:
        done = subprocess.run(probe, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no user namespaces here: {error}"
    return f"no user namespaces here: {done.stderr.strip()}" if done.returncode else None


class SmallDisk:
    """`prefix`: put before a command, it runs the command with the disk at `path`. `outside`: the same directory for
    this process.

    A child process keeps the namespace, so the disk outlives the processes that use it. It ends with this process, or
    with `close`.
    """

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        path.mkdir(parents=True, exist_ok=True)
        mount = f'mount -t tmpfs -o size={size_bytes} semel "$0" && echo mounted && exec cat'
        self._keeper = subprocess.Popen(
            ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._keeper.stdout is not None
        if self._keeper.stdout.readline() != "mounted\n":
            raise RuntimeError(f"the small disk could not be mounted: {why_not()}")
        target = str(self._keeper.pid)
        self.prefix = ("nsenter", "--target", target, "--user", "--mount", "--preserve-credentials")
        self.outside = Path(f"/proc/{target}/root{path}")

    def fill(self, leave_bytes: int = 0) -> int:
        """Fill the disk, except `leave_bytes` (in whole pages). Returns the number of written bytes."""
        written = 0
        with (self.outside / BALLAST).open("ab", buffering=0) as file:
            for block in (1 << 16, 1 << 12):
                try:
                    while shutil.disk_usage(self.outside).free - block >= leave_bytes:
                        written += file.write(bytes(block))
                except OSError as error:
                    if error.errno != errno.ENOSPC:
                        raise
        return written

    def free(self) -> None:
        """Free the space that `fill` has used."""
        (self.outside / BALLAST).unlink(missing_ok=True)

    def keep(self, target: Path) -> None:
        """Copy all files to `target`. `close` removes the disk."""
        shutil.copytree(self.outside, target, dirs_exist_ok=True)

    def close(self) -> None:
        self._keeper.kill()
        self._keeper.communicate()
