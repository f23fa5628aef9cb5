"""EDGE: services in network namespaces: each has a loopback and a link to a bridge, as a container has.

A cut is an entry in the neighbour table of the sender. It maps the receiver's address to a hardware address that does
not exist, so packets are sent and lost. This needs no packet filter, the sender gets no error, and one direction can be
cut alone.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import os
import re
import shutil
import socket
import subprocess
from contextlib import closing
from pathlib import Path

from tools.cluster.compose import Project
from tools.cluster.loopback import claim
from tools.cluster.places import HOST, NotAvailableError, ServiceNetwork, with_hosts_replaced

UNUSED_MAC = "02:00:00:00:00:01"
ENTER = 'mount --bind "$1" /etc/hosts && shift && exec "$@"'


class Namespaces(ServiceNetwork):
    kind = "namespaces"
    partitions = True

    def __init__(self, project: Project, folder: Path) -> None:
        """`folder`: gets the hosts file of all services."""
        super().__init__(project)
        self._hosts = folder / "hosts"
        self._claim: socket.socket | None = None
        self._number = 0

    @property
    def bridge(self) -> str:
        return bridge(self._number)

    def namespace(self, service: str) -> str:
        return f"{self.bridge}-{service}"

    def _inside(self) -> list[str]:
        return [name for name, each in self.project.services.items() if each.network_mode != HOST]

    async def open(self) -> None:
        routed = frozenset(await self._routed())
        self._number, self._claim = claim(routed)
        self.assign(f"10.77.{self._number}")
        await clear(self._number)  # a killed runner may have left a network with this number
        lines = [f"link add {self.bridge} type bridge", f"addr add {self._gateway()}/24 dev {self.bridge}"]
        lines += [f"link set {self.bridge} up"]
        for i, name in enumerate(self._inside()):
            veth = f"{self.bridge}x{i}"
            lines += [f"netns add {self.namespace(name)}"]
            lines += [f"link add {veth} type veth peer name eth0 netns {self.namespace(name)}"]
            lines += [f"link set {veth} master {self.bridge} up"]
        await ip(lines)
        for name in self._inside():
            address = f"addr add {self.addresses[name]}/24 dev eth0"
            await ip([address, "link set lo up", "link set eth0 up"], self.namespace(name))
        self._hosts.write_text("127.0.0.1 localhost\n" + "".join(f"{a} {n}\n" for n, a in self.names().items()))

    async def _routed(self) -> list[int]:
        """The network numbers whose addresses this machine has routes to already."""
        routes = json.loads(await run(["ip", "-j", "-4", "route", "show"]))
        found = []
        for number in range(1, 255):
            ours = ipaddress.ip_network(f"10.77.{number}.0/24")
            for each in routes:
                if each["dst"] == "default" or each.get("dev", "").startswith("semel"):
                    continue
                if ipaddress.ip_network(each["dst"]).overlaps(ours):
                    found.append(number)
        return found

    async def close(self) -> None:
        if self._claim is not None:
            with closing(self._claim):
                self._claim = None
                await clear(self._number)

    def command(self, service: str, words: list[str]) -> list[str]:
        if self.project.services[service].network_mode == HOST:
            return words
        inside = ["/bin/sh", "-c", ENTER, "enter", str(self._hosts), *words]
        return ["ip", "netns", "exec", self.namespace(service), *inside]

    def text(self, service: str, word: str) -> str:
        return with_hosts_replaced(word, self.fixed())

    def _gateway(self) -> str:
        return f"10.77.{self._number}.1"

    def _address(self, name: str) -> str:
        return self._gateway() if name == HOST else self.addresses[name]

    async def cut(self, source: str, target: str) -> None:
        device = self.bridge if source == HOST else "eth0"
        entry = f"neigh replace {self._address(target)} lladdr {UNUSED_MAC} nud permanent dev {device}"
        await ip([entry], None if source == HOST else self.namespace(source))

    async def heal(self, source: str, target: str) -> None:
        device = self.bridge if source == HOST else "eth0"
        namespace = None if source == HOST else self.namespace(source)
        if UNUSED_MAC in await run(ip_command(namespace, ["neigh", "show", self._address(target), "dev", device])):
            await ip([f"neigh del {self._address(target)} dev {device}"], namespace)


def bridge(number: int) -> str:
    return f"semel{number}"


async def clear(number: int) -> None:
    """Remove the devices and namespaces of this network number, as far as they exist.

    Devices are removed first: the kernel may remove a namespace, with its devices, some time after it was deleted.
    """
    devices = [each for each in await links() if re.fullmatch(rf"{bridge(number)}(x\d+)?", each)]
    names = [line.split()[0] for line in (await run(["ip", "netns", "list"])).splitlines() if line]
    lines = [f"link del {each}" for each in devices]
    lines += [f"netns del {name}" for name in names if name.startswith(f"{bridge(number)}-")]
    if lines:
        await ip(lines)


async def sweep() -> None:
    """Remove the networks of killed runners: those whose number is not reserved. Does nothing unless this is root."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        return
    devices = await links()
    for number in range(1, 255):
        if bridge(number) in devices:
            try:
                found, held = claim(frozenset(range(1, 255)) - {number})
            except NotAvailableError:
                continue  # its runner is alive
            with closing(held):
                await clear(found)


async def links() -> list[str]:
    """The names of all network devices."""
    return [each["ifname"] for each in json.loads(await run(["ip", "-j", "link", "show"]))]


def ip_command(namespace: str | None, words: list[str]) -> list[str]:
    return ["ip", *(["-n", namespace] if namespace else []), *words]


async def ip(lines: list[str], namespace: str | None = None) -> None:
    """Run commands of `ip`, all in one process. Raises NotAvailableError with its error."""
    await run(ip_command(namespace, ["-batch", "-"]), "\n".join(lines) + "\n")


async def run(words: list[str], given: str = "") -> str:
    process = await asyncio.create_subprocess_exec(
        *words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    answer, problem = await process.communicate(given.encode())
    if process.returncode:
        raise NotAvailableError(
            f"`{' '.join(words)}` failed: {problem.decode().strip()}{f' (commands: {given!r})' if given else ''}. "
            "`python -m tools.cluster up --on loopback` needs no network namespaces"
        )
    return answer.decode()


def works() -> bool:
    """Whether this process may create namespaces and links. Tried out, because capabilities alone do not show it."""
    if shutil.which("ip") is None or not hasattr(os, "geteuid") or os.geteuid() != 0:
        return False
    name = f"semelt{os.getpid()}"
    lines = f"netns add {name}\nlink add {name} type veth peer name eth0 netns {name}\nnetns del {name}\n"
    try:
        done = subprocess.run(
            ["ip", "-batch", "-"], input=lines, capture_output=True, text=True, check=False, timeout=20
        )
        entered = subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    if done.returncode:
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False, timeout=20)
    return done.returncode == 0 and entered.returncode == 0
