"""The first user of a broker that is stopped: written by the broker's own code, if it is installed."""

from __future__ import annotations

import importlib

from semel_protocol import extras

from semel._command_line.common import failure

BROKER_SIDE = "semel_broker.security.offline_users"
"""By name: the client does not know the broker."""


async def create(data_dir: str, name: str, password: str) -> None:
    """Make a user in the store of a data directory. Raises ClickException."""
    try:
        broker = importlib.import_module(BROKER_SIDE)
    except ModuleNotFoundError as e:
        raise failure(extras.missing("--data-dir", str(e.name), "broker")) from e
    try:
        await broker.create_user(data_dir, name, password)
    except broker.OfflineUserError as e:
        raise failure(str(e)) from e
