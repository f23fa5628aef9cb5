"""Requests about a transaction group: begin a step, decide it, describe and forget groups. The APIs are semel's own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from semel_protocol.messages.k20001_begin_transaction_group import (
    BeginTransactionGroupRequest,
    BeginTransactionGroupResponse,
)
from semel_protocol.messages.k20002_decide_transaction_group import (
    DecideTransactionGroupRequest,
    DecideTransactionGroupRequestTransaction,
    DecideTransactionGroupResponse,
)
from semel_protocol.messages.k20003_describe_transaction_groups import (
    DescribeTransactionGroupsRequest,
    DescribeTransactionGroupsResponse,
    DescribeTransactionGroupsResponseGroup,
    DescribeTransactionGroupsResponseMember,
)
from semel_protocol.messages.k20004_forget_transaction_group import (
    ForgetTransactionGroupRequest,
    ForgetTransactionGroupResponse,
)

from semel._admin.types import TransactionGroupDescription, TransactionGroupMember, client_text
from semel._net.calls import Calls, settled
from semel._net.cluster import TRANSACTION
from semel._net.connection import Connection
from semel._net.pool import ConnectionPurpose
from semel._net.retry import Deadline, is_unsettled
from semel.errors import KafkaError, ProducerFenced, TransactionalIdNotFound, UnsupportedVersionError, error_for
from semel.structs import GroupStep, PreparedTransaction


def coordinator_key(group: str) -> str:
    """The transactional id that has the same coordinator as the group."""
    return f"{group}/"


async def begin(calls: Calls, group: str, owner: str, timeout_ms: int) -> GroupStep:
    """Begin the next step. Retries until it is answered; the step of an unanswered try is over then."""

    async def attempt(connection: Connection, deadline: Deadline) -> GroupStep:
        request = BeginTransactionGroupRequest(group=group, owner=owner, timeout_ms=timeout_ms)
        answer: BeginTransactionGroupResponse = await calls.request(connection, request, deadline)
        if answer.error_code:
            raise error_for(answer.error_code, _said(what, answer.error_message))
        return GroupStep(group, answer.group_epoch, answer.decided_token, answer.decided_epoch)

    what = f"beginning a step of transaction group {group!r}"
    return await calls.on_coordinator(coordinator_key(group), attempt, what=what, key_type=TRANSACTION)


async def decide(
    calls: Calls,
    step: GroupStep,
    *,
    token: str,
    committed: bool,
    transactions: Sequence[PreparedTransaction],
    on_uncertain: Callable[[], None],
) -> DecideTransactionGroupResponse:
    """The answer without an error.

    on_uncertain: called when a request was sent without an answer, so that it may have taken effect.
    """
    request = DecideTransactionGroupRequest(
        group=step.group,
        group_epoch=step.epoch,
        token=token,
        committed=committed,
        transactions=[
            DecideTransactionGroupRequestTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
            )
            for each in transactions
        ],
    )
    what = f"{'commit' if committed else 'abort'} of step {step.epoch} of transaction group {step.group!r}"

    async def attempt(connection: Connection, deadline: Deadline) -> DecideTransactionGroupResponse:
        try:
            answer: DecideTransactionGroupResponse = await calls.request(connection, request, deadline)
        except UnsupportedVersionError:
            raise
        except BaseException:
            on_uncertain()
            raise
        if answer.error_code:
            error = error_for(answer.error_code, _said(what, answer.error_message))
            if is_unsettled(error):
                on_uncertain()
            raise error
        return answer

    return await calls.on_coordinator(coordinator_key(step.group), attempt, what=what, key_type=TRANSACTION)


async def forget(calls: Calls, step: GroupStep) -> None:
    """Forget the group and its members, after its last step. Retries until it is answered."""
    request = ForgetTransactionGroupRequest(group=step.group, group_epoch=step.epoch)
    what = f"forgetting transaction group {step.group!r}"

    async def attempt(connection: Connection, deadline: Deadline) -> None:
        answer: ForgetTransactionGroupResponse = await calls.request(connection, request, deadline)
        if answer.error_code:
            raise error_for(answer.error_code, _said(what, answer.error_message))

    await calls.on_coordinator(coordinator_key(step.group), attempt, what=what, key_type=TRANSACTION)


async def describe(calls: Calls, names: Sequence[str] | None) -> list[TransactionGroupDescription]:
    """These groups in the given order, each from its coordinator; None: all groups of every broker, sorted by name."""
    if names is None:
        brokers = sorted((await calls.cluster.refresh()).brokers)

        async def of_broker(node_id: int) -> list[TransactionGroupDescription]:
            async def attempt(deadline: Deadline) -> list[TransactionGroupDescription]:
                connection = await calls.cluster.connection(node_id, ConnectionPurpose.CONTROL)
                return await _listed(calls, connection, node_id, None, deadline)

            return await calls.retrying(attempt, what="describing transaction groups")

        listings = await asyncio.gather(*map(of_broker, brokers), return_exceptions=True)
        found = [each for listed in settled(dict(zip(brokers, listings, strict=True))).values() for each in listed]
        return sorted(found, key=lambda each: each.name)
    answers = await asyncio.gather(*(_of_coordinator(calls, name) for name in names), return_exceptions=True)
    return list(settled(dict(enumerate(answers))).values())


async def abort(calls: Calls, group: str, reason: str) -> TransactionGroupDescription:
    """Begin a step on behalf of an operator, which aborts and fences, and abort that step. Returns the group before.

    Raises TransactionalIdNotFound when there is no such group; nothing is begun then.
    """
    (before,) = await describe(calls, [group])
    step = await begin(calls, group, reason, before.timeout_ms)
    try:
        await decide(calls, step, token="", committed=False, transactions=(), on_uncertain=lambda: None)
    except KafkaError as error:
        if not is_superseded(error):
            raise
    return before


def is_superseded(error: KafkaError) -> bool:
    """Whether there was nothing to abort: a newer step has begun, or the group does not exist."""
    return isinstance(error, ProducerFenced | TransactionalIdNotFound)


async def _of_coordinator(calls: Calls, name: str) -> TransactionGroupDescription:
    async def attempt(connection: Connection, deadline: Deadline) -> TransactionGroupDescription:
        node_id = await calls.cluster.coordinator(coordinator_key(name), TRANSACTION)
        for found in await _listed(calls, connection, node_id, [name], deadline):
            if found.name == name:
                return found
        raise TransactionalIdNotFound(f"there is no transaction group {name!r}")

    what = f"describing transaction group {name!r}"
    return await calls.on_coordinator(coordinator_key(name), attempt, what=what, key_type=TRANSACTION)


async def _listed(
    calls: Calls, connection: Connection, node_id: int, names: list[str] | None, deadline: Deadline
) -> list[TransactionGroupDescription]:
    request = DescribeTransactionGroupsRequest(groups=names)
    answer: DescribeTransactionGroupsResponse = await calls.request(connection, request, deadline)
    if answer.error_code:
        raise error_for(answer.error_code, _said("describing transaction groups", answer.error_message))
    for row in answer.groups:
        if row.error_code:
            raise error_for(row.error_code, _said(f"describing transaction group {row.group!r}", row.error_message))
    return [_description(row, node_id) for row in answer.groups]


def _description(row: DescribeTransactionGroupsResponseGroup, node_id: int) -> TransactionGroupDescription:
    return TransactionGroupDescription(
        name=row.group,
        epoch=row.group_epoch,
        state=row.state,
        coordinator=node_id,
        owner=row.owner,
        client=client_text(row.client_id, row.client_host),
        timeout_ms=row.timeout_ms,
        began_ms=row.begin_time_ms,
        last_update_time_ms=row.last_update_time_ms,
        decided_token=row.decided_token,
        decided_epoch=row.decided_epoch,
        note=row.note,
        members=tuple(map(_member, row.members)),
    )


def _member(row: DescribeTransactionGroupsResponseMember) -> TransactionGroupMember:
    return TransactionGroupMember(
        transactional_id=row.transactional_id,
        producer_id=row.producer_id,
        producer_epoch=row.producer_epoch,
        group_epoch=row.group_epoch,
        state=row.transaction_state,
        start_time_ms=None if row.transaction_start_time_ms < 0 else row.transaction_start_time_ms,
    )


def _said(what: str, why: str | None) -> str:
    return f"{what}: {why}" if why else what
