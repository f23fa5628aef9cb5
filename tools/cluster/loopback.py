"""EDGE: services on loopback: each has its own address in 127.77/16, so that all keep their ports.

Names and 0.0.0.0 are replaced in commands and environments, because no resolver knows the names. Linux accepts
connections on all of 127/8.
"""

from __future__ import annotations

import socket
from contextlib import closing

from tools.cluster.compose import Project
from tools.cluster.places import HOST, NotAvailableError, ServiceNetwork, with_hosts_replaced

CLAIM_PORT = 7770
NETWORKS = range(1, 255)


def claim(avoid: frozenset[int] = frozenset()) -> tuple[int, socket.socket]:
    """Reserve a network number on this machine, as long as the returned socket is open. Raises NotAvailableError."""
    for number in NETWORKS:
        if number in avoid:
            continue
        held = socket.socket()
        try:
            held.bind((f"127.77.{number}.1", CLAIM_PORT))
        except OSError:
            held.close()  # another project has this number
            continue
        return number, held
    raise NotAvailableError(
        f"port {CLAIM_PORT} can be opened at none of 127.77.1.1 to 127.77.254.1: they are all taken by running "
        "projects (end one with `python -m tools.cluster down`), or loopback has only one address, as outside Linux"
    )


class Loopback(ServiceNetwork):
    kind = "loopback"

    def __init__(self, project: Project) -> None:
        super().__init__(project)
        self._claim: socket.socket | None = None

    async def open(self) -> None:
        number, self._claim = claim()
        self.assign(f"127.77.{number}")

    async def close(self) -> None:
        if self._claim is not None:
            with closing(self._claim):
                self._claim = None

    def command(self, service: str, words: list[str]) -> list[str]:
        return words

    def text(self, service: str, word: str) -> str:
        if self.project.services[service].network_mode == HOST:
            return with_hosts_replaced(word, {**self.names(), **self.fixed()})
        return with_hosts_replaced(word, {**self.names(), **self.fixed(), "0.0.0.0": self.addresses[service]})
