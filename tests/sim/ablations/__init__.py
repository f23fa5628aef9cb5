"""Safeguards of the product, each switched off in turn: some seed of the simulator has to notice.

    python -m sim.ablations                     every one, until a checker fires
    python -m sim.ablations 'duplicate window'  this one

A checker that no ablation can trip is no checker, and a safeguard that no seed misses is not tested, or not needed.
"""

from __future__ import annotations

from sim.ablations import (
    clients,
    durability,
    fairness,
    groups,
    producers,
    readers,
    replication,
    steps,
    topics,
    transactions,
)
from sim.ablations.ablation import ABLATIONS, Ablation, without

__all__ = [
    "ABLATIONS",
    "Ablation",
    "clients",
    "durability",
    "fairness",
    "groups",
    "producers",
    "readers",
    "replication",
    "steps",
    "topics",
    "transactions",
    "without",
]
