"""Runs `semel pipeline run` as a child process: restarts it when it ends, and kills it and its Python workers."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import psutil

from demo.brokers import Print
from demo.processes import STOP_S

FILE = Path(__file__).parents[2] / "pipeline" / "flights.toml"
QUERIES = ("enriched", "delays")
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""With these options a start takes two thirds of the CPU time. A driver that runs longer than a minute is faster
without.
"""
ENDS_MAX = 5
"""The number of unplanned exits that are accepted, for example after a long broker outage."""
STOP_BATCH_S = 60


class Driver:
    """The process of `semel pipeline run`. `positions`: the flights that each query has read, from its last report.

    `working`: each query has finished a batch since the start of the process.
    """

    def __init__(self, bootstrap: str, directory: Path, say: Print) -> None:
        self.positions = dict.fromkeys(QUERIES, 0)
        self.batches = 0
        self.late_rows = 0
        self.kills = 0
        self.worker_kills = 0
        self.ends = 0
        self.working = asyncio.Event()
        self.failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._say = say
        self._log = directory / "spark.log"
        self._environment = {
            **os.environ,
            "BOOTSTRAP": bootstrap,
            "CHECKPOINTS": str(directory / "checkpoints"),
            "JDK_JAVA_OPTIONS": f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {JAVA_OPTIONS}".strip(),
        }
        self._process: asyncio.subprocess.Process | None = None
        self._reader: asyncio.Task[None] | None = None
        self._seen: set[str] = set()
        self._descendants_seen: list[psutil.Process] = []
        """All descendants that were seen, to be ended at the end."""
        self._is_ending = False
        self._changing = asyncio.Lock()

    async def start(self) -> None:
        async with self._changing:
            await self._begin()

    async def _begin(self) -> None:
        self.working.clear()
        self._seen.clear()
        command = [sys.executable, "-m", "pyspark_semel.pipeline", "run", str(FILE), "--progress", "json"]
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                *command, stdout=asyncio.subprocess.PIPE, stderr=log, env=self._environment, start_new_session=True
            )
        self._reader = asyncio.create_task(self._read(self._process))

    async def _read(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdout is not None
        async for line in process.stdout:
            if line.startswith(b"{"):
                self._take(json.loads(line))
        status = await process.wait()
        if self._process is process and not self._is_ending:
            await self._start_again(process, status)

    def _take(self, report: dict[str, Any]) -> None:
        if "query" not in report:
            return
        name = report["query"]
        self.positions[name] = max(self.positions[name], report["position"])
        self.batches += 1
        self.late_rows += report["late_rows"]
        self._seen.add(name)
        if len(self._seen) == len(QUERIES):
            self.working.set()

    async def _start_again(self, process: asyncio.subprocess.Process, status: int) -> None:
        async with self._changing:
            if self._process is not process or self._is_ending:
                return  # the demo killed it meanwhile
            self.ends += 1
            self._say(f"[yellow]the driver ended by itself with status {status}[/] and is restarted ({self._log})")
            if self.ends <= ENDS_MAX:
                await self._begin()
            elif not self.failed.done():
                self.failed.set_exception(
                    RuntimeError(f"the driver ended {self.ends} times by itself; see {self._log}")
                )

    def _descendants(self) -> list[psutil.Process]:
        """Return all descendants of the driver's process, and remember them."""
        try:
            found = psutil.Process(self._process.pid).children(recursive=True) if self._process is not None else []
        except psutil.NoSuchProcess:
            return []
        self._descendants_seen += [each for each in found if each not in self._descendants_seen]
        return found

    async def kill(self) -> None:
        """Kill the driver with SIGKILL: its Java, and the Python process that started it. The Python workers end by
        themselves.
        """
        async with self._changing:
            assert self._process is not None
            self.kills += 1
            below, process = self._descendants(), self._process
            self._process = None
            for each in below:
                if _name(each).startswith("java"):
                    _kill(each)
            if process.returncode is None:
                process.kill()
            await process.wait()
            await self._begin()

    def kill_worker(self, rng: random.Random) -> str:
        """Kill one Python worker with SIGKILL. Returns its description, "" if there is none."""
        workers = [each for each in self._descendants() if _name(each).startswith("python")]
        draw = rng.random()
        if not workers:
            return ""
        chosen = sorted(workers, key=lambda each: each.pid)[int(draw * len(workers))]
        what = next((word for word in _command(chosen) if word.startswith("pyspark")), "python")
        _kill(chosen)
        self.worker_kills += 1
        return f"a Python worker of Spark (pid {chosen.pid}, {what})"

    async def stop(self) -> int:
        """Stop the driver with SIGTERM after its current batches; remaining processes are killed. Returns the exit
        status.
        """
        self._is_ending = True
        if self._process is None:
            return 0
        self._descendants()
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), STOP_BATCH_S)
        except TimeoutError:
            self._process.kill()
        status = await self._process.wait()
        if self._reader is not None:
            await self._reader
        alive = [each for each in self._descendants_seen if _is_alive(each)]
        _, left = await asyncio.to_thread(psutil.wait_procs, alive, STOP_S)
        for each in filter(_is_alive, left):
            _kill(each)
        return status


def _is_alive(process: psutil.Process) -> bool:
    """Return False for a zombie process, which has already ended."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _name(process: psutil.Process) -> str:
    try:
        return str(process.name())
    except psutil.NoSuchProcess:
        return ""


def _command(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.NoSuchProcess:
        return []


def _kill(process: psutil.Process) -> None:
    try:
        process.kill()
    except psutil.NoSuchProcess:
        pass  # it ended meanwhile
