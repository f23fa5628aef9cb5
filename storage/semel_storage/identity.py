"""Identifies the owner of a data directory by `meta.properties`; refuses other folders and other owners."""

from __future__ import annotations

import msgspec

from semel_storage import checkpoints
from semel_storage.disk.disk import Disk

VERSIONS = ("0", "1")
"""Supported versions of `meta.properties`: 0 of Kafka before KRaft, with `broker.id`; 1 of semel and Kafka."""
OF_THE_SYSTEM = frozenset((".lock", ".snapshot", ".DS_Store", ".gitkeep", "lost+found"))
"""Names that a new data directory may contain."""
KAFKA_CONTROLLER = "__cluster_metadata-0"
NAMES_SHOWN_MAX = 3


class WrongDirectory(Exception):  # noqa: N818 (named after its cause)
    """The folder belongs to another cluster or node, has another format, or is not a data directory."""


class Identity(msgspec.Struct, frozen=True):
    """The content of `meta.properties`. cluster_id and directory_id have 22 characters of base64, as Kafka's Uuid."""

    node_id: int
    cluster_id: str
    directory_id: str


def check_folder(disk: Disk, root: str) -> None:
    """Raise WrongDirectory for a folder that is neither empty nor a data directory of a broker. Changes nothing."""
    names = disk.listdir(root)
    if KAFKA_CONTROLLER in names:
        raise WrongDirectory(
            f"{root} contains {KAFKA_CONTROLLER}, the cluster metadata of Apache Kafka, which semel does not read; "
            "choose another data directory"
        )
    if checkpoints.META_PROPERTIES in names:
        return
    foreign = [name for name in names if name not in OF_THE_SYSTEM and name != f"{checkpoints.META_PROPERTIES}.tmp"]
    if foreign:
        shown = ", ".join(foreign[:NAMES_SHOWN_MAX]) + (", …" if len(foreign) > NAMES_SHOWN_MAX else "")
        raise WrongDirectory(
            f"{root}/{checkpoints.META_PROPERTIES} is missing and {root} is not empty ({shown}), so it is not a data "
            "directory of semel; choose another one, or restore that file if it was lost"
        )


def identify(disk: Disk, root: str, new: Identity) -> Identity:
    """The owner of the directory. A new directory gets the owner `new`; otherwise `new` must match.

    `new.cluster_id` "" matches any cluster. Raises WrongDirectory, and then nothing has changed.
    """
    path = f"{root}/{checkpoints.META_PROPERTIES}"
    if not disk.exists(path):
        stored = {
            "version": "1",
            "cluster.id": new.cluster_id,
            "node.id": str(new.node_id),
            "directory.id": new.directory_id,
        }
        checkpoints.write_properties(disk, path, stored)
        return new
    stored = checkpoints.read_properties(disk, path)
    _check_format(path, stored)
    owner = stored.get("node.id", stored.get("broker.id", ""))
    if owner != str(new.node_id):
        raise WrongDirectory(f"{path} has node.id={owner}, this is node {new.node_id}; choose another data directory")
    cluster_id = stored["cluster.id"]
    if new.cluster_id and cluster_id != new.cluster_id:
        raise WrongDirectory(
            f"{path} has cluster.id={cluster_id}, this is cluster {new.cluster_id}; choose another data directory"
        )
    return Identity(new.node_id, cluster_id, stored.get("directory.id", new.directory_id))


def _check_format(path: str, stored: dict[str, str]) -> None:
    if not stored:
        raise WrongDirectory(f"{path} is empty; restore it, or choose another data directory")
    version = stored.get("version")
    if version is None:
        raise WrongDirectory(f"{path} has no version; restore it, or choose another data directory")
    if version not in VERSIONS:
        raise WrongDirectory(
            f"{path} has version={version}, this release supports {' and '.join(VERSIONS)}: a newer release wrote it; "
            "run that release, or choose another data directory"
        )
    for names in (("node.id", "broker.id"), ("cluster.id",)):
        if not any(name in stored for name in names):
            raise WrongDirectory(f"{path} has no {names[0]}; restore it, or choose another data directory")
