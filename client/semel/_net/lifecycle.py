"""The states of a client object: new, running, stopped."""

from enum import Enum


class Life(Enum):
    """A stopped client cannot start again: its membership, positions and sequences are lost."""

    NEW = "created, not started"
    RUNNING = "started"
    STOPPED = "stopped, or being stopped"
