"""Drives the state of one group without a broker. The test controls time and durability."""

from __future__ import annotations

from collections.abc import Callable

from semel_broker.groups.classic import state
from semel_broker.groups.classic.group import ClassicMember, ClassicMembership
from semel_broker.groups.classic.state import Change, ClassicRules, Transition
from semel_broker.groups.requests import Committer, Join, Joined, MemberIdRequiredError, Sync, Synced, TimePoint
from semel_protocol.errors import ErrorCode, KafkaError

Result = Joined | Synced | KafkaError
SESSION_MS = 10_000
REBALANCE_MS = 30_000


class GroupStateDriver:
    """Calls `state` as the coordinator does. `hold`: changes wait in `unsettled` until `settle` makes them durable."""

    def __init__(self, *, delay_ms: int = 0, size_max: int = 100, hold: bool = False) -> None:
        self.group = ClassicMembership(group_id="g")
        self.rules = ClassicRules(initial_rebalance_delay_ms=delay_ms, size_max=size_max)
        self.now_ms = 1_000
        self.hold = hold
        self.unsettled: list[Change] = []
        self.stored: list[Change] = []
        self.asked: dict[str, str] = {}
        self.answers: dict[str, Result] = {}
        self._count = 0

    @property
    def now(self) -> TimePoint:
        return TimePoint(self.now_ms, self.now_ms + 1_700_000_000_000)

    # --- what members do; each returns the token that is (or will be) answered, or the error raised ---

    def join(
        self,
        member_id: str = "",
        *,
        instance: str | None = None,
        protocols: str = "range",
        protocol_type: str = "consumer",
        must_return: bool = False,
        may_skip: bool = False,
        session_ms: int = SESSION_MS,
        metadata: bytes | None = None,
    ) -> str | KafkaError:
        to = self._token("join", member_id)
        ask = Join(
            member_id=member_id,
            new_member_id=f"m{self._count}",
            instance_id=instance,
            client_id="c",
            client_host="/h",
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=REBALANCE_MS,
            protocol_type=protocol_type,
            protocols=tuple(
                (name, f"{name}-metadata".encode() if metadata is None else metadata) for name in protocols.split()
            ),
            must_return=must_return,
            may_skip_assignment=may_skip,
        )
        return self._try(to, lambda: state.join(self.group, ask, to, self.now, self.rules))

    def sync(
        self, member_id: str, assignments: dict[str, bytes] | None = None, *, generation: int | None = None
    ) -> str | KafkaError:
        to = self._token("sync", member_id)
        ask = Sync(
            member_id=member_id,
            instance_id=None,
            generation_id=self.group.generation_id if generation is None else generation,
            protocol_type=None,
            protocol=None,
            assignments=assignments or {},
        )
        return self._try(to, lambda: state.sync(self.group, ask, to, self.now, self.rules))

    def heartbeat(self, member_id: str, *, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        generation = self.group.generation_id if generation is None else generation
        try:
            state.heartbeat(self.group, member_id, instance, generation, self.now)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def check_commit(self, member_id: str, generation: int) -> ErrorCode:
        try:
            state.check_commit(self.group, Committer(member_id, None, generation), self.now)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def leave(self, member_id: str, instance: str | None = None) -> ErrorCode:
        try:
            self._take(state.leave(self.group, member_id, instance, self.now, self.rules))
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def lose(self, token: str | KafkaError, member_id: str = "") -> None:
        """Close the connection of this waiting JoinGroup, or the one on which `member_id` was given out."""
        assert isinstance(token, str)
        waits = None if member_id else token
        member_id = member_id or self.asked[token] or f"m{token.removeprefix('join-')}"
        self._take(state.withdraw(self.group, member_id, waits, self.now, self.rules))

    # --- what time and the disk do ---

    def pass_time(self, ms: int) -> None:
        """Advance the time, and process each deadline and expiry on the way."""
        end_ms = self.now_ms + ms
        while (due := self._next_due()) is not None and due[0] <= end_ms:
            self.now_ms = max(self.now_ms, due[0])
            self._take(due[1]())
        self.now_ms = end_ms

    def settle(self, count: int | None = None) -> None:
        """Make the oldest `count` changes durable, in order; by default all of them."""
        for _ in range(len(self.unsettled) if count is None else count):
            change = self.unsettled.pop(0)
            self.stored.append(change)
            self._take(state.apply(self.group, change, self.now, self.rules))

    def refuse(self, error: KafkaError) -> None:
        """Fail the write of the oldest change."""
        self._take(state.refuse(self.group, self.unsettled.pop(0), error, self.now, self.rules))

    # --- shorthands ---

    def joined(self, token: str | KafkaError) -> Joined:
        assert isinstance(token, str), token
        result = self.answers.get(token)
        assert isinstance(result, Joined), result
        return result

    def code(self, token: str | KafkaError) -> ErrorCode:
        """The error code of the answer to a request, now or later."""
        result = token if isinstance(token, KafkaError) else self.answers.get(token)
        assert isinstance(result, KafkaError), result
        return result.code

    def assignment(self, token: str | KafkaError) -> bytes:
        assert isinstance(token, str), token
        result = self.answers.get(token)
        assert isinstance(result, Synced), result
        return result.assignment

    def given_id(self, token: str | KafkaError) -> str:
        """The member id in a MEMBER_ID_REQUIRED."""
        result = token if isinstance(token, KafkaError) else self.answers[token]
        assert isinstance(result, MemberIdRequiredError), result
        return result.member_id

    def stable(self, count: int, **join: str) -> list[str]:
        """Make a stable group of `count` members. Returns their ids, the leader first."""
        members = [self.joined(self.join(**join)).member_id]
        for _ in range(count - 1):
            newcomer = self.join(**join)
            for member_id in members:
                self.join(member_id, **join)
            members.append(self.joined(newcomer).member_id)
        for member_id in reversed(members):
            self.sync(member_id, {each: each.encode() for each in members})
        assert self.group.state.value == "Stable"
        return members

    def _token(self, what: str, who: str) -> str:
        self._count += 1
        token = f"{what}-{self._count}"
        self.asked[token] = who
        return token

    def _try(self, to: str, act: Callable[[], Transition]) -> str | KafkaError:
        try:
            transition = act()
        except KafkaError as error:
            del self.asked[to]
            return error
        self._take(transition)
        return to

    def _take(self, transition: Transition) -> None:
        for answer in transition.answers:
            assert isinstance(answer.to, str)
            assert answer.to in self.asked
            assert answer.to not in self.answers, f"{answer.to} answered twice"
            self.answers[answer.to] = answer.result
        if transition.change is not None:
            self.unsettled.append(transition.change)
            if not self.hold:
                self.settle()

    def _next_due(self) -> tuple[int, Callable[[], Transition]] | None:
        group = self.group
        found: list[tuple[int, Callable[[], Transition]]] = []
        if group.deadline_ms is not None:
            found.append((group.deadline_ms, lambda: state.deadline(group, self.now, self.rules)))
        for member_id in [*group.pending, *group.members]:
            when_ms = state.expiry_of(group, member_id, self.now)
            assert when_ms is not None
            found.append((when_ms, lambda m=member_id: state.expire(group, m, self.now, self.rules)))
        return min(found, key=lambda row: row[0], default=None)


def waiting(group: ClassicMembership) -> list[ClassicMember]:
    return list(group.waiting())
