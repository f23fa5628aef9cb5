"""EDGE: runs two Kafka Connect workers that read files exactly once; kills them and brokers, and counts the lines."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path

from tools.strangers import records, script
from tools.strangers.children import Child, run_with_kills
from tools.strangers.ports import free_ports

LINES = 3000
STEP = 40
FILES = 2
KILLS = 4
REST_TIMEOUT_S = 240


def worker(class_path: str, port: int) -> Child:
    settings = {
        "bootstrap.servers": script.bootstrap(),
        "group.id": "connect",
        "exactly.once.source.support": "enabled",
        "listeners": f"http://127.0.0.1:{port}",
        "rest.advertised.host.name": "127.0.0.1",
        "rest.advertised.port": str(port),
        "config.storage.topic": "connect-configs",
        "offset.storage.topic": "connect-offsets",
        "status.storage.topic": "connect-status",
        "config.storage.replication.factor": str(script.replicas()),
        "offset.storage.replication.factor": str(script.replicas()),
        "status.storage.replication.factor": str(script.replicas()),
        "offset.storage.partitions": "3",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "session.timeout.ms": "10000",
        "scheduled.rebalance.max.delay.ms": "1000",
        "offset.flush.interval.ms": "1000",
    }
    file = script.scratch() / f"worker-{port}.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    command = ["java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-cp", class_path]
    return Child(f"worker-{port}", [*command, "org.apache.kafka.connect.cli.ConnectDistributed", str(file)])


def create_connector(workers: list[Child], ports: list[int], number: int, file: Path) -> None:
    """Create a connector through the first worker that answers; a worker needs time after its start."""
    config = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "topic": f"lines-{number}",
        "file": str(file),
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
        "producer.override.transaction.timeout.ms": "20000",
    }
    deadline = time.monotonic() + REST_TIMEOUT_S
    while True:
        for port in ports:
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/connectors/file-{number}/config",
                json.dumps(config).encode(),
                {"Content-Type": "application/json"},
                method="PUT",
            )
            try:
                with urllib.request.urlopen(request, timeout=60):
                    return
            except (urllib.error.URLError, OSError) as error:
                said = error.read().decode() if isinstance(error, urllib.error.HTTPError) else str(error)
        assert time.monotonic() < deadline, f"no worker accepts the connector: {said}"
        assert all(each.status is None for each in workers), f"a worker ended: {workers[0].log_tail()}"
        time.sleep(1)  # until a worker is ready


class Growing:
    """Files that grow from time to time: the connector continues to read only a file that has grown."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self._lines = 0

    def grow(self) -> None:
        end = min(LINES, self._lines + STEP)
        for file in self._files:
            with file.open("a") as lines:
                lines.writelines(f"{number}\n" for number in range(self._lines, end))
        self._lines = end

    def grow_until_copied(self) -> bool:
        if self._lines < LINES:
            self.grow()
            return False
        return all(len(records.read(f"lines-{number}", 1)[0]) >= LINES for number in range(FILES))


def main() -> None:
    lib = script.jars(script.folder() / "pom.xml", "lib", kafka_version=script.pin("connect-runtime"))
    ports = free_ports(2)
    files = [script.scratch() / f"lines-{number}.txt" for number in range(FILES)]
    records.create(*(f"lines-{number}" for number in range(FILES)), partitions=1)
    with script.test("two workers read files, which grow; workers and brokers are killed: each line once, in order"):
        workers = [worker(f"{lib}/*", port) for port in ports]
        growing = Growing(files)
        try:
            growing.grow()
            for number, file in enumerate(files):
                create_connector(workers, ports, number, file)
        except BaseException:
            for each in workers:
                each.kill()
            raise
        run_with_kills(workers, growing.grow_until_copied, kills=KILLS, pause_s=10, timeout_s=600)
        for number in range(FILES):
            found = records.read(f"lines-{number}", 1)
            records.require_once(found[0], LINES)
            records.require_ascending(found)


script.run(main)
