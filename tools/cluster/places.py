"""The interface of the networks in which services run: addresses, command lines, and cuts between services."""

from __future__ import annotations

import abc
import re
from collections.abc import Mapping

from tools.cluster.compose import Project

HOST = "host"
"""The name of this machine as one end of a cut."""


class NotAvailableError(RuntimeError):
    """This machine or this user cannot do it. The message names the reason."""


class ServiceNetwork(abc.ABC):
    """A network for the services of one project. It is opened once and closed once."""

    kind: str
    partitions = False
    """Whether `cut` is available."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.addresses: dict[str, str] = {}
        """Service -> its address. A service in the network of the host has 127.0.0.1."""

    @abc.abstractmethod
    async def open(self) -> None:
        """Set up the network. Raises NotAvailableError, OSError."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Remove all that `open` has set up, also after a failed `open`."""

    @abc.abstractmethod
    def command(self, service: str, words: list[str]) -> list[str]:
        """The command that runs `words` in the network of the service."""

    @abc.abstractmethod
    def text(self, service: str, word: str) -> str:
        """A word of a command, or a value of the environment, with the names and addresses replaced by those here."""

    async def cut(self, source: str, target: str) -> None:
        """Drop all packets from `source` to `target` from now on. Neither end gets an error."""
        raise NotAvailableError(
            f"there are no partitions on {self.kind}: they need network namespaces. Start the services as root, or as "
            "a user for whom `unshare -Urn true` works"
        )

    async def heal(self, source: str, target: str) -> None:
        """End a cut. Does nothing if there is none."""
        await self.cut(source, target)

    def assign(self, prefix: str) -> None:
        """Give each service an address with `prefix` (three numbers). A fixed address keeps its last number; the others
        get the free numbers from 2 on.
        """
        taken: dict[str, str] = {}
        for name, service in self.project.services.items():
            if service.network_mode == HOST:
                self.addresses[name] = "127.0.0.1"
            elif service.fixed_address is not None:
                taken[service.fixed_address.rpartition(".")[2]] = name
        free = (str(number) for number in range(2, 255) if str(number) not in taken)
        for name in self.project.services:
            if name not in self.addresses:
                number = next((n for n, owner in taken.items() if owner == name), None) or next(free)
                self.addresses[name] = f"{prefix}.{number}"

    def fixed(self) -> dict[str, str]:
        """Fixed address in the file -> address here."""
        services = self.project.services.items()
        return {each.fixed_address: self.addresses[name] for name, each in services if each.fixed_address}

    def names(self) -> dict[str, str]:
        """Each name of each service -> its address."""
        found: dict[str, str] = {}
        for name, service in self.project.services.items():
            if service.network_mode != HOST:
                found |= dict.fromkeys([name, *service.names], self.addresses[name])
        return found


def with_hosts_replaced(word: str, meant: Mapping[str, str]) -> str:
    """`word` with the hosts of `meant` replaced, where the word is a host, an address, or a list of them."""
    if not meant:
        return word
    either = "|".join(re.escape(each) for each in sorted(meant, key=len, reverse=True))
    host = re.compile(rf"(?:^|(?<=[=,@\s])|(?<=//))({either})(?=$|[:/,\s])")
    return host.sub(lambda found: meant[found.group(1)], word)
