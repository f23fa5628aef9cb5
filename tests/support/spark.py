"""A standalone cluster of Spark for tests and figures: a master and workers of the pip package, as processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from pyspark_semel.standalone import MASTER, WORKER

START_S = 120.0


class SparkCluster:
    """`with SparkCluster(folder, ["127.0.0.1"]) as cluster: cluster.master`; a worker per host of `hosts`, free ports.

    Spark runs a second attempt of a task on another host only: 127/8 has as many as it takes. Logs are in `folder`.
    """

    def __init__(
        self,
        folder: Path,
        hosts: Sequence[str],
        *,
        cores: int = 1,
        memory: str = "1g",
        environ: Mapping[str, str] | None = None,
        bare: Mapping[str, str] | None = None,
    ) -> None:
        """environ: added to the environment of this process. bare: the whole environment of the cluster's processes,
        which are started with Spark's own script; it has JAVA_HOME and SPARK_HOME.
        """
        self.folder, self.hosts = folder, hosts
        self.master = ""
        self._size = (f"--cores={cores}", f"--memory={memory}")
        self._environ = {**os.environ, **(environ or {})} if bare is None else dict(bare)
        self._is_bare = bare is not None
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> SparkCluster:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            master = self._run("master", "master", "--port=0", "--web-port=0")
            (self.master,) = self._until(master, r"Starting Spark master at (spark://\S+)", 1)
            for number, host in enumerate(self.hosts):
                place = f"--dir={self.folder / f'worker-{number}'}"
                self._run(f"worker-{number}", "worker", f"--host={host}", place, *self._size, self.master)
            self._until(master, r"Registering worker", len(self.hosts))
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Send SIGKILL to all processes, executors included."""
        for process in self._processes:
            if process.poll() is None:
                for each in [*psutil.Process(process.pid).children(recursive=True), process]:
                    with suppress(psutil.NoSuchProcess):
                        each.kill()
                process.wait()
        self._processes.clear()

    def _run(self, name: str, *words: str) -> Path:
        log = self.folder / f"{name}.log"
        command = [sys.executable, "-m", "pyspark_semel.standalone", *words]
        if self._is_bare:
            command = _spark_class(self._environ["SPARK_HOME"], *words)
        with log.open("wb") as output:
            self._processes.append(
                subprocess.Popen(command, env=self._environ, stdout=output, stderr=subprocess.STDOUT)
            )
        return log

    def _until(self, log: Path, pattern: str, count: int) -> list[str]:
        """The matches in the log, once there are `count` of them. Raises RuntimeError with the log's end."""
        deadline = time.monotonic() + START_S
        while len(found := re.findall(pattern, log.read_text())) < count:
            ended = [each.args for each in self._processes if each.poll() is not None]
            if ended or time.monotonic() > deadline:
                raise RuntimeError(f"{ended or 'no start'}; {log}: {log.read_text()[-2000:]}")
            time.sleep(0.05)
        return found


def _spark_class(home: str, role: str, *words: str) -> list[str]:
    """The command of Spark's own script for the same words as those of `pyspark_semel.standalone`."""
    name = {"master": MASTER, "worker": WORKER}[role]
    names = {"--web-port": "--webui-port", "--dir": "--work-dir"}
    options = [part for word in words for part in word.split("=", 1)]
    options = [names.get(each, each) for each in options]
    if "--host" not in options:
        options = ["--host", "127.0.0.1", *options]
    return [f"{home}/bin/spark-class", name, *options]
