"""All cases: which request of a transaction is late, how its client reacts, and when the request arrives.

Time is cut into slots, and a client takes one step in each. The late request is sent in its slot. The client closes the
connection when no answer comes. The request arrives in the middle of a later slot, between two steps of the client.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal

import msgspec

ADD, PRODUCE, ADD_OFFSETS, OFFSETS, END = (
    "AddPartitionsToTxn",
    "Produce",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
)
API_KEYS = {PRODUCE: 0, ADD: 24, ADD_OFFSETS: 25, END: 26, OFFSETS: 28}
IMPLIED_BY_VERSION_2 = (ADD, ADD_OFFSETS)

ClientKind = Literal["keeps its epoch", "bumps its epoch", "version 2", "semel", "semel, version 1"]
RAW: tuple[ClientKind, ...] = ("keeps its epoch", "bumps its epoch", "version 2")
OURS: tuple[ClientKind, ...] = ("semel", "semel, version 1")


class OldTransaction(msgspec.Struct, frozen=True):
    """Writes one record to each of `partitions` of the output, commits offsets of `inputs`, then ends."""

    partitions: tuple[int, ...]
    inputs: tuple[int, ...]
    commits: bool = True

    @property
    def steps(self) -> tuple[str, ...]:
        writing = (ADD, PRODUCE) if self.partitions else ()
        return (*writing, *((ADD_OFFSETS, OFFSETS) if self.inputs else ()), END)


FIRST = OldTransaction((0,), (0,))
NEXT: Mapping[str, OldTransaction] = {
    "writes the same": OldTransaction((0,), (0,)),
    "writes the same, aborts": OldTransaction((0,), (0,), commits=False),
    "writes elsewhere": OldTransaction((1,), (1,)),
    "records alone": OldTransaction((0,), ()),
    "offsets alone": OldTransaction((), (1,)),
}
LAST = OldTransaction((0, 1), (0, 1))
"""Runs after the next transaction, to show what is broken by then."""


class LateRequestCase(msgspec.Struct, frozen=True, kw_only=True):
    """One case. `held`: the API of the late request, which is part of the first transaction. `arrives`: it arrives so
    many slots after it was sent. `follows`: the next transaction, see NEXT.

    `gives_up`: the client does not send the request again, and aborts. Otherwise it sends the request again, and ends
    the transaction as `commits` says. `by_role`: partitions, group coordinator and transaction coordinator each have a
    connection; else one connection serves all. `reuses`: the client uses the sequence numbers of a record that it gave
    up for the next record.
    """

    client: ClientKind
    held: str
    gives_up: bool
    commits: bool
    follows: str
    arrives: int
    by_role: bool = True
    reuses: bool = False

    @property
    def transactions(self) -> tuple[OldTransaction, OldTransaction, OldTransaction]:
        return msgspec.structs.replace(FIRST, commits=self.commits), NEXT[self.follows], LAST

    @property
    def moment(self) -> str:
        """The time of arrival in words."""
        first, following, _ = self.transactions
        slot = first.steps.index(self.held) + self.arrives
        if slot < len(first.steps) - 1:
            return "amid its own transaction"
        slot -= len(first.steps)
        if slot < 0:
            return "before the next transaction begins"
        if slot < len(following.steps) - 1:
            return f"behind {following.steps[slot]} of the next transaction"
        return "behind the next transaction"


def cases(client: ClientKind) -> Iterator[LateRequestCase]:
    """All possible cases of a kind of client."""
    is_raw = client in RAW
    for held in API_KEYS:
        if held in IMPLIED_BY_VERSION_2 and client in ("version 2", "semel"):
            continue
        for gives_up, commits in ((False, True), (False, False), (True, False)):
            if held == END and gives_up:
                continue  # no client can continue before it knows how the transaction ended
            for follows, following in NEXT.items():
                slots = len(FIRST.steps) - FIRST.steps.index(held) + len(following.steps) + 1
                for arrives in range(slots):
                    for by_role in (True, False) if is_raw else (True,):
                        for reuses in (False, True) if client == RAW[0] and gives_up and held == PRODUCE else (False,):
                            yield LateRequestCase(
                                client=client,
                                held=held,
                                gives_up=gives_up,
                                commits=commits,
                                follows=follows,
                                arrives=arrives,
                                by_role=by_role,
                                reuses=reuses,
                            )
