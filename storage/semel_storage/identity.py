"""The owner of a data directory, in `meta.properties`; refuses folders that are not a data directory of semel."""

from __future__ import annotations

import msgspec

from semel_storage import checkpoints
from semel_storage.disk.disk import Disk

VERSIONS = ("0", "1")
"""Of `meta.properties`. 0 is what Kafka wrote before KRaft, with `broker.id`; 1 is what semel and Kafka write."""
OF_THE_SYSTEM = frozenset((".lock", ".snapshot", ".DS_Store", ".gitkeep", "lost+found"))
"""Names that may stand in a new data directory."""
KAFKA_CONTROLLER = "__cluster_metadata-0"
NAMES_SHOWN_MAX = 3


class WrongDirectory(Exception):  # noqa: N818 (named for what it tells)
    """The data directory belongs to another cluster or node, has another format, or is no data directory."""


class Identity(msgspec.Struct, frozen=True):
    """What `meta.properties` says. cluster_id, directory_id: as Kafka writes a Uuid, 22 characters of base64."""

    node_id: int
    cluster_id: str
    directory_id: str


def check_folder(disk: Disk, root: str) -> None:
    """Changes nothing. Raises WrongDirectory for a folder that is neither new nor a data directory of a broker."""
    names = disk.listdir(root)
    if KAFKA_CONTROLLER in names:
        raise WrongDirectory(
            f"{root} holds {KAFKA_CONTROLLER}, the cluster's metadata of Apache Kafka, which semel does not read; "
            "choose another data directory"
        )
    if checkpoints.META_PROPERTIES in names:
        return
    foreign = [name for name in names if name not in OF_THE_SYSTEM and name != f"{checkpoints.META_PROPERTIES}.tmp"]
    if foreign:
        shown = ", ".join(foreign[:NAMES_SHOWN_MAX]) + (", …" if len(foreign) > NAMES_SHOWN_MAX else "")
        raise WrongDirectory(
            f"{root}/{checkpoints.META_PROPERTIES} is not there and {root} is not empty ({shown}), so it is no data "
            "directory of semel; choose another one, or put that file back if it was lost"
        )


def identify(disk: Disk, root: str, new: Identity) -> Identity:
    """The owner of the directory; `new` is written when it is new, and has to match otherwise.

    `new.cluster_id` "" accepts any. Raises WrongDirectory, having changed nothing.
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
        raise WrongDirectory(f"{path} says node.id={owner}, this is node {new.node_id}; choose another data directory")
    cluster_id = stored["cluster.id"]
    if new.cluster_id and cluster_id != new.cluster_id:
        raise WrongDirectory(
            f"{path} says cluster.id={cluster_id}, this is cluster {new.cluster_id}; choose another data directory"
        )
    return Identity(new.node_id, cluster_id, stored.get("directory.id", new.directory_id))


def _check_format(path: str, stored: dict[str, str]) -> None:
    if not stored:
        raise WrongDirectory(f"{path}: it is empty; put back what it said, or choose another data directory")
    version = stored.get("version")
    if version is None:
        raise WrongDirectory(f"{path} says no version; put back what it said, or choose another data directory")
    if version not in VERSIONS:
        raise WrongDirectory(
            f"{path} says version={version}, this semel knows {' and '.join(VERSIONS)}: it was written by a newer "
            "release; run that one, or choose another data directory"
        )
    for names in (("node.id", "broker.id"), ("cluster.id",)):
        if not any(name in stored for name in names):
            raise WrongDirectory(f"{path} says no {names[0]}; put back what it said, or choose another data directory")
