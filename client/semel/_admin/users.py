"""Users and their SCRAM credentials (KIP-554). Any broker answers; the others follow within a moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from semel_protocol.errors import ErrorCode
from semel_protocol.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsRequestUserName,
    DescribeUserScramCredentialsResponse,
)
from semel_protocol.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsRequestDeletion,
    AlterUserScramCredentialsRequestUpsertion,
    AlterUserScramCredentialsResponse,
)
from semel_protocol.scram import SALT_BYTES, ScramMechanism, salted_password

from semel._admin.types import (
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialsDescription,
    UserScramCredentialUpsertion,
)
from semel._net.calls import CallOutcomes, Calls
from semel._net.connection import Connection
from semel._net.retry import Deadline

Alteration = UserScramCredentialUpsertion | UserScramCredentialDeletion
Row = AlterUserScramCredentialsRequestUpsertion | AlterUserScramCredentialsRequestDeletion


async def describe(
    calls: Calls, users: Sequence[str] | None, timeout_ms: float | None
) -> dict[str, UserScramCredentialsDescription]:
    everybody = "all users"
    outcomes: CallOutcomes[str, dict[str, UserScramCredentialsDescription]] = CallOutcomes(
        [everybody] if users is None else dict.fromkeys(users), lambda user: f"describing the user {user}"
    )

    async def attempt(connection: Connection, deadline: Deadline) -> None:
        asked = None if users is None else list(outcomes.open)
        names = None if asked is None else [DescribeUserScramCredentialsRequestUserName(name=name) for name in asked]
        answer: DescribeUserScramCredentialsResponse = await calls.request(
            connection, DescribeUserScramCredentialsRequest(users=names), deadline
        )
        if answer.error_code:
            for name in asked or [everybody]:
                outcomes.refused(name, answer.error_code, answer.error_message)
            return
        found = {
            row.user: UserScramCredentialsDescription(
                row.user,
                tuple(
                    ScramCredentialInfo(ScramMechanism(each.mechanism), each.iterations)
                    for each in row.credential_infos
                ),
            )
            for row in answer.results
            if not row.error_code
        }
        if asked is None:
            outcomes.succeeded(everybody, found)
            return
        for row in answer.results:
            if row.error_code:
                outcomes.refused(row.user, row.error_code, row.error_message)
            else:
                outcomes.succeeded(row.user, {row.user: found[row.user]})

    if users is not None and not users:
        return {}
    parts = await calls.on_controller(attempt, outcomes, what="describing users", timeout_ms=timeout_ms)
    return {name: part[name] for _, part in sorted(parts.items()) for name in sorted(part)}


async def alter(calls: Calls, alterations: Sequence[Alteration], timeout_ms: float | None) -> None:
    outcomes: CallOutcomes[str, None] = CallOutcomes(
        dict.fromkeys(each.user for each in alterations), lambda user: f"altering the user {user}"
    )
    waiting: dict[str, list[Row]] = {}
    for each in alterations:
        waiting.setdefault(each.user, []).append(_row(each, calls))
    one_by_one: set[str] = set()

    async def attempt(connection: Connection, deadline: Deadline) -> None:
        names = list(outcomes.open)
        while names:
            sent = {name: waiting[name][:1] if name in one_by_one else waiting[name] for name in names}
            answer: AlterUserScramCredentialsResponse = await calls.request(connection, _request(sent), deadline)
            names = []
            for row in answer.results:
                rows = sent.get(row.user, [])
                if row.error_code == ErrorCode.DUPLICATE_RESOURCE and _are_several(rows):
                    # Apache Kafka's controller takes one credential of a user in a request.
                    one_by_one.add(row.user)
                    names.append(row.user)
                elif row.error_code:
                    outcomes.refused(row.user, row.error_code, row.error_message)
                elif len(rows) < len(waiting.get(row.user, [])):
                    waiting[row.user] = waiting[row.user][1:]
                    names.append(row.user)
                else:
                    outcomes.succeeded(row.user, None)

    await calls.on_controller(attempt, outcomes, what="altering users", timeout_ms=timeout_ms)


def _are_several(rows: Sequence[Row]) -> bool:
    """Whether the rows are for several credentials, each named once."""
    return len({each.mechanism for each in rows}) == len(rows) > 1


def _request(rows_of: Mapping[str, Sequence[Row]]) -> AlterUserScramCredentialsRequest:
    rows = [each for rows in rows_of.values() for each in rows]
    return AlterUserScramCredentialsRequest(
        deletions=[each for each in rows if isinstance(each, AlterUserScramCredentialsRequestDeletion)],
        upsertions=[each for each in rows if isinstance(each, AlterUserScramCredentialsRequestUpsertion)],
    )


def _row(wanted: Alteration, calls: Calls) -> Row:
    if isinstance(wanted, UserScramCredentialDeletion):
        return AlterUserScramCredentialsRequestDeletion(name=wanted.user, mechanism=wanted.mechanism)
    return _upsertion(wanted, wanted.salt or calls.cluster.edge.random_bytes(SALT_BYTES))


def _upsertion(wanted: UserScramCredentialUpsertion, salt: bytes) -> AlterUserScramCredentialsRequestUpsertion:
    """The password stays here: the broker gets what PBKDF2 makes of it."""
    info, password = wanted.scram_credential_info, wanted.password
    data = password.encode() if isinstance(password, str) else password
    if not data:
        raise ValueError("the password is empty: give one")
    salted = salted_password(info.mechanism, data, salt, info.iterations)
    return AlterUserScramCredentialsRequestUpsertion(
        name=wanted.user, mechanism=info.mechanism, iterations=info.iterations, salt=salt, salted_password=salted
    )
