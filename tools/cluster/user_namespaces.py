"""EDGE: network namespaces without root: the runner enters a user namespace, in which it is root.

It cannot open ports of the machine there. So it opens the published ports before, and inherits their sockets.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys

import msgspec

from tools.cluster.compose import Port
from tools.cluster.published_ports import PublishedPort

INHERITED = "SEMEL_CLUSTER_PORTS"
ENTER = 'mount -t tmpfs tmpfs /var/run && ip link set lo up && exec "$@"'
"""`ip netns` keeps its namespaces in /var/run, which belongs to the real root outside."""
UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--", "/bin/sh", "-c", ENTER, "enter"]

TRY = """ip netns add try && ip link add c type veth peer name d netns try &&
ip netns exec try mount --bind /etc/hosts /etc/hosts"""


class InheritedSocket(msgspec.Struct, frozen=True):
    """A listening socket that the process inside the namespace inherits."""

    service: str
    port: Port
    descriptor: int


def works() -> bool:
    """Whether this user may create user and network namespaces. Tried out."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    try:
        done = subprocess.run([*UNSHARE, "/bin/sh", "-c", TRY], capture_output=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def enter(arguments: list[str], published: list[PublishedPort]) -> None:
    """Replace this process by `python -m tools.cluster <arguments>` inside a user namespace. Raises OSError."""
    handed = []
    for each in published:
        each.socket.set_inheritable(True)
        handed.append(InheritedSocket(each.service, each.port, each.socket.fileno()))
    os.environ[INHERITED] = msgspec.json.encode(handed).decode()
    words = [*UNSHARE, sys.executable, "-m", "tools.cluster", *arguments]
    os.execvp(words[0], words)


def inherited_ports() -> list[PublishedPort] | None:
    """The published ports that this process has inherited; None if it is not inside a user namespace."""
    text = os.environ.pop(INHERITED, None)
    if text is None:
        return None
    handed = msgspec.json.decode(text, type=list[InheritedSocket])
    return [PublishedPort(each.service, each.port, socket.socket(fileno=each.descriptor)) for each in handed]
