"""The requests of drivers and operators about transaction groups: begin a step, decide it, list and forget groups.

A group's records, and those of all its members, lie in one partition of `__transaction_state`, so that one shard
coordinates all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.hashes import group_of

from semel_broker.config.loading import BrokerConfig
from semel_broker.coordination.producer_ids import FreshIds
from semel_broker.coordination.shards import Shards
from semel_broker.txn.model import group_state
from semel_broker.txn.model.group_metadata import TransactionGroup
from semel_broker.txn.model.group_state import Begin, Decide, Members, TransactionGroupDecision
from semel_broker.txn.model.identity import ClientName
from semel_broker.txn.model.metadata import TransactionMetadata
from semel_broker.txn.model.requests import TransactionRules
from semel_broker.txn.shard import TransactionShard


class GroupListing(msgspec.Struct, frozen=True):
    """A group, and its members by transactional id."""

    group: TransactionGroup
    members: Sequence[TransactionMetadata]


def coordinated_as(group: str) -> str:
    """A transactional id that has the same coordinator as the group."""
    return f"{group}/"


def check_member(transactional_id: str, is_two_phase: bool) -> None:
    """Raise INVALID_REQUEST unless such a producer can be a member of a group."""
    if not group_of(transactional_id):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a member of a transaction group is named <group>/<member>")
    if is_two_phase:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a member of a transaction group is prepared with its group alone")


class TransactionGroups:
    """The transaction groups that this broker coordinates. `me`: this broker, as the fence ledger names it."""

    def __init__(self, config: BrokerConfig, shards: Shards[TransactionShard], me: ClientName) -> None:
        self._config = config
        self._me = me
        self._shards = shards

    async def begin(self, ask: Begin) -> TransactionGroup:
        """BeginTransactionGroup: the group in its new step. Returns once every aborted transaction has its markers, or
        after `Limits.transaction_hold_ms_max`. Raises COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE,
        NOT_COORDINATOR, INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT."""
        rules = TransactionRules(timeout_ms_max=self._config.transaction_max_timeout_ms)
        ask = replace(
            ask,
            owner=ask.owner[: self._config.limits.fence_text_length_max],
            client=ask.client.cut(self._config.limits.fence_text_length_max),
            timeout_ms=rules.timeout_ms_of(ask.timeout_ms, enable_2pc=False, keep_prepared=False),
        )
        shard = await self._shard(ask.group)

        def decide(
            group: TransactionGroup | None, members: Members, now_ms: int, _: FreshIds
        ) -> TransactionGroupDecision:
            return group_state.begin(group, members, ask, now_ms)

        then = (await shard.groups.move(ask.group, decide)).group
        assert then is not None
        return then

    async def decide(self, ask: Decide) -> TransactionGroupDecision:
        """DecideTransactionGroup; returns as `begin` does. Raises COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_REQUEST, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING,
        PRODUCER_FENCED, TRANSACTIONAL_ID_NOT_FOUND. After an error nothing has changed."""
        if len(ask.token) > self._config.limits.transaction_group_token_length_max:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"a token has at most {self._config.limits.transaction_group_token_length_max} characters",
            )
        ask = replace(ask, client=ask.client.cut(self._config.limits.fence_text_length_max))
        shard = await self._shard(ask.group)

        def decide(
            group: TransactionGroup | None, members: Members, now_ms: int, fresh_ids: FreshIds
        ) -> TransactionGroupDecision:
            return group_state.decide(group, members, ask, now_ms, fresh_ids)

        return await shard.groups.move(ask.group, decide)

    async def forget(self, group: str, epoch: int) -> None:
        """ForgetTransactionGroup: forget the group, whose last step is `epoch`, and its members; nothing if there is
        no such group. Raises COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, INVALID_REQUEST,
        INVALID_TXN_STATE, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS, RECORD_LIST_TOO_LARGE."""
        shard = await self._shard(group)

        def decide(
            known: TransactionGroup | None, members: Members, now_ms: int, _: FreshIds
        ) -> TransactionGroupDecision:
            return group_state.forget(known, members, group, epoch)

        await shard.groups.move(group, decide, forgets=True)

    async def listing(self, names: Sequence[str] | None = None) -> list[GroupListing]:
        """The groups here by name, or those of `names` that are here. Raises COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE."""
        found = [
            GroupListing(group, shard.groups.members_of(group.name))
            for shard in await self._shards.all_loaded()
            for group in shard.groups.known()
            if names is None or group.name in names
        ]
        return sorted(found, key=lambda each: each.group.name)

    # --- time ---

    async def time_out(self, group: str) -> None:
        """Abort the group's step if it is open for too long. Raises COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, UNKNOWN_SERVER_ERROR."""

        def decide(
            known: TransactionGroup | None, members: Members, now_ms: int, _: FreshIds
        ) -> TransactionGroupDecision:
            return group_state.time_out(known, members, now_ms, self._me)

        await (await self._shard(group)).groups.move(group, decide)

    async def expire(self, group: str) -> None:
        """Forget the group if it is unused for too long. Raises COORDINATOR_LOAD_IN_PROGRESS,
        COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR, UNKNOWN_SERVER_ERROR."""
        expiration_ms = self._config.transaction_group_expiration_ms

        def decide(
            known: TransactionGroup | None, members: Members, now_ms: int, _: FreshIds
        ) -> TransactionGroupDecision:
            return group_state.expire(known, members, now_ms, expiration_ms)

        await (await self._shard(group)).groups.move(group, decide)

    # --- inside ---

    async def _shard(self, group: str) -> TransactionShard:
        if not group:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a transaction group needs a name: set one")
        name = coordinated_as(group)
        return await self._shards.ready(name)
