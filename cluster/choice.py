"""EDGE: the choice of a place for services: the best one that this machine and this user allow."""

from __future__ import annotations

from pathlib import Path

from cluster import namespaces, user_namespaces
from cluster.compose import Project
from cluster.loopback import Loopback
from cluster.namespaces import Namespaces
from cluster.places import Place

KINDS = ("auto", "namespaces", "user-namespaces", "loopback")


def best() -> str:
    """The kind nearest to containers."""
    if namespaces.works():
        return "namespaces"
    return "user-namespaces" if user_namespaces.works() else "loopback"


def place(project: Project, folder: Path) -> Place:
    """The best place for a cluster inside this process, which no user namespace can take in; `folder`: its state."""
    return Namespaces(project, folder) if namespaces.works() else Loopback(project)
