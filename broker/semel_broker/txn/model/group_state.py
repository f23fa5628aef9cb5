"""PURE: The state machine of one transaction group: the group, its members and a request in, the records to store out.

Each function returns a `TransactionGroupDecision`: the group's next record and those of members, which are appended as
one batch and take effect together. They raise `KafkaError`: then nothing changes. `members`: all known members, by
transactional id. The caller has the locks of all members that may have a transaction open.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import group_of

from semel_broker.coordination.producer_ids import FreshIds
from semel_broker.txn.model import metadata, state
from semel_broker.txn.model.group_metadata import ABORTED, COMMITTED, DEAD, OPEN, TransactionGroup, fenced
from semel_broker.txn.model.identity import ClientName, ProducerIdentity
from semel_broker.txn.model.ledger import FenceReason, FenceRecord
from semel_broker.txn.model.metadata import BETWEEN, ONGOING, TransactionMetadata
from semel_broker.txn.model.requests import BUMPING_VERSION, End

Members = Mapping[str, TransactionMetadata]


class Begin(msgspec.Struct, frozen=True, kw_only=True):
    """BeginTransactionGroup. `owner`: the name that the driver gives itself; `client`: of its connection."""

    group: str
    owner: str = ""
    client: ClientName = ClientName()
    timeout_ms: int


class Decide(msgspec.Struct, frozen=True, kw_only=True):
    """DecideTransactionGroup. `transactions`: the transactional ids to commit, each with its identity."""

    group: str
    epoch: int
    token: str = ""
    commit: bool
    transactions: Sequence[tuple[str, ProducerIdentity]] = ()
    client: ClientName = ClientName()


class TransactionGroupDecision(msgspec.Struct, frozen=True, kw_only=True):
    """`then`: to be persisted and applied (None: nothing changes), together with `members`. `group`: as it is then;
    `already`: the token had been committed before."""

    then: TransactionGroup | None = None
    members: tuple[TransactionMetadata, ...] = ()
    group: TransactionGroup | None = None
    already: bool = False


NO_FRESH_IDS: FreshIds = {}


def begin(group: TransactionGroup | None, members: Members, ask: Begin, now_ms: int) -> TransactionGroupDecision:
    """Begin the next step: abort the group's open transactions, and fence their producers."""
    then = TransactionGroup(
        name=ask.group,
        epoch=1 if group is None else group.epoch + 1,
        owner=ask.owner,
        client=ask.client,
        timeout_ms=ask.timeout_ms,
        begin_ms=now_ms,
        last_update_ms=now_ms,
        decided_token=None if group is None else group.decided_token,
        decided_epoch=-1 if group is None else group.decided_epoch,
    )
    note = f"step {then.epoch} of {then.name!r}" + (f" was begun by {ask.owner}" if ask.owner else "")
    line = FenceRecord(FenceReason.GROUP_BEGUN, now_ms, ask.client, note)
    return TransactionGroupDecision(then=then, members=_aborted(members, line), group=then)


def decide(
    group: TransactionGroup | None, members: Members, ask: Decide, now_ms: int, fresh_ids: FreshIds = NO_FRESH_IDS
) -> TransactionGroupDecision:
    """Commit the listed transactions and abort the others; or abort all. A token that was committed before says so.

    Raises INVALID_REQUEST, INVALID_TXN_STATE, PRODUCER_FENCED, TRANSACTIONAL_ID_NOT_FOUND; NeedsProducerIdError without
    a fresh id for each listed one whose epochs are used up."""
    if group is None:
        raise unknown(ask.group)
    if ask.commit and not ask.token:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a step is committed as something: give it a token")
    if ask.commit and ask.token == group.decided_token:
        return TransactionGroupDecision(group=group, already=True)
    if ask.epoch != group.epoch:
        raise fenced(group, ask.epoch)
    if group.state is not OPEN:
        return _decided_before(group, ask)
    then = replace(group, state=COMMITTED if ask.commit else ABORTED, last_update_ms=now_ms)
    committed: list[TransactionMetadata] = []
    if ask.commit:
        then = replace(then, decided_token=ask.token, decided_epoch=group.epoch)
        committed = _committed(group, members, ask, now_ms, fresh_ids)
    line = FenceRecord(FenceReason.GROUP_DECIDED, now_ms, ask.client, then.ended)
    done = {txn.transactional_id for txn in committed}
    others = {name: txn for name, txn in members.items() if name not in done}
    return TransactionGroupDecision(then=then, members=(*committed, *_aborted(others, line)), group=then)


def _decided_before(group: TransactionGroup, ask: Decide) -> TransactionGroupDecision:
    if group.state is ABORTED and not ask.commit:
        return TransactionGroupDecision(group=group)
    raise KafkaError(
        ErrorCode.INVALID_TXN_STATE,
        f"transaction group {group.name!r}: there is nothing to {'commit' if ask.commit else 'abort'}: {group.ended}",
    )


def _committed(
    group: TransactionGroup, members: Members, ask: Decide, now_ms: int, fresh_ids: FreshIds
) -> list[TransactionMetadata]:
    if len({name for name, _ in ask.transactions}) < len(ask.transactions):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id is listed twice: list each once")
    for name, _ in ask.transactions:
        if group_of(name) != group.name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} is no member of transaction group {group.name!r}")
    listed = [_listed(group, members.get(name), name, producer) for name, producer in ask.transactions]
    then = []
    for txn in listed:
        fresh_id = -1 if txn.identity.successor is not None else fresh_ids.get(txn.transactional_id, -1)
        end = End(producer=txn.identity, commit=True, version=BUMPING_VERSION)
        then.append(state.prepared(txn, end, now_ms, fresh_id))
    return then


def _listed(
    group: TransactionGroup, txn: TransactionMetadata | None, name: str, producer: ProducerIdentity
) -> TransactionMetadata:
    """The member, if it has the transaction that the driver lists. Raises INVALID_TXN_STATE,
    INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED."""
    if txn is None:
        raise KafkaError(
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            f"{name} is not known as a member: it was never initialised under a step of its group, or has expired",
        )
    state.owned(txn, producer)
    if txn.group_epoch != group.epoch or txn.state is not ONGOING:
        what = f"is in state {txn.state.label}" if txn.group_epoch == group.epoch else "is not part of it"
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"step {group.epoch} of transaction group {group.name!r} cannot be committed: {name} {what}; "
            "begin a new step and do its work again",
        )
    return txn


def _aborted(members: Members, line: FenceRecord) -> tuple[TransactionMetadata, ...]:
    return tuple(state.fenced_and_aborted(txn, line) for txn in members.values() if txn.state is ONGOING)


def forget(group: TransactionGroup | None, members: Members, name: str, epoch: int) -> TransactionGroupDecision:
    """Forget a decided group and its members: their records become tombstones. Nothing for a group that is not known.

    The caller has the locks of all members. Raises PRODUCER_FENCED, INVALID_TXN_STATE; CONCURRENT_TRANSACTIONS while a
    member is being ended."""
    if group is None:
        return TransactionGroupDecision()
    if epoch != group.epoch:
        raise fenced(group, epoch)
    if group.state is OPEN:
        raise KafkaError(
            ErrorCode.INVALID_TXN_STATE,
            f"transaction group {name!r} cannot be forgotten: step {epoch} is open; commit or abort it first",
        )
    unfinished = [each for each, txn in members.items() if txn.state not in BETWEEN]
    if unfinished:
        raise KafkaError(
            ErrorCode.CONCURRENT_TRANSACTIONS,
            f"transaction group {name!r} cannot be forgotten yet: {unfinished[0]} is being ended; ask again",
        )
    gone = tuple(replace(txn, state=metadata.DEAD) for txn in members.values())
    return TransactionGroupDecision(then=replace(group, state=DEAD), members=gone)


def unknown(group: str) -> KafkaError:
    """The error for an unknown group."""
    return KafkaError(
        ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
        f"there is no transaction group {group!r}: it was never begun, or has expired; begin it",
    )


# --- time ----------------------------------------------------------------------------------------------------


def is_timed_out(group: TransactionGroup, members: Iterable[TransactionMetadata], now_ms: int) -> bool:
    """Whether a transaction of the step is open for longer than its driver has asked for."""
    if group.state is not OPEN:
        return False
    begins = [txn.start_ms for txn in members if txn.state is ONGOING]
    return bool(begins) and now_ms > min(begins) + group.timeout_ms


def time_out(group: TransactionGroup | None, members: Members, now_ms: int, by: ClientName) -> TransactionGroupDecision:
    """Abort a step that has timed out; nothing if it was decided meanwhile."""
    if group is None or not is_timed_out(group, members.values(), now_ms):
        return TransactionGroupDecision()
    open_ms = now_ms - min(txn.start_ms for txn in members.values() if txn.state is ONGOING)
    note = f"open for {open_ms} ms, allowed were {group.timeout_ms} ms"
    then = replace(group, state=ABORTED, last_update_ms=now_ms, note=note)
    line = FenceRecord(FenceReason.TIMED_OUT, now_ms, by, f"step {group.epoch} of {group.name!r}: {note}")
    return TransactionGroupDecision(then=then, members=_aborted(members, line), group=then)


def is_expired(
    group: TransactionGroup, members: Iterable[TransactionMetadata], now_ms: int, expiration_ms: int
) -> bool:
    """Whether `transaction.group.expiration.ms` have passed without a step, and nothing is open. One that is decided is
    forgotten only after all its members: the count of its steps would begin anew."""
    if now_ms - group.last_update_ms < expiration_ms:
        return False
    known = list(members)
    return not any(txn.state is ONGOING for txn in known) if group.state is OPEN else not known


def expire(
    group: TransactionGroup | None, members: Members, now_ms: int, expiration_ms: int
) -> TransactionGroupDecision:
    """A decided group is forgotten: its record becomes a tombstone. An open step that nothing came of is aborted."""
    if group is None or not is_expired(group, members.values(), now_ms, expiration_ms):
        return TransactionGroupDecision()
    if group.state is not OPEN:
        return TransactionGroupDecision(then=replace(group, state=DEAD))
    note = f"begun {now_ms - group.begin_ms} ms ago, and nothing is open"
    return TransactionGroupDecision(then=replace(group, state=ABORTED, last_update_ms=now_ms, note=note))
