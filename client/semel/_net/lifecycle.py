"""The life of a client object."""

from enum import Enum


class Life(Enum):
    """A stopped client is not started again: what it knew of its group, its positions and its sequences is gone."""

    NEW = "made, not started"
    RUNNING = "started"
    STOPPED = "stopped, or being stopped"
