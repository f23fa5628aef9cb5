"""EDGE: chooses the network for services: the kind nearest to containers that this machine and user allow."""

from __future__ import annotations

from pathlib import Path

from tools.cluster import namespaces, user_namespaces
from tools.cluster.compose import Project
from tools.cluster.loopback import Loopback
from tools.cluster.namespaces import Namespaces
from tools.cluster.places import ServiceNetwork

KINDS = ("auto", "namespaces", "user-namespaces", "loopback")


def best() -> str:
    """The kind of network nearest to containers that works here."""
    if namespaces.works():
        return "namespaces"
    return "user-namespaces" if user_namespaces.works() else "loopback"


def place(project: Project, folder: Path) -> ServiceNetwork:
    """The best network for a cluster that this process runs. `folder`: the state folder.

    User namespaces are no choice here: to enter one, the process would have to start again.
    """
    return Namespaces(project, folder) if namespaces.works() else Loopback(project)
