"""Users and their SCRAM credentials (KIP-554). Any broker answers; the others follow within a moment."""

from __future__ import annotations

from collections.abc import Sequence

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
    deletions = [each for each in alterations if isinstance(each, UserScramCredentialDeletion)]
    upsertions = [
        _upsertion(each, each.salt or calls.cluster.edge.random_bytes(SALT_BYTES))
        for each in alterations
        if isinstance(each, UserScramCredentialUpsertion)
    ]

    async def attempt(connection: Connection, deadline: Deadline) -> None:
        request = AlterUserScramCredentialsRequest(
            deletions=[
                AlterUserScramCredentialsRequestDeletion(name=each.user, mechanism=each.mechanism)
                for each in deletions
                if each.user in outcomes.open
            ],
            upsertions=[each for each in upsertions if each.name in outcomes.open],
        )
        answer: AlterUserScramCredentialsResponse = await calls.request(connection, request, deadline)
        for row in answer.results:
            if row.error_code:
                outcomes.refused(row.user, row.error_code, row.error_message)
            else:
                outcomes.succeeded(row.user, None)

    await calls.on_controller(attempt, outcomes, what="altering users", timeout_ms=timeout_ms)


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
