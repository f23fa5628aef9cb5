"""One move of a group: what it is given and what comes of it. PURE."""

from __future__ import annotations

import msgspec
from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.groups.group import Group, GroupState
from semel_broker.groups.requests import Answer, Join, Joined, Moment, Rules, Synced

EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState


class Assign(msgspec.Struct, frozen=True):
    """The leader has assigned generation `generation_id`: member id -> assignment."""

    generation_id: int
    assignments: dict[str, bytes]


class Replace(msgspec.Struct, frozen=True):
    """The static member `old_member_id` of a stable group came back as `ask.new_member_id` and wants what it wanted."""

    generation_id: int
    old_member_id: str
    ask: Join
    to: object


class Empty(msgspec.Struct, frozen=True):
    """The last member of the group has gone."""

    generation_id: int


Change = Assign | Replace | Empty


class Turn(msgspec.Struct, kw_only=True):
    """One move of one group: what it is given, and what comes of it."""

    group: Group
    now: Moment
    rules: Rules
    answers: list[Answer] = []
    watch: list[str] = []
    change: Change | None = None

    def answer(self, to: object | None, result: Joined | Synced | KafkaError) -> None:
        if to is not None:
            self.answers.append(Answer(to, result))


def check_alive(group: Group) -> None:
    if group.state is DEAD:
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the group was deleted just now: try again")


def rebalancing(group: Group) -> KafkaError:
    return KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"{group.group_id} is rebalancing: join again")
