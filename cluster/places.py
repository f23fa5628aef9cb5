"""The places where services run: their addresses, their command lines, and the cuts of their network."""

from __future__ import annotations

import abc
import re
from collections.abc import Mapping

from cluster.compose import Project

HOST = "host"
"""The name of the machine itself, as the far end of a cut."""


class NotAvailableError(RuntimeError):
    """This machine, or this user, cannot do it; the message says what would."""


class Place(abc.ABC):
    """A network for the services of one project. Opened once, closed once."""

    kind: str
    partitions = False
    """Whether `cut` is available."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.addresses: dict[str, str] = {}
        """Service -> its address. Those in the network of the host have that of loopback."""

    @abc.abstractmethod
    async def open(self) -> None:
        """Sets the network up. Raises NotAvailableError, OSError."""

    @abc.abstractmethod
    async def close(self) -> None:
        """Takes down all that `open` set up; also after a failed one."""

    @abc.abstractmethod
    def command(self, service: str, words: list[str]) -> list[str]:
        """The command that runs `words` where the service is."""

    @abc.abstractmethod
    def text(self, service: str, word: str) -> str:
        """A word of a command or a value of the environment, with addresses in it that hold here."""

    async def cut(self, source: str, target: str) -> None:
        """From now on nothing that `source` sends reaches `target`; no error tells either. One direction."""
        raise NotAvailableError(
            f"no partitions on {self.kind}: they need network namespaces, which root has, "
            f"and other users where `unshare -Urn true` works"
        )

    async def heal(self, source: str, target: str) -> None:
        """Ends a cut; one that is not there is ended already."""
        await self.cut(source, target)

    def assign(self, prefix: str) -> None:
        """Addresses below `prefix` (three numbers): fixed ones keep their last number, the others follow .1."""
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
        """Addresses that the file fixes -> those that stand for them here."""
        services = self.project.services.items()
        return {each.fixed_address: self.addresses[name] for name, each in services if each.fixed_address}

    def names(self) -> dict[str, str]:
        """Every name of a service -> its address."""
        found: dict[str, str] = {}
        for name, service in self.project.services.items():
            if service.network_mode != HOST:
                found |= dict.fromkeys([name, *service.names], self.addresses[name])
        return found


def put_in(word: str, meant: Mapping[str, str]) -> str:
    """`word` with every host of `meant` in it replaced: alone, or where a host stands in addresses and lists."""
    if not meant:
        return word
    either = "|".join(re.escape(each) for each in sorted(meant, key=len, reverse=True))
    host = re.compile(rf"(?:^|(?<=[=,@\s])|(?<=//))({either})(?=$|[:/,\s])")
    return host.sub(lambda found: meant[found.group(1)], word)
