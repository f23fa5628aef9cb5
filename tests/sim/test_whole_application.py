"""Consume, transform, produce: each input has one output, wherever a process or the broker is killed or paused.

Kills are tried at every step, other blows at every second or third one; `make sim-exhaustive` tries all.
"""

from __future__ import annotations

from typing import Any

import pytest
from semel import TopicPartition
from support.tiers import tiered

from sim.applications import enrich
from sim.applications.application_run import BLOWS, VERSIONS, Blow, play, points
from sim.workloads.member import RecordingMember
from sim.workloads.recording_consumer import text
from sim.workloads.recording_producer import RecordingProducer

STRIDES: dict[Blow, int] = {"kill": 1, "pause": 2, "pause, replaced late": 3, "kill broker": 2, "power loss": 2}


def check(version: int, blow: Blow, steps: range) -> None:
    found = []
    for at in steps:
        outcome = play(version, blow, at)
        assert outcome.struck, f"there is no step {at}"
        if outcome.findings:
            found.append(f"version {version}, {blow} at step {at}: {outcome.findings[:3]}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("blow", tiered(BLOWS, lambda blow: blow == "kill broker"))
def test_each_input_has_one_output_for_a_blow_before_any_step(blow: Blow, version: int) -> None:
    every = points(version, blow)
    assert len(every) > 30, "an application of two batches has more steps than that"
    check(version, blow, every[version % STRIDES[blow] :: STRIDES[blow]])


async def transform_and_commit_apart(
    writer: RecordingProducer, member: RecordingMember, batches: dict[TopicPartition, Any]
) -> None:
    """Commit outputs and offsets separately, as an application without exactly once does."""
    txn = writer.recorder.beginning(enrich.ID)
    async with writer.producer.transaction():
        for records in batches.values():
            for record in records:
                await writer.send(enrich.TARGET, 0, txn=txn, made_from=text(record.value))
        writer.recorder.committing(txn)
    writer.recorder.committed(txn)
    await member.commit()


def test_an_application_that_commits_its_offsets_separately_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enrich, "transform", transform_and_commit_apart)
    found = [finding for at in points(2, "kill") for finding in play(2, "kill", at).findings]
    assert any(finding.startswith("eos-offset") for finding in found)
    # an input that is read again has its second output after those of later inputs
    assert all(finding.startswith(("eos-offset", "reordered-output")) for finding in found)


def test_the_same_blow_is_the_same_run() -> None:
    assert play(2, "pause", 40).digest == play(2, "pause", 40).digest
