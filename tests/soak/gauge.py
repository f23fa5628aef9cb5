"""The resources of a process, minute by minute, and whether they level off."""

from __future__ import annotations

import json
import os
import socket
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import psutil

MIB = 1 << 20


class GaugeSample(msgspec.Struct, frozen=True):
    """Memory and disk in MiB. `client`: of the process with the clients."""

    memory: float
    files: int
    tasks: int
    disk: float
    client_memory: float
    client_files: int


class Tolerance(msgspec.Struct, frozen=True):
    """How far the mean of the last third may lie above that of the middle third: a share of it, and a fixed amount."""

    share: float
    more: float


TOLERANCES = {
    "memory": Tolerance(0.03, 1.5),
    "files": Tolerance(0.10, 10),
    "tasks": Tolerance(0.10, 10),
    "disk": Tolerance(0.10, 10),
    "client_memory": Tolerance(0.03, 1.5),
    "client_files": Tolerance(0.10, 10),
}


def judge(samples: Sequence[GaugeSample]) -> list[str]:
    """Return a sentence for each gauge that still grows. Needs six samples.

    A gauge grows if its mean in the last third of the samples is above the mean of the middle third by more than its
    tolerance.
    """
    third = len(samples) // 3
    assert third >= 2, "six samples at least: a third of one sample is no mean"
    found = []
    for name, tolerance in TOLERANCES.items():
        values = [float(getattr(sample, name)) for sample in samples]
        middle, last = statistics.fmean(values[-2 * third : -third]), statistics.fmean(values[-third:])
        most = middle * (1 + tolerance.share) + tolerance.more
        if last > most:
            found.append(f"{name} grows: {middle:.1f} in the middle third, {last:.1f} in the last; at most {most:.1f}")
    return found


def inspected(socket_path: Path) -> dict[str, Any]:
    """The report of `soak.inspected_broker` about itself."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(socket_path))
        data = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    found: dict[str, Any] = json.loads(data)
    return found


def disk_bytes(directory: Path) -> int:
    """The bytes that the files of a directory take. A file that is removed meanwhile counts as 0."""
    total = 0
    for folder, _, names in os.walk(directory):
        for name in names:
            try:
                total += (Path(folder) / name).stat().st_blocks * 512
            except FileNotFoundError:
                continue  # deleted between the listing and the look
    return total


def sample(pid: int, data_dir: Path, tasks: int) -> GaugeSample:
    """Read the gauges of the broker process, and of this process, which has the clients."""
    broker, client = psutil.Process(pid), psutil.Process()
    return GaugeSample(
        memory=broker.memory_info().rss / MIB,
        files=broker.num_fds(),
        tasks=tasks,
        disk=disk_bytes(data_dir) / MIB,
        client_memory=client.memory_info().rss / MIB,
        client_files=client.num_fds(),
    )
