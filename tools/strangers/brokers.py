"""EDGE: starts the brokers of a suite: one semel, three semel with etcd, or Apache Kafka for comparison."""

from __future__ import annotations

import base64
import json
import sys
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from semel_protocol import __version__

from demo.three import COMPOSE_FILE, port, project_of
from tools.cluster.cluster import RunningProject
from tools.cluster.compose import words
from tools.cluster.loopback import Loopback
from tools.strangers import maven
from tools.strangers.ports import free_ports
from tools.strangers.process import ServerProcess
from tools.strangers.secured import Secured
from tools.strangers.suite import KAFKA_RELEASE, Against, Security

KAFKA_POM = Path(__file__).parent / "kafka" / "pom.xml"
KAFKA_LOGGING = Path(__file__).parent / "kafka" / "log4j2.properties"
BUG_MARKS = ('"internal_error"', "Traceback (most recent call last)")
"""Texts that a semel broker logs only if it has a bug."""


class SuiteBrokers(Protocol):
    """The brokers of a suite, by index from 0. `version`: their kind and version."""

    version: str

    @property
    def address(self) -> str:
        """The addresses host:port of all brokers, separated by commas."""

    async def open(self) -> None:
        """Start all brokers. Raises ServerError and errors of the cluster."""

    async def start(self, index: int) -> None:
        """Start a stopped broker; return when it is ready."""

    async def stop(self, index: int) -> None: ...

    async def kill(self, index: int) -> None: ...

    async def close(self) -> None: ...

    def variables(self) -> dict[str, str]:
        """Return environment variables for the suite's script."""

    def problems(self) -> list[str]:
        """Return unexpected events: brokers that ended by themselves, and log lines that show a bug."""


class OneServer:
    """A single broker process. `secured`: its security, None without."""

    version: str
    address: str
    server: ServerProcess
    secured: Secured | None

    async def open(self) -> None:
        if self.secured is not None:
            self.secured.make_files()
        await self._open()
        if self.secured is not None:
            await self.secured.make_users()

    async def _open(self) -> None:
        await self.server.start()

    def variables(self) -> dict[str, str]:
        return {} if self.secured is None else self.secured.variables()

    async def start(self, index: int) -> None:
        only(index, 1)
        await self.server.start()

    async def stop(self, index: int) -> None:
        only(index, 1)
        await self.server.stop()

    async def kill(self, index: int) -> None:
        only(index, 1)
        await self.server.kill()

    async def close(self) -> None:
        await self.server.stop()

    def problems(self) -> list[str]:
        ended = ["the broker ended by itself"] if self.server.died else []
        return ended + bug_lines([self.server.log])


class OneSemel(OneServer):
    """One semel broker, `semel serve`."""

    version = f"semel {__version__}"

    def __init__(self, folder: Path, settings: Mapping[str, str], security: Security | None) -> None:
        self._port = 0
        self.secured = None if security is None else Secured(security, folder / "security")
        if self.secured is not None:
            settings = {**self.secured.for_semel(), **settings}
        self._words = ["--data-dir", str(folder / "data"), "--log-format", "json", *set_words(settings)]
        self.server = ServerProcess(self._command, folder / "broker.log", self._is_ready)

    @property
    def address(self) -> str:  # type: ignore[override]
        return f"127.0.0.1:{self._port}"

    def _command(self) -> list[str]:
        where = ["--port", str(self._port)] if self.secured is None else []  # else `listeners` says where
        return [sys.executable, "-m", "semel_broker", *self._words, *where]

    def _is_ready(self, line: str) -> bool:
        if '"ready"' not in line:
            return False
        self._port = int(json.loads(line)["port"])
        return True


class ThreeSemel:
    """The brokers and etcd of docker-compose.yml, as processes on loopback."""

    version = f"semel {__version__}"

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        project = project_of(COMPOSE_FILE)
        self._names = [name for name in project.services if name.startswith("broker-")]
        for name in self._names:
            service = project.services[name]
            service.command = [*words(service.command), *set_words(settings)]
            service.restart = "no"
        self._logs = [folder / "logs" / f"{name}.log" for name in self._names]
        self._cluster = RunningProject(project, folder, Loopback(project))
        self._is_asked_to_end: dict[str, bool] = dict.fromkeys(self._names, False)
        self._ended: list[str] = []

    @property
    def address(self) -> str:
        return ",".join(f"{self._cluster.address(name)}:{port(self._cluster.project, name)}" for name in self._names)

    async def open(self) -> None:
        await self._cluster.open()
        await self._cluster.up()

    async def start(self, index: int) -> None:
        name = self._named(index)
        if self._cluster.services[name].down:
            await self._cluster.start(name)
        self._is_asked_to_end[name] = False
        await self._cluster.healthy(name)

    def variables(self) -> dict[str, str]:
        return {}

    async def stop(self, index: int) -> None:
        self._is_asked_to_end[self._named(index)] = True
        await self._cluster.stop(self._named(index))

    async def kill(self, index: int) -> None:
        self._is_asked_to_end[self._named(index)] = True
        await self._cluster.kill(self._named(index))

    async def close(self) -> None:
        self._ended = self._missing()
        await self._cluster.close()

    def _missing(self) -> list[str]:
        services = self._cluster.services
        return [n for n in self._names if n in services and services[n].down and not self._is_asked_to_end[n]]

    def problems(self) -> list[str]:
        return [f"{name} ended by itself" for name in self._ended] + bug_lines(self._logs)

    def _named(self, index: int) -> str:
        only(index, len(self._names))
        return self._names[index]


class OneKafka(OneServer):
    """Apache Kafka in KRaft mode, broker and controller in one process, from Maven's registry."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str],
        cache: Path,
        release: str,
        security: Security | None = None,
    ) -> None:
        self.version = f"Apache Kafka {release}"
        self.secured = None if security is None else Secured(security, folder / "security")
        self._release = release
        self._folder, self._settings, self._cache = folder, settings, cache
        self._ports = free_ports(2)
        self.server = ServerProcess(self._command, folder / "broker.log", lambda line: "Kafka Server started" in line)

    @property
    def address(self) -> str:  # type: ignore[override]
        return self.secured.address if self.secured is not None else f"127.0.0.1:{self._ports[0]}"

    async def _open(self) -> None:
        lib = maven.jars(KAFKA_POM, self._cache / f"kafka-{self._release}", {"kafka.version": self._release})
        logging = f"-Dlog4j2.configurationFile={KAFKA_LOGGING}"
        options = [logging, *(self.secured.java_options() if self.secured is not None else [])]
        self._java = ["java", "-Xmx768m", "-XX:+UseSerialGC", *options, "-cp", f"{lib}/*"]
        properties = self._folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._properties().items()))
        storage = ["kafka.tools.StorageTool", "format", "-t", cluster_id(), "-c", str(properties)]
        formatting = ServerProcess(
            lambda: [*self._java, *storage], self._folder / "format.log", lambda line: "Formatting" in line
        )
        await formatting.start()
        await formatting.ended()
        await super()._open()

    def _command(self) -> list[str]:
        return [*self._java, "kafka.Kafka", str(self._folder / "server.properties")]

    def _properties(self) -> dict[str, str]:
        client, controller = (f"127.0.0.1:{each}" for each in self._ports)
        node_id = self._settings.get("node.id", "1")
        security = {} if self.secured is None else self.secured.for_kafka()
        listeners = security.pop("listeners", f"PLAINTEXT://{client}")
        return {
            **security,
            "process.roles": "broker,controller",
            "node.id": node_id,
            "controller.quorum.voters": f"{node_id}@{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listeners},CONTROLLER://{controller}",
            "advertised.listeners": listeners,
            "log.dirs": str(self._folder / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "share.coordinator.state.topic.replication.factor": "1",
            "share.coordinator.state.topic.min.isr": "1",
            **self._settings,
        }

    def problems(self) -> list[str]:
        return ["the broker ended by itself"] if self.server.died else []


def brokers(
    against: Against,
    count: int,
    folder: Path,
    settings: Mapping[str, str],
    cache: Path,
    release: str = KAFKA_RELEASE,
    security: Security | None = None,
) -> SuiteBrokers:
    """Return new brokers with their data in `folder`; `cache` keeps Kafka's jars, `release` is Kafka's version.

    `security`: that of one broker; three have none. Raises ValueError for three of Kafka.
    """
    if against == "kafka":
        if count != 1:
            raise ValueError("Apache Kafka runs with one broker only")
        return OneKafka(folder, settings, cache, release, security)
    return OneSemel(folder, settings, security) if count == 1 else ThreeSemel(folder, settings)


def set_words(settings: Mapping[str, str]) -> list[str]:
    return [f"--set={key}={value}" for key, value in settings.items()]


def only(index: int, count: int) -> None:
    if not 0 <= index < count:
        raise ValueError(f"there is no broker {index}; there are {count}")


def bug_lines(logs: list[Path]) -> list[str]:
    """Return the first line of each log that shows a bug."""
    found = []
    for log in logs:
        if log.is_file():
            with log.open(errors="replace") as lines:
                found += [f"{log.name}: {line.strip()[:300]}" for line in lines if any(a in line for a in BUG_MARKS)][
                    :1
                ]
    return found


def cluster_id() -> str:
    """Return an id that does not start with a dash, which a command line would take as an option."""
    first, *others = uuid.uuid4().bytes
    return base64.urlsafe_b64encode(bytes([first & 0x7F, *others])).decode().rstrip("=")
