"""PURE: producer ids that are bound to their owners, so that a leader refuses the producer id of another client.

The owner of a transactional producer is its transactional id; that of an idempotent producer is its principal. A bound
producer id has 63 bits: the flag `BOUND`, a tag of 28 bits and a number of 34 bits. The tag is a keyed hash of owner
and number. All brokers of a cluster have the key, so each leader can check an id without state, after a failover and
after the producer's state has expired (docs/decisions/0033).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from hashlib import blake2b
from hmac import compare_digest
from typing import Final

from semel_protocol.errors import ErrorCode, KafkaError

from semel_broker.coordination.lru_table import LruTable
from semel_broker.security.authorizer import ANONYMOUS, Principal
from semel_broker.world import Logger

NUMBER_BITS: Final = 34
TAG_BITS: Final = 28
BOUND: Final = 1 << (NUMBER_BITS + TAG_BITS)
"""The flag of a bound id: the highest bit of a positive 64-bit integer."""
NUMBERS: Final = 1 << NUMBER_BITS

VERIFIED_MAX: Final = 10_000
"""Producer ids whose owner is remembered, so that most batches cost no hash."""
REFUSALS_MAX: Final = 100
"""Wrong ids of one sender in an interval. Without this bound a sender could try out the tag of an id."""
REFUSALS_INTERVAL_S: Final = 60.0
SENDERS_MAX: Final = 10_000
"""Senders of wrong ids that are remembered. The one whose interval began first is forgotten first."""


def owner_of(transactional_id: str | None, principal: Principal) -> str:
    """The owner of the producer ids of a request: its transactional id, or its principal if it has none."""
    return f"principal {principal.name}" if transactional_id is None else transactional_owner(transactional_id)


def transactional_owner(transactional_id: str) -> str:
    """The owner of the producer ids of a transactional id."""
    return f"transactional id {transactional_id}"


class ProducerOwners:
    """One per broker. `secret`: that of the cluster. `unbound_end`: ids without the flag are below it; older versions
    have given them out. `clock`: seconds that never decrease."""

    def __init__(
        self, secret: bytes, *, log: Logger, clock: Callable[[], float], unbound_end: Callable[[], int] = lambda: 0
    ) -> None:
        self._key = blake2b(secret).digest()  # a key has at most 64 bytes
        self._log = log
        self._clock = clock
        self._unbound_end = unbound_end
        self._verified: LruTable[int, str] = LruTable(VERIFIED_MAX)
        self._refusals: OrderedDict[str, tuple[float, int]] = OrderedDict()  # since when, and how many

    def bind(self, owner: str, number: int) -> int:
        """The producer id of this owner with this number (modulo `NUMBERS`)."""
        number %= NUMBERS
        return BOUND | self._tag(owner, number) << NUMBER_BITS | number

    def owns(self, owner: str, producer_id: int) -> bool:
        """Whether the id is bound to this owner."""
        if producer_id < BOUND:
            return False
        right = self.bind(owner, producer_id % NUMBERS)
        return compare_digest(right.to_bytes(8, "big"), producer_id.to_bytes(8, "big"))

    def check(self, owner: str, producer_id: int, sender: Principal) -> None:
        """Check the producer id of a batch, before any state of that producer is looked at.

        Raises INVALID_PRODUCER_ID_MAPPING for an id of another owner, and for one that was never given out. Raises
        NOT_ENOUGH_REPLICAS, so that the producer tries again, for an id that is not verified yet while its sender has
        sent too many wrong ones.
        """
        if self._verified.get(producer_id) == owner:
            return
        if producer_id < self._unbound_end():
            return
        self._check_refusals(sender)
        if self.owns(owner, producer_id):
            self._verified.put(producer_id, owner)
            return
        self._note_refusal(sender, owner, producer_id)
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"producer id {producer_id} does not belong to {owner}: another producer has it, or it was never "
            "given out; call InitProducerId for an own one",
        )

    def _check_refusals(self, sender: Principal) -> None:
        since, refusals = self._refusals.get(_name(sender), (0.0, 0))
        if refusals >= REFUSALS_MAX and self._clock() - since < REFUSALS_INTERVAL_S:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{_name(sender)} has sent {refusals} producer ids of other producers in {REFUSALS_INTERVAL_S:.0f} s: "
                "its ids that this broker does not know yet are not accepted before that time is over; try again",
            )

    def _note_refusal(self, sender: Principal, owner: str, producer_id: int) -> None:
        name, now = _name(sender), self._clock()
        since, refusals = self._refusals.get(name, (now, 0))
        if now - since >= REFUSALS_INTERVAL_S:
            del self._refusals[name]
            since, refusals = now, 0
        self._refusals[name] = since, refusals + 1
        if len(self._refusals) > SENDERS_MAX:
            self._refusals.popitem(last=False)
        if refusals in (0, REFUSALS_MAX - 1):  # two lines in an interval: its first one, and the one that ends it
            self._log.warning(
                "foreign_producer_id",
                principal=sender.name,
                host=sender.host,
                owner=owner,
                producer_id=producer_id,
                refused=refusals + 1,
                do="if it is no attack: a producer continues with the id of another; let it call InitProducerId",
            )

    def _tag(self, owner: str, number: int) -> int:
        text = number.to_bytes(8, "big") + owner.encode()
        return int.from_bytes(blake2b(text, digest_size=8, key=self._key).digest(), "big") >> (64 - TAG_BITS)


def _name(sender: Principal) -> str:
    """Clients without authentication have the same principal: their hosts tell them apart."""
    return f"{sender.name} at {sender.host}" if sender.name == ANONYMOUS.name else sender.name
