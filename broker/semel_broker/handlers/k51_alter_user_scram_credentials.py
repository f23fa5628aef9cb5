"""AlterUserScramCredentials (key 51): create, change and delete credentials of users. KIP-554.

When answered, the changes are durable and in force on this broker. All changes of a user are made, or none.
RESOURCE_NOT_FOUND: there is no such credential to delete. DUPLICATE_RESOURCE: the request names a credential twice.
UNSUPPORTED_SASL_MECHANISM, UNACCEPTABLE_CREDENTIAL: a change that cannot be made. REQUEST_TIMED_OUT: the cluster's
store cannot be reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from semel_protocol.acls import CLUSTER_NAME, Operation, ResourceType
from semel_protocol.errors import ErrorCode, KafkaError
from semel_protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsRequestUpsertion,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResponseResult,
)
from semel_protocol.refusals import refused_row
from semel_protocol.scram import ScramMechanism

from semel_broker.authorization.administration import Administration, AdministrativeChange, codes_by
from semel_broker.authorization.requirements import Requirements, on_cluster
from semel_broker.cluster.store import Change
from semel_broker.context import RequestContext
from semel_broker.security.user_store import UserStore, delete, put

Row = AlterUserScramCredentialsRequestDeletion | AlterUserScramCredentialsRequestUpsertion

OF_THE_STATE = (ErrorCode.RESOURCE_NOT_FOUND, ErrorCode.POLICY_VIOLATION)
"""Refusals that depend on the users that there are. Another broker may have changed them a moment ago."""


async def handle(request: AlterUserScramCredentialsRequest, ctx: RequestContext) -> AlterUserScramCredentialsResponse:
    """One row per user, in the order of the request."""
    asked: dict[str, list[Row]] = {}
    rows: list[Row] = [*request.deletions, *request.upsertions]
    for row in rows:
        asked.setdefault(row.name, []).append(row)
    results, changes = await _decide(asked, ctx)
    if any(result.error_code in OF_THE_STATE for result in results):
        try:
            await ctx.broker.users.settle()
            results, changes = await _decide(asked, ctx)
        except KafkaError as error:
            results = [
                refused_row(AlterUserScramCredentialsResponseResult, name, error.code, error.message) for name in asked
            ]
            changes = []
    if changes:
        await _store(changes, results, ctx)
    return AlterUserScramCredentialsResponse(results=results)


async def _decide(
    asked: Mapping[str, list[Row]], ctx: RequestContext
) -> tuple[list[AlterUserScramCredentialsResponseResult], list[Change]]:
    """The result of each user, and all changes to make, on the users that this broker knows now."""
    results: list[AlterUserScramCredentialsResponseResult] = []
    changes: list[Change] = []
    slices = ctx.slices()
    for name, own in asked.items():
        result = AlterUserScramCredentialsResponseResult(user=name)
        try:
            changes += _changes_of(name, own, ctx.broker.users)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
        if slices.is_over():
            await slices.next()
    return results, changes


async def _store(
    changes: list[Change], results: list[AlterUserScramCredentialsResponseResult], ctx: RequestContext
) -> None:
    accepted = [result for result in results if not result.error_code]
    try:
        await ctx.broker.users.alter(changes)
    except KafkaError as error:
        for result in accepted:
            result.error_code, result.error_message = error.code, error.message
        return
    for result in accepted:
        ctx.broker.log.info("user_altered", user=result.user, by=ctx.principal.name, host=ctx.principal.host)


def _changes_of(name: str, rows: list[Row], users: UserStore) -> list[Change]:
    """The changes of one user. Raises KafkaError if one of them cannot be made."""
    if len({row.mechanism for row in rows}) < len(rows):
        raise KafkaError(ErrorCode.DUPLICATE_RESOURCE, f"the request names a credential of the user {name} twice")
    changes: list[Change] = []
    for row in rows:
        mechanism = _mechanism(row.mechanism)
        if isinstance(row, AlterUserScramCredentialsRequestUpsertion):
            salt, salted = bytes(row.salt), bytes(row.salted_password)
            users.check(name, mechanism, row.iterations, salt, salted)
            changes.append(put(name, mechanism, row.iterations, salt, salted))
        elif mechanism in users.credentials(name):
            changes.append(delete(name, mechanism))
        else:
            raise KafkaError(
                ErrorCode.RESOURCE_NOT_FOUND, f"the user {name} has no credential for {mechanism.sasl_name}"
            )
    return changes


def _mechanism(code: int) -> ScramMechanism:
    """Raise UNSUPPORTED_SASL_MECHANISM."""
    try:
        return ScramMechanism(code)
    except ValueError:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"there is no SCRAM mechanism {code}: 1 is SHA-256, 2 is SHA-512"
        ) from None


# --- rights and audit ----------------------------------------------------------------------------------------


def _refuse(request: Any, code: ErrorCode, why: str) -> AlterUserScramCredentialsResponse:
    """One row per user, whatever is asked for it."""
    users = {row.name: row for row in (*request.deletions, *request.upsertions)}
    rows = [refused_row(AlterUserScramCredentialsResponseResult, row, code, why) for row in users.values()]
    return AlterUserScramCredentialsResponse(results=rows)


def _changes(request: Any, ctx: RequestContext) -> list[AdministrativeChange]:
    """One deed per user. Salts and passwords are in no line."""
    changes: dict[str, list[str]] = {}
    for row in request.deletions:
        changes.setdefault(row.name, []).append(f"without {_shown_mechanism(row.mechanism)}")
    for row in request.upsertions:
        changes.setdefault(row.name, []).append(f"{_shown_mechanism(row.mechanism)}, {row.iterations} iterations")
    return [
        AdministrativeChange(
            [(Operation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME)],
            name,
            Operation.ALTER,
            ResourceType.CLUSTER,
            CLUSTER_NAME,
            [f"User:{name}: {each}" for each in own],
        )
        for name, own in changes.items()
    ]


def _shown_mechanism(number: int) -> str:
    try:
        return ScramMechanism(number).sasl_name
    except ValueError:
        return f"unknown mechanism {number}"


NEEDS: Requirements = (on_cluster(Operation.ALTER, _refuse),)
AUDIT = Administration(_changes, codes_by("results", "user"))
