"""PURE: The effects of one decision about one group, which a pure state machine returns and the host carries out."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from semel_protocol.errors import KafkaError
from semel_storage.internal_topics import Row


class Answer(msgspec.Struct, frozen=True):
    """The answer to one request. `to` is the future that came with the request (opaque here)."""

    to: object
    result: object


class ChangeRecords(msgspec.Struct, frozen=True):
    """The records of a change. `in_one_batch`, `frees`: as in `Journal.write`."""

    rows: Sequence[Row]
    in_one_batch: bool = False
    frees: bool = False


class Effects(msgspec.Struct, kw_only=True):
    """The effects of one decision. `GroupHost.carry_out` carries them out in this order:

    1. `answers`: the host answers these requests. The answers depend on no record of this decision.
    2. `change`: the host persists the records of the change. Once they are durable it applies the change, which has
       effects in its turn: the answers that depend on the records are among those. The host calls the `Kind` of the
       group for all three: `records`, then `apply`, or `refuse` if the records cannot be stored.
    3. `watch`: the host sets the timers of these members, and that of the group.
    """

    answers: list[Answer] = []
    change: object | None = None
    watch: list[str] = []
    cause: str = ""
    """Why a rebalance has begun, for the counters; empty: none has."""

    def answer(self, to: object | None, result: object | KafkaError) -> None:
        """Answer a request; None: no request waits."""
        if to is not None:
            self.answers.append(Answer(to, result))
