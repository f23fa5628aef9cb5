"""EDGE: reads and checks a compose file. A key that processes cannot honour is an error, except CONTAINER_ONLY."""

from __future__ import annotations

import ipaddress
import re
import shlex
import signal
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import yaml

from tools.cluster.interpolation import InterpolationError, dotenv, interpolate

Condition = Literal["service_started", "service_healthy", "service_completed_successfully"]
Words = str | list[str]
ServiceName = Annotated[str, msgspec.Meta(pattern=r"^[a-zA-Z0-9][a-zA-Z0-9_-]{0,40}$")]

CONTAINER_ONLY = (
    "build",
    "cap_drop",
    "cpus",
    "init",
    "logging",
    "mem_limit",
    "pull_policy",
    "read_only",
    "security_opt",
    "tmpfs",
    "user",
)
"""Keys that concern a container and not its process. They are ignored, and `up` says so."""

DURATION = re.compile(r"(\d+(?:\.\d+)?)(us|ms|s|m|h)")
UNIT_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
PORT = re.compile(r"(?:(?P<host>[\d.]+):)?(?P<published>\d+):(?P<target>\d+)(?:/tcp)?")
VOLUME = re.compile(r"(?P<source>[^:]+):(?P<target>/[^:]+)(?::(?P<mode>rw|ro))?")


class ComposeError(ValueError):
    """The compose file cannot be used. The message names the place, the reason and the remedy."""


class _Part(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A mapping of the file."""


class Build(_Part):
    """`build`: how Docker builds the image. Only the Dockerfile is read here, for ENTRYPOINT and CMD."""

    context: str = "."
    dockerfile: str = "Dockerfile"
    target: str | None = None
    args: dict[str, str] | list[str] = {}


class Dependency(_Part):
    """`depends_on`: the condition that another service must meet before this one starts."""

    condition: Condition = "service_started"


class HealthCheck(_Part):
    """`healthcheck`, with Docker's defaults. Durations are in Compose's notation (1m30s)."""

    test: Words = []
    interval: str = "30s"
    timeout: str = "30s"
    retries: int = 3
    start_period: str = "0s"
    start_interval: str = "5s"
    disable: bool = False

    @property
    def command(self) -> list[str]:
        """The command with its arguments; empty: there is no check."""
        if self.disable or not self.test or self.test == ["NONE"]:
            return []
        if isinstance(self.test, str):
            return ["/bin/sh", "-c", self.test]
        kind, *words = self.test
        if kind == "CMD":
            return words
        if kind == "CMD-SHELL" and len(words) == 1:
            return ["/bin/sh", "-c", words[0]]
        raise ComposeError(
            f"healthcheck.test {self.test}: must be a list that begins with CMD, CMD-SHELL or NONE, or a string"
        )


class Attachment(_Part):
    """A network of a service: its fixed address and its further names there."""

    ipv4_address: str | None = None
    aliases: list[str] = []


class Logging(_Part):
    """What keeps the output of a container."""

    driver: str = "json-file"
    options: dict[str, str] = {}


class Service(_Part):
    """One service of the file."""

    image: str = ""
    build: str | Build | None = None
    entrypoint: Words | None = None
    command: Words | None = None
    environment: dict[str, str | int | float | None] | list[str] = {}
    ports: list[str] = []
    volumes: list[str] = []
    depends_on: list[str] | dict[str, Dependency] = {}
    healthcheck: HealthCheck | None = None
    profiles: list[str] = []
    restart: Annotated[str, msgspec.Meta(pattern=r"^(no|always|unless-stopped|on-failure(:\d+)?)$")] = "no"
    networks: list[str] | dict[str, Attachment | None] = []
    network_mode: Literal["bridge", "host"] = "bridge"
    hostname: str | None = None
    stop_signal: str = "SIGTERM"
    stop_grace_period: str = "10s"
    working_dir: str | None = None
    # CONTAINER_ONLY: read, so that `up` can say that they have no effect.
    cap_drop: list[str] = []
    cpus: float | str | None = None
    init: bool = False
    logging: Logging | None = None
    mem_limit: Annotated[str, msgspec.Meta(pattern=r"^\d+[bkmg]b?$")] | None = None
    pull_policy: Literal["always", "never", "missing", "build"] | None = None
    read_only: bool = False
    security_opt: list[str] = []
    tmpfs: Words = []
    user: str | None = None

    @property
    def dependencies(self) -> dict[str, Dependency]:
        if isinstance(self.depends_on, dict):
            return self.depends_on
        return {name: Dependency() for name in self.depends_on}

    @property
    def variables(self) -> dict[str, str]:
        """The environment. A name without a value is left out: a container does not inherit the caller's variables."""
        if isinstance(self.environment, list):
            pairs = [each.partition("=") for each in self.environment]
            return {name: value for name, equals, value in pairs if equals}
        return {name: str(value) for name, value in self.environment.items() if value is not None}

    @property
    def attachments(self) -> list[Attachment]:
        if isinstance(self.networks, dict):
            return [each or Attachment() for each in self.networks.values()]
        return [Attachment() for _ in self.networks]

    @property
    def names(self) -> list[str]:
        """Further host names of the service for other services."""
        return [*([self.hostname] if self.hostname else []), *(a for each in self.attachments for a in each.aliases)]

    @property
    def fixed_address(self) -> str | None:
        return next((each.ipv4_address for each in self.attachments if each.ipv4_address), None)

    @property
    def container_only(self) -> list[str]:
        """The CONTAINER_ONLY keys that the file sets."""
        return [key for key in CONTAINER_ONLY if getattr(self, key)]


class Subnet(_Part):
    subnet: str = ""
    gateway: str | None = None


class Addresses(_Part):
    driver: str = "default"
    config: list[Subnet] = []


class Network(_Part):
    driver: str = "bridge"
    ipam: Addresses | None = None


class Volume(_Part):
    name: str | None = None


class Project(_Part):
    """The whole file. `folder`: relative paths begin there."""

    services: dict[ServiceName, Service]
    name: str = ""
    volumes: dict[str, Volume | None] = {}
    networks: dict[str, Network | None] = {}
    folder: str = "."

    def enabled(self, profiles: list[str] | None = None) -> list[str]:
        """The names of the services that `up` starts: those without a profile, or with one of `profiles`."""
        asked = profiles or []
        return [
            name for name, each in self.services.items() if not each.profiles or any(p in asked for p in each.profiles)
        ]


class Port(msgspec.Struct, frozen=True):
    """A published port: a connection to `host:published` of this machine reaches port `target` of the service."""

    host: str
    published: int
    target: int


class Mount(msgspec.Struct, frozen=True):
    source: str
    target: str
    is_named: bool


def seconds(text: str) -> float:
    """A duration in Compose's notation: 90s, 1m30s, 500ms. Raises ComposeError."""
    parts = DURATION.findall(text)
    if "".join(number + unit for number, unit in parts) != text or not parts:
        raise ComposeError(f"{text!r} is not a duration; write 30s, 1m30s or 500ms")
    return sum(float(number) * UNIT_S[unit] for number, unit in parts)


def words(given: Words | None) -> list[str]:
    """A command as a list of arguments. A string is split as a shell splits it."""
    return shlex.split(given) if isinstance(given, str) else list(given or [])


def ports(service: Service) -> list[Port]:
    found = []
    for text in service.ports:
        match = PORT.fullmatch(text)
        if match is None:
            raise ComposeError(
                f"port {text!r} has an unsupported form; write [ADDRESS:]PUBLISHED:TARGET, one port in each entry"
            )
        found.append(Port(match["host"] or "0.0.0.0", int(match["published"]), int(match["target"])))
    return found


def mounts(service: Service) -> list[Mount]:
    found = []
    for text in service.volumes:
        match = VOLUME.fullmatch(text)
        if match is None:
            raise ComposeError(f"volume {text!r} has an unsupported form; write SOURCE:/path[:ro]")
        found.append(Mount(match["source"], match["target"].rstrip("/"), match["source"][0] not in "./~"))
    return found


def load(path: Path, environment: Mapping[str, str]) -> Project:
    """Read and check a compose file. `environment` overrides the `.env` beside it. Raises ComposeError, OSError."""
    env_file = path.parent / ".env"
    try:
        beside = dotenv(env_file.read_text()) if env_file.is_file() else {}
        return parse(path.read_text(), {**beside, **environment}, str(path.parent.resolve()))
    except (ComposeError, InterpolationError) as error:
        raise ComposeError(f"{path}: {error}") from None


def parse(text: str, environment: Mapping[str, str], folder: str = ".") -> Project:
    """The project of a compose file's text. Raises ComposeError."""
    try:
        raw = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ComposeError(f"the file is not valid YAML: {error}") from None
    if not isinstance(raw, dict):
        raise ComposeError("the file must hold a mapping with the key `services`")
    known: dict[str, Any] = {key: value for key, value in raw.items() if not str(key).startswith("x-")}
    try:
        filled = interpolate(known, environment)
        project = msgspec.convert({**filled, "folder": folder}, Project, strict=False)
    except msgspec.ValidationError as error:
        raise ComposeError(f"{error}") from None
    except InterpolationError as error:
        raise ComposeError(str(error)) from None
    for problem in _problems(project):
        raise ComposeError(problem)
    return project


def _problems(project: Project) -> Iterator[str]:
    for name, service in project.services.items():
        for each in _problems_of(service, project):
            yield f"services.{name}: {each}"
        _read_values(service)
    order(project, list(project.services))


def _problems_of(service: Service, project: Project) -> Iterator[str]:
    if not service.image:
        yield "it has no image; add one, also with build: its name says which program runs here"
    if len(service.attachments) > 1:
        yield "it has more than one network; name one, because all services share one network here"
    if service.network_mode == "host" and (service.networks or service.ports):
        yield "with network_mode: host it can have neither networks nor ports; remove them"
    for network in service.networks:
        if network not in project.networks and network != "default":
            yield f"network {network!r} is not declared; add it to the top-level networks"
    for mount in mounts(service):
        if mount.is_named and mount.source not in project.volumes:
            yield f"volume {mount.source!r} is not declared; add it to the top-level volumes"
    for each in service.dependencies:
        if each not in project.services:
            yield f"it depends on {each!r}, which is not a service of the file"
        elif service.dependencies[each].condition == "service_healthy" and not _has_check(project.services[each]):
            yield f"it waits until {each!r} is healthy, but {each!r} has no healthcheck; add one"
    if service.fixed_address is not None and not _is_ipv4(service.fixed_address):
        yield f"ipv4_address {service.fixed_address!r} is not an IPv4 address"
    if service.stop_signal not in signal.Signals.__members__:
        yield f"stop_signal {service.stop_signal!r} is not a signal; write a name such as SIGTERM"


def _read_values(service: Service) -> None:
    """Parse ports, durations and the health check, to find errors in them. Raises ComposeError."""
    ports(service)
    seconds(service.stop_grace_period)
    if service.healthcheck is not None:
        check = service.healthcheck
        _ = check.command
        for text in (check.interval, check.timeout, check.start_period, check.start_interval):
            seconds(text)


def _has_check(service: Service) -> bool:
    return service.healthcheck is not None and bool(service.healthcheck.command)


def _is_ipv4(text: str) -> bool:
    try:
        ipaddress.IPv4Address(text)
    except ValueError:
        return False
    return True


def order(project: Project, names: list[str]) -> list[str]:
    """These services and all their dependencies, each after its dependencies, otherwise in the order of the file.

    Raises ComposeError for a cycle.
    """
    found: list[str] = []

    def visit(name: str, path: list[str]) -> None:
        if name in path:
            raise ComposeError(
                f"services depend on each other in a cycle: {' -> '.join([*path, name])}; remove one depends_on"
            )
        for each in project.services[name].dependencies:
            visit(each, [*path, name])
        if name not in found:
            found.append(name)

    for name in project.services:
        if name in names:
            visit(name, [])
    return found
