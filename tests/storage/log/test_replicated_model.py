"""Three replicas with failovers, truncations, crashes and deletions: replicas in sync are equal, and no record that all
of them had is lost."""

import asyncio
from contextlib import nullcontext
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from semel_protocol.errors import KafkaError
from semel_storage.disk.memory_disk import MemoryDisk
from semel_storage.log_directory import LogDirectory
from semel_storage.segments.log_config import LogConfig
from storage.batches import NOW_MS, make_batch, put, read_all
from storage.replication import content, replicate, step

CONFIG = LogConfig(segment_bytes=1200, index_interval_bytes=200)
REPLICAS = st.integers(0, 2)
PRODUCERS = st.sampled_from((-1, 1, 2))


class ModelReplica:
    """One broker's disk and log."""

    def __init__(self) -> None:
        self.disk = MemoryDisk()
        self.directory: Any = None
        self.log: Any = None
        self.open()

    def open(self) -> None:
        self.directory = LogDirectory.open(self.disk, "data", node_id=1, cluster_id="c", directory_id="d")
        self.log = self.directory.open_log("t", 0, CONFIG, now_ms=NOW_MS, checkpoint_bytes=2500)


class ReplicaMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.replicas = [ModelReplica() for _ in range(3)]
        self.leader = 0
        self.epoch = 0
        self.written = 0
        self.committed: list[tuple[int, bytes | None]] = []
        """The records that all three replicas had at the last look at which they were equal."""
        self.committed_end = 0

    @property
    def log(self) -> Any:
        return self.replicas[self.leader].log

    @initialize()
    def begin(self) -> None:
        self.log.epochs.assign(0, 0)

    @rule(count=st.integers(1, 4), producer_id=PRODUCERS, transactional=st.booleans())
    def append(self, count: int, producer_id: int, transactional: bool) -> None:
        self.written += 1
        state = self.log.producers.get(producer_id)
        batch = make_batch(
            count,
            value=b"%d" % self.written + b"x" * (self.written % 7 * 30),
            producer_id=producer_id,
            epoch=state.epoch if state is not None else 0,
            sequence=state.last_sequence + 1 if state is not None else 0,
            is_transactional=transactional and producer_id >= 0,
        )
        is_refused = state is not None and state.txn_first_offset >= 0 and not transactional
        with pytest.raises(KafkaError) if is_refused else nullcontext():
            put(self.log, batch, leader_epoch=self.epoch)

    @rule(producer_id=st.sampled_from((1, 2)), commit=st.booleans(), bump=st.booleans())
    def end_transaction(self, producer_id: int, commit: bool, bump: bool) -> None:
        state = self.log.producers.get(producer_id)
        epoch = (state.epoch if state is not None else 0) + bump
        self.log.append_marker(producer_id, epoch, commit, self.epoch, leader_epoch=self.epoch, now_ms=NOW_MS)

    @rule(replica=REPLICAS, fetches=st.integers(1, 4), bytes_max=st.sampled_from((1, 500, 5000)))
    def fetch(self, replica: int, fetches: int, bytes_max: int) -> None:
        if replica != self.leader:
            for _ in range(fetches):
                step(self.log, self.replicas[replica].log, bytes_max=bytes_max)

    @rule(replica=REPLICAS)
    def catch_up(self, replica: int) -> None:
        follower = self.replicas[replica].log
        replicate(self.log, follower)
        start = max(follower.start_offset, self.log.start_offset)
        assert content(follower, start) == content(self.log, start)

    @rule()
    def all_catch_up(self) -> None:
        for replica in range(3):
            self.catch_up(replica)
        self.committed, self.committed_end = read_all(self.log), self.log.end_offset

    @rule(replica=REPLICAS)
    def failover(self, replica: int) -> None:
        """Elect any replica with all committed records; it may have a tail that the others lack."""
        self.leader = replica
        self.epoch += 1
        self.log.epochs.assign(self.epoch, self.log.end_offset)

    @rule(replica=REPLICAS)
    def truncate(self, replica: int) -> None:
        log = self.replicas[replica].log
        if replica != self.leader and log.end_offset > self.committed_end:
            log.truncate_to(self.committed_end)

    @rule(below=st.integers(0, 6))
    def delete_records(self, below: int) -> None:
        offset = max(self.log.start_offset, self.committed_end - below)
        self.log.delete_records_before(min(offset, self.log.end_offset))

    @rule(replica=REPLICAS)
    def roll(self, replica: int) -> None:
        self.replicas[replica].log.roll()

    @rule(replica=REPLICAS, how=st.sampled_from(("close", "kill", "crash")))
    def restart(self, replica: int, how: str) -> None:
        """Restart after a power loss; committed records were synced. A leader is not the leader any more."""
        it = self.replicas[replica]
        before = content(it.log)
        asyncio.run(it.log.durability.sync())
        if how == "close":
            it.directory.close()
        else:
            getattr(it.disk, how)()
        it.open()
        after = content(it.log)
        if replica == self.leader:
            it.log.epochs.assign(self.epoch, it.log.end_offset)
        assert (after[0], after[2], after[4]) == (before[0], before[2], before[4])

    @invariant()
    def committed_records_are_everywhere(self) -> None:
        for it in self.replicas:
            start = it.log.start_offset
            found = dict(read_all(it.log))
            assert all(found.get(offset) == value for offset, value in self.committed if offset >= start)


ReplicaMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
test_replicas_that_have_caught_up_are_the_same = ReplicaMachine.TestCase
