"""EDGE: network namespaces without root: the whole runner moves into a user namespace, in which it is root.

No port of the machine can be opened from there. So the published ports are opened before and passed on.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys

import msgspec

from cluster.compose import Port
from cluster.doors import Door

HANDED_OVER = "SEMEL_CLUSTER_DOORS"
ENTER = 'mount -t tmpfs tmpfs /var/run && ip link set lo up && exec "$@"'
"""`ip netns` keeps its namespaces in /var/run, which is the real root's outside."""
UNSHARE = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--", "/bin/sh", "-c", ENTER, "enter"]

TRY = """ip netns add try && ip link add c type veth peer name d netns try &&
ip netns exec try mount --bind /etc/hosts /etc/hosts"""


class Handed(msgspec.Struct, frozen=True):
    """An open socket on its way into the namespace."""

    service: str
    port: Port
    descriptor: int


def works() -> bool:
    """Whether this user may have namespaces of its own; tried."""
    if shutil.which("unshare") is None or shutil.which("ip") is None:
        return False
    try:
        done = subprocess.run([*UNSHARE, "/bin/sh", "-c", TRY], capture_output=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def enter(arguments: list[str], doors: list[Door]) -> None:
    """Becomes `python -m cluster <arguments>` inside; does not return. Raises OSError."""
    handed = []
    for each in doors:
        each.socket.set_inheritable(True)
        handed.append(Handed(each.service, each.port, each.socket.fileno()))
    os.environ[HANDED_OVER] = msgspec.json.encode(handed).decode()
    words = [*UNSHARE, sys.executable, "-m", "cluster", *arguments]
    os.execvp(words[0], words)


def taken_over() -> list[Door] | None:
    """The sockets that were handed over, None when this process is not inside."""
    text = os.environ.pop(HANDED_OVER, None)
    if text is None:
        return None
    handed = msgspec.json.decode(text, type=list[Handed])
    return [Door(each.service, each.port, socket.socket(fileno=each.descriptor)) for each in handed]
