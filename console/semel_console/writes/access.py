"""Changes of access: access control entries, users with their passwords, and quotas.

Passwords stay in the body of their request. They are hashed here, and no answer has them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TypeVar

import msgspec
from semel import Admin
from semel.admin import (
    Acl,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    QuotaEntity,
    QuotaFilter,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from semel_protocol.acls import OPERATIONS_OF
from semel_protocol.quotas import CLIENT_KEYS, IP_KEYS

from semel_console.answers import ChangeAnswer
from semel_console.query import must_be_typed

Word = TypeVar("Word", bound=IntEnum)
PERMISSIONS = (Permission.ALLOW, Permission.DENY)
PATTERNS = (PatternType.LITERAL, PatternType.PREFIXED)
MECHANISMS = [each.sasl_name for each in ScramMechanism]


class ChangeAcl(msgspec.Struct, forbid_unknown_fields=True):
    """Adds or removes one entry for each operation. Words are those of `semel acl`. typed: the principal, to remove."""

    principal: str
    resource_type: str
    resource: str
    operations: list[str]
    permission: str = "allow"
    pattern: str = "literal"
    host: str = "*"
    dry_run: bool = True
    typed: str = ""


class SetPassword(msgspec.Struct, forbid_unknown_fields=True):
    """Creates a user, or changes a password. mechanisms: none stands for all, or for those that the user has."""

    user: str
    password: str = ""
    mechanisms: list[str] = []
    dry_run: bool = True

    def __repr__(self) -> str:
        return f"<SetPassword of {self.user}>"  # the password stays out of logs


class DeleteUser(msgspec.Struct, forbid_unknown_fields=True):
    """typed: the name, unless `dry_run`."""

    user: str
    dry_run: bool = True
    typed: str = ""


class AlterQuotas(msgspec.Struct, forbid_unknown_fields=True):
    """entity: `user`, `client-id` or `ip` -> a name, or null for the default. quotas: null removes one.

    typed: the entity in words, such as `user alice`, if a quota is removed.
    """

    entity: dict[str, str | None]
    quotas: dict[str, float | None]
    dry_run: bool = True
    typed: str = ""


async def add_acl(admin: Admin, body: ChangeAcl, now_ms: int) -> ChangeAnswer:
    wanted = _entries(body)
    there = set(await _found(admin, wanted))
    new = [each for each in wanted if each not in there]
    if new and not body.dry_run:
        await admin.create_acls(new)
    notes = [f"There is already: {each}." for each in wanted if each in there]
    if Permission.DENY in {each.permission for each in new}:
        notes.append("A denial overrules all entries that allow the same.")
    text = None if body.dry_run else f"{_count(len(new), 'entry', 'entries')} added"
    return ChangeAnswer(changes=[f"Added: {each}." for each in new], notes=notes, text=text)


async def remove_acl(admin: Admin, body: ChangeAcl, now_ms: int) -> ChangeAnswer:
    wanted = _entries(body)
    found = await _found(admin, wanted)
    if not found:
        raise ValueError(f"there is no such entry: {wanted[0]}")
    if not body.dry_run:
        must_be_typed(body.typed, body.principal)
        await admin.delete_acls([_exact(each) for each in found])
    text = None if body.dry_run else f"{_count(len(found), 'entry', 'entries')} removed"
    return ChangeAnswer(changes=[f"Removed: {each}." for each in found], text=text)


async def _found(admin: Admin, wanted: list[Acl]) -> list[Acl]:
    return [each for entry in wanted for each in await admin.describe_acls(_exact(entry))]


def _exact(each: Acl) -> AclFilter:
    return AclFilter(
        each.resource_type, each.name, each.pattern, each.principal, each.host, each.operation, each.permission
    )


def _entries(body: ChangeAcl) -> list[Acl]:
    """PURE. Raises ValueError with the words that are possible."""
    kind = _word(body.resource_type, list(OPERATIONS_OF), "type of resource")
    possible = [*sorted(OPERATIONS_OF[kind]), Operation.ALL]
    operations = [_word(each, possible, f"operation on a {_said(kind)}") for each in body.operations]
    if not operations:
        raise ValueError(f"name an operation: {', '.join(map(_said, possible))}")
    pattern = _word(body.pattern, list(PATTERNS), "pattern")
    permission = _word(body.permission, list(PERMISSIONS), "permission")
    return [
        Acl(kind, body.resource, pattern, body.principal, body.host, operation, permission)
        for operation in dict.fromkeys(operations)
    ]


def _word(given: str, possible: list[Word], what: str) -> Word:
    """PURE. `describe configs`, `describe-configs` and `DESCRIBE_CONFIGS` are the same word."""
    for each in possible:
        if _said(each) == given.strip().lower().replace("_", " ").replace("-", " "):
            return each
    raise ValueError(f"there is no {what} {given!r}: there are {', '.join(map(_said, possible))}")


def _said(word: IntEnum) -> str:
    return word.name.lower().replace("_", " ")


async def create_user(admin: Admin, body: SetPassword, now_ms: int) -> ChangeAnswer:
    if body.user in await admin.describe_user_scram_credentials():
        raise ValueError(f"the user {body.user} exists already. Change the password instead")
    chosen = _mechanisms(body.mechanisms) or list(ScramMechanism)
    return await _set_password(admin, body, chosen, "is created", [f"No entry allows {body.user} anything yet."])


async def change_password(admin: Admin, body: SetPassword, now_ms: int) -> ChangeAnswer:
    has = await _mechanisms_of(admin, body.user)
    notes = ["Open connections stay until they must authenticate again (connections.max.reauth.ms)."]
    return await _set_password(admin, body, _mechanisms(body.mechanisms) or has, "gets the new password", notes)


async def _set_password(
    admin: Admin, body: SetPassword, chosen: list[ScramMechanism], done: str, notes: list[str]
) -> ChangeAnswer:
    if not body.user or not body.password:
        raise ValueError(f"the {'password' if body.user else 'name of the user'} is empty: give one")
    said = f"The user {body.user} {done}, for {' and '.join(each.sasl_name for each in chosen)}."
    if body.dry_run:
        return ChangeAnswer(changes=[said], notes=notes)
    await admin.alter_user_scram_credentials(
        [UserScramCredentialUpsertion(body.user, ScramCredentialInfo(each), body.password) for each in chosen]
    )
    return ChangeAnswer(changes=[], text=said)


async def delete_user(admin: Admin, body: DeleteUser, now_ms: int) -> ChangeAnswer:
    has = await _mechanisms_of(admin, body.user)
    if not body.dry_run:
        must_be_typed(body.typed, body.user)
        await admin.alter_user_scram_credentials([UserScramCredentialDeletion(body.user, each) for each in has])
        return ChangeAnswer(changes=[], text=f"The user {body.user} is deleted")
    changes = [f"The user {body.user} is deleted, with {' and '.join(each.sasl_name for each in has)}."]
    return ChangeAnswer(changes=changes, notes=["Open connections stay, and so do access control entries and quotas."])


def _mechanisms(names: list[str]) -> list[ScramMechanism]:
    unknown = [each for each in names if each.upper() not in MECHANISMS]
    if unknown:
        raise ValueError(f"there is no mechanism {unknown[0]!r}: there are {' and '.join(MECHANISMS)}")
    return [ScramMechanism.of(each.upper()) for each in names]


async def _mechanisms_of(admin: Admin, user: str) -> list[ScramMechanism]:
    found = (await admin.describe_user_scram_credentials()).get(user)
    if found is None:
        raise ValueError(f"there is no user {user!r} with SCRAM credentials")
    return [each.mechanism for each in found.scram_credential_infos]


async def alter_quotas(admin: Admin, body: AlterQuotas, now_ms: int) -> ChangeAnswer:
    try:
        entity = QuotaEntity.of_parts(body.entity)
    except KeyError as e:
        raise ValueError(f"a quota belongs to a user, a client-id, both, or an ip, and not to {e}") from None
    if not entity.parts or not body.quotas:
        raise ValueError("name a user, a client-id or an ip, and a quota with its value")
    keys = CLIENT_KEYS if entity.ip is None else IP_KEYS
    unknown = [each for each in body.quotas if each not in keys]
    if unknown:
        raise ValueError(f"there is no quota {unknown[0]!r} of {entity}: there are {', '.join(keys)}")
    before = (await admin.describe_client_quotas(QuotaFilter(entity.user, entity.client_id, entity.ip, True))).get(
        entity, {}
    )
    if not body.dry_run and None in body.quotas.values():
        must_be_typed(body.typed, str(entity))
    await admin.alter_client_quotas({entity: body.quotas}, validate_only=body.dry_run)
    changes = [
        f"{entity}: {name} = {_value(before.get(name))} becomes {_value(value)}."
        for name, value in body.quotas.items()
        if before.get(name) != value
    ]
    removed = [name for name, value in body.quotas.items() if value is None]
    notes = ["The next less specific quota then holds, or none."] if removed else []
    return ChangeAnswer(changes=changes, notes=notes, text=None if body.dry_run else f"{entity} has its new quotas")


def _value(value: float | None) -> str:
    return "no quota" if value is None else f"{value:,.10g}"


def _count(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"
