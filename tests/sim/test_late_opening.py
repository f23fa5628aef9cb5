"""A broker that listens before all its logs are open, in some seeds: these runs meet what they are drawn for."""

from __future__ import annotations

from collections import Counter

from sim.ablations.occasions import opened_late
from sim.plan import LATE_OPENING_SHARE, draw
from sim.run import run

SEEDS = (3, 10, 82, 113)
"""Seeds in which internal partitions were served without their logs, and damaged logs were met late."""
DRAWN = 200


def test_some_seeds_of_one_broker_open_logs_late() -> None:
    count = sum(draw(seed).opens_late for seed in range(DRAWN))
    assert DRAWN * LATE_OPENING_SHARE / 2 < count < DRAWN * LATE_OPENING_SHARE * 2
    assert not any(draw(seed, brokers=3).opens_late for seed in range(DRAWN)), "in a cluster all are opened at once"


def test_runs_that_open_logs_late_are_clean_and_meet_faults_meanwhile() -> None:
    """These are whole runs, which take seconds."""
    came: Counter[str] = Counter()
    for seed in SEEDS:
        verdict = run(opened_late(draw(seed)))
        assert verdict.is_clean, (seed, verdict.anomalies, verdict.failures)
        came.update(verdict.tally)
    assert came["came/starts that leave logs for later"] > came["came/logs opened late: all"] > 0, "some end meanwhile"
    assert came["came/log: partition_offline "] > 0, "some are damaged"
    assert came["came/log: log_not_opened "] > 0
