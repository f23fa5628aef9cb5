"""The secured cluster for programs that kill its brokers: clients connect to the brokers' own addresses."""

from __future__ import annotations

import re
from pathlib import Path

from tools.cluster import compose, secrets

FILE = Path(__file__).parents[2] / "deploy/docker-compose.secure.yml"
CLIENT = re.compile(r"(?<=advertised\.listeners=CLIENT://)[\d.]+:(\d+)")
"""The address that a broker advertises to clients, in its command."""


def project(folder: Path) -> compose.Project:
    """The project, with secrets in `folder`, which are made if they are missing. No port is published.

    Raises ComposeError, OSError.
    """
    given = {**secrets.make(folder), "TLS_FILES": str(folder.absolute()), "PEER_NAMES": ""}
    found = compose.load(FILE, given)
    for service in found.services.values():
        service.ports = []
    return found


def advertise(service: compose.Service, address: str) -> None:
    """Let a broker advertise an address that is valid for clients on this machine."""
    service.command = [CLIENT.sub(rf"{address}:\1", word) for word in compose.words(service.command)]


def client_port(service: compose.Service) -> int:
    """The port on which a broker listens for clients."""
    (found,) = CLIENT.findall(" ".join(compose.words(service.command)))
    return int(found)


def write_client_settings(folder: Path, addresses: list[str]) -> Path:
    """Write the settings of the first user, at these addresses; see `secrets`."""
    password = secrets.make(folder)["ADMIN_PASSWORD"]
    return secrets.write_client_settings(folder, password, addresses, addresses[0].partition(":")[0])
