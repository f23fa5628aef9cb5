"""bad-election: the leaders and ISRs that were written to the store during a run.

Each rule compares two consecutive states of one partition, and uses the brokers that were live at that moment.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from semel_broker.cluster import records
from semel_broker.cluster.records import BrokerAdmission, PartitionState, Reassignment, TopicRecord

from sim.checkers.anomaly import Anomaly, few
from sim.checkers.history_index import HistoryIndex
from sim.final import StoreWrite

_topic = msgspec.json.Decoder(TopicRecord).decode
_state = msgspec.json.Decoder(PartitionState).decode
_admission = msgspec.json.Decoder(BrokerAdmission).decode
_reassignment = msgspec.json.Decoder(Reassignment).decode


def bad_election(facts: HistoryIndex) -> Iterator[Anomaly]:
    """A broker became leader, or joined the ISR, against the rules."""
    found = list(Register().read(facts.final.store))
    if found:
        yield Anomaly("bad-election", few(found))


class Register:
    """Replays the writes to the store in order, one store transaction after the other."""

    def __init__(self) -> None:
        self._topics: dict[str, TopicRecord] = {}  # by id
        self._ids: dict[str, str] = {}  # by key
        self._created: dict[tuple[str, int], int] = {}
        self._brokers: dict[int, int] = {}
        self._admitted: dict[int, BrokerAdmission] = {}
        self._states: dict[tuple[str, int], PartitionState] = {}
        self._moving: dict[tuple[str, int], Reassignment] = {}

    def read(self, written: list[StoreWrite]) -> Iterator[str]:
        """The violations of the rules, as text."""
        at = 0
        while at < len(written):
            end = at
            while end < len(written) and written[end].revision == written[at].revision:
                end += 1
            yield from self._transaction(written[at:end])
            at = end

    def _transaction(self, changes: list[StoreWrite]) -> Iterator[str]:
        states = [each for each in changes if each.key.startswith(records.PARTITIONS) and each.value is not None]
        was = {each.key: self._state(records.place_of(each.key)) for each in states}
        before_all = dict(self._admitted)
        for each in changes:
            self._note(each)
        for each in states:
            place, before = records.place_of(each.key), was[each.key]
            if before is not None and place[0] in self._topics:
                yield from self._wrong(each.revision, place, before, self._states[place])
        for each in changes:
            if each.key.startswith(records.ADMISSIONS):
                node_id = int(each.key.rpartition("/")[2])
                was_admitted = before_all.get(node_id)
                now_admitted = self._admitted.get(node_id)
                if now_admitted is not None and (was_admitted is None or was_admitted.epoch != now_admitted.epoch):
                    yield from self._early_admission(each.revision, node_id, was_admitted)

    def _note(self, written: StoreWrite) -> None:
        kind, _, rest = written.key.partition("/")
        value = written.value
        match kind + "/":
            case records.TOPICS:
                topic_id = self._ids.pop(written.key, "")
                self._topics.pop(topic_id, None)
                if value is not None:
                    topic = _topic(value)
                    self._topics[topic.topic_id], self._ids[written.key] = topic, topic.topic_id
                    for index in range(len(topic.replicas)):
                        self._created.setdefault((topic.topic_id, index), written.revision)
            case records.BROKERS:
                _keep(self._brokers, int(rest), None if value is None else written.revision)
            case records.ADMISSIONS:
                _keep(self._admitted, int(rest), None if value is None else _admission(value))
            case records.PARTITIONS:
                _keep(self._states, records.place_of(written.key), None if value is None else _state(value))
            case records.REASSIGNMENTS:
                _keep(self._moving, records.place_of(written.key), None if value is None else _reassignment(value))

    def _state(self, place: tuple[str, int]) -> PartitionState | None:
        """The current state of a partition; None if it does not exist."""
        topic_id, index = place
        if topic_id not in self._topics or index >= len(self._topics[topic_id].replicas):
            return None
        moving = self._moving.get(place)
        initial = self._replicas(place) if moving is None else moving.original
        return self._states.get(place) or records.initial_state(initial)

    def _replicas(self, place: tuple[str, int]) -> list[int]:
        return self._topics[place[0]].replicas[place[1]]

    def _is_live(self, node_id: int) -> bool:
        admission = self._admitted.get(node_id)
        return admission is not None and admission.epoch == self._brokers.get(node_id)

    def _wrong(self, revision: int, place: tuple[str, int], was: PartitionState, now: PartitionState) -> Iterator[str]:
        where = f"{self._topics[place[0]].name}-{place[1]} at revision {revision}: {_words(was)}, then {_words(now)}"
        if not now.isr or len({*now.isr}) < len(now.isr):
            yield f"{where}: that is no ISR"
        if any(each not in self._replicas(place) for each in now.isr):
            yield f"{where}: the ISR is not of {self._replicas(place)}"
        if now.leader != records.NO_LEADER and now.leader not in now.isr:
            yield f"{where}: the leader is not in sync"
        if not was.leader_epoch <= now.leader_epoch <= was.leader_epoch + 1:
            yield f"{where}: the epoch"
        if now.leader != was.leader and now.leader_epoch == was.leader_epoch:
            yield f"{where}: another leader in one epoch"
        if now.leader not in (was.leader, records.NO_LEADER):
            if now.leader not in was.isr:
                yield f"{where}: the elected leader was not in sync"
            if not self._is_live(now.leader):
                yield f"{where}: the elected leader is not live"
        for each in now.isr:
            if each not in was.isr and not self._is_live(each):
                yield f"{where}: {each} joined the ISR and is not live"
            if each not in was.isr and now.leader_epoch != was.leader_epoch:
                yield f"{where}: {each} joined the ISR by an election"

    def _early_admission(self, revision: int, node_id: int, was: BrokerAdmission | None) -> Iterator[str]:
        """A broker was admitted while it is still in sync for a partition that another live broker could take over.
        This is allowed for a partition without a leader, if the broker had synced everything before it ended."""
        for topic_id, topic in self._topics.items():
            for index in range(len(topic.replicas)):
                if self._created[topic_id, index] > self._brokers.get(node_id, 0):
                    continue  # the partition is newer than the registration: the broker can have lost no record of it
                state = self._state((topic_id, index))
                assert state is not None
                if state.leader == records.NO_LEADER and was is not None and was.is_synced:
                    continue
                if node_id in state.isr and any(self._is_live(each) for each in state.isr if each != node_id):
                    where = f"{topic.name}-{index}: {_words(state)}"
                    yield f"{node_id} was admitted at revision {revision}, in sync for {where}"


def _keep(where: dict, key: object, value: object) -> None:  # type: ignore[type-arg]
    if value is None:
        where.pop(key, None)
    else:
        where[key] = value


def _words(state: PartitionState) -> str:
    return f"leader {state.leader} of {state.isr} in epoch {state.leader_epoch}"
