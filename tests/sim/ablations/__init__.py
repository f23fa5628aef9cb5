"""Ablations: each safeguard of the product is switched off in turn, and a checker of the simulator must fire.

    python -m sim.ablations                     each one, until a checker fires
    python -m sim.ablations 'duplicate window'  this one

A checker that no ablation trips proves nothing. A safeguard that no seed misses is not tested, or not needed.
"""

from __future__ import annotations

from sim.ablations import (
    clients,
    consumer_groups,
    disk_space,
    disks,
    durability,
    fairness,
    groups,
    look_ups,
    openings,
    producers,
    readers,
    renewals,
    replication,
    rights,
    steps,
    topics,
    transactions,
)
from sim.ablations.ablation import ABLATIONS, Ablation, without

__all__ = [
    "ABLATIONS",
    "Ablation",
    "clients",
    "consumer_groups",
    "disk_space",
    "disks",
    "durability",
    "fairness",
    "groups",
    "look_ups",
    "openings",
    "producers",
    "readers",
    "renewals",
    "replication",
    "rights",
    "steps",
    "topics",
    "transactions",
    "without",
]
