"""Picks the brokers that a demo runs on: one process, or a cluster of three with its etcd."""

from __future__ import annotations

from pathlib import Path

from semel_protocol.extras import install_command

from demo.brokers import DemoBrokers, KillTargets


def deploy(count: int, directory: Path, targets: KillTargets, *, secure: bool = False) -> DemoBrokers:
    """Return one broker, or three with their etcd; none is started yet.

    `secure`: those of deploy/docker-compose.secure.yml.

    Raises SystemExit without the packages.
    """
    if secure and count != 3:
        raise SystemExit("the secure cluster has three brokers: add --brokers 3")
    if count == 1:
        from demo.processes import DemoBroker

        return DemoBroker(directory / "broker")
    try:
        from demo.three import ThreeBrokers
    except ModuleNotFoundError as error:
        raise SystemExit(f"{error.name} is missing: {install_command('demo', 'processes')}") from error

    return ThreeBrokers(directory / "cluster", targets, secure=secure)
