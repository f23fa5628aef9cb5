"""Every case: which request of one transaction is late, what its client does meanwhile, and when it arrives at last.

Time is cut into slots; a client takes one step in each. The late request is sent in its slot, over a connection that
the client gives up when no answer comes, and arrives in the middle of a later slot: between two steps of a client that
has long gone on.
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


class Transaction(msgspec.Struct, frozen=True):
    """Writes one record to each of `partitions` of the output, commits offsets of `inputs`, then ends."""

    partitions: tuple[int, ...]
    inputs: tuple[int, ...]
    commits: bool = True

    @property
    def steps(self) -> tuple[str, ...]:
        writing = (ADD, PRODUCE) if self.partitions else ()
        return (*writing, *((ADD_OFFSETS, OFFSETS) if self.inputs else ()), END)


FIRST = Transaction((0,), (0,))
NEXT: Mapping[str, Transaction] = {
    "writes the same": Transaction((0,), (0,)),
    "writes the same, aborts": Transaction((0,), (0,), commits=False),
    "writes elsewhere": Transaction((1,), (1,)),
    "records alone": Transaction((0,), ()),
    "offsets alone": Transaction((), (1,)),
}
LAST = Transaction((0, 1), (0, 1))
"""Comes after the next one, so that what is broken by then shows."""


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """`held`: the API of the late request, of the first transaction. `gives_up`: its client does not send it again but
    aborts; otherwise it does, and ends the transaction as `commits` says. `follows`: see NEXT. `arrives`: so many slots
    after it was sent. `by_role`: partitions, coordinator of transactions and of groups each have their connection, else
    there is one for all. `reuses`: the sequence numbers of a record that was given up are given to the next one.
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
    def transactions(self) -> tuple[Transaction, Transaction, Transaction]:
        return msgspec.structs.replace(FIRST, commits=self.commits), NEXT[self.follows], LAST

    @property
    def moment(self) -> str:
        """When it arrives, in words."""
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


def cases(client: ClientKind) -> Iterator[Case]:
    """All of them that make sense for a kind of client."""
    is_raw = client in RAW
    for held in API_KEYS:
        if held in IMPLIED_BY_VERSION_2 and client in ("version 2", "semel"):
            continue
        for gives_up, commits in ((False, True), (False, False), (True, False)):
            if held == END and gives_up:
                continue  # nobody can go on before the end of a transaction is answered
            for follows, following in NEXT.items():
                slots = len(FIRST.steps) - FIRST.steps.index(held) + len(following.steps) + 1
                for arrives in range(slots):
                    for by_role in (True, False) if is_raw else (True,):
                        for reuses in (False, True) if client == RAW[0] and gives_up and held == PRODUCE else (False,):
                            yield Case(
                                client=client,
                                held=held,
                                gives_up=gives_up,
                                commits=commits,
                                follows=follows,
                                arrives=arrives,
                                by_role=by_role,
                                reuses=reuses,
                            )
