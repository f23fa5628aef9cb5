"""`semel acl`: lists, adds and removes access control entries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click
from semel_protocol.acls import CLUSTER_NAME, OPERATIONS_OF
from semel_protocol.tables import Table

from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import confirm, failure, json_option, run, say, say_json, show, tell
from semel._texts import plural, similar
from semel.admin import Acl, AclFilter, Operation, PatternType, Permission, ResourceType

F = TypeVar("F", bound=Callable[..., Any])
TOPIC, GROUP, TXN, CLUSTER = (
    ResourceType.TOPIC,
    ResourceType.GROUP,
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.CLUSTER,
)
OPTIONS = {"topics": TOPIC, "groups": GROUP, "transactional_ids": TXN}
EVERYWHERE = "*"


def resource_options(command: F) -> F:
    """The options that name resources: the arguments `topics`, `groups`, `transactional_ids`, `cluster`, `prefixed`."""
    for option in (
        click.option("--prefixed", is_flag=True, help="The names are prefixes: all resources that begin so."),
        click.option("--cluster", is_flag=True, help="The cluster itself."),
        click.option("--transactional-id", "transactional_ids", multiple=True, metavar="NAME", help="Repeatable."),
        click.option("--group", "groups", multiple=True, metavar="NAME", help="A consumer group; repeatable."),
        click.option("--topic", "topics", multiple=True, metavar="NAME", help="Repeatable; '*' is every topic."),
    ):
        command = option(command)
    return command


@click.group()
def acl() -> None:
    """Show and change access control entries.

    The broker needs the setting authorizer.class.name. A principal is `User:NAME`; `User:*` is every user. A denial
    overrules all that allows the same. docs/authorization.md tells which request needs which operation.
    """


@acl.command("list")
@client_options()
@click.option("--principal", metavar="User:NAME", help="Only the entries of this principal.")
@click.option(
    "--for", "applying", is_flag=True, help="All entries that apply to the named resources: with '*' and prefixes, too."
)
@resource_options
@json_option
def list_(client: ClientSettings, principal: str | None, applying: bool, as_json: bool, **named: Any) -> None:
    """List access control entries: all of them, or those of a principal or of resources."""
    filters = filters_of(named, principal, applying=applying)

    async def work() -> list[Acl]:
        async with client.admin() as admin:
            return sorted({each for wanted in filters for each in await admin.describe_acls(wanted)})

    found = run(work())
    if as_json:
        say_json([facts_of(each) for each in found])
    elif found:
        show(acl_table(found))
    else:
        tell("There is no such ACL. Without one only super.users may use a resource.")


@acl.command()
@client_options()
@click.option("--principal", required=True, metavar="User:NAME", help="'User:*' is everybody.")
@click.option("--allow", metavar="OPERATION[,…]", help="Operations to allow, such as read,write; all is every one.")
@click.option("--deny", metavar="OPERATION[,…]", help="Operations to deny, whatever else allows them.")
@click.option("--host", default=EVERYWHERE, show_default=True, metavar="ADDRESS", help="Only from this address.")
@resource_options
def add(client: ClientSettings, principal: str, allow: str | None, deny: str | None, host: str, **named: Any) -> None:
    """Allow or deny operations.

    \b
    a producer    semel acl add --principal User:alice --allow write --topic flights
    a consumer    semel acl add --principal User:bob --allow read --topic flights --group board
    transactions  semel acl add --principal User:alice --allow write --transactional-id shop- --prefixed
    """
    if not allow and not deny:
        raise click.UsageError("give --allow or --deny, with operations such as read,write")
    resources = resources_of(named)
    if not resources:
        raise click.UsageError("name a resource: --topic, --group, --transactional-id or --cluster")
    wanted = [
        Acl(kind, name, pattern, principal, host, operation, permission)
        for kind, name, pattern in resources
        for permission, text in ((Permission.ALLOW, allow), (Permission.DENY, deny))
        for operation in operations_of(text or "", kind)
    ]

    async def work() -> None:
        async with client.admin() as admin:
            await admin.create_acls(wanted)

    run(work())
    say(*(f"added: {each}" for each in wanted))


@acl.command()
@client_options()
@click.option("--principal", metavar="User:NAME", help="Only the entries of this principal.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")
@resource_options
def remove(client: ClientSettings, principal: str | None, yes: bool, **named: Any) -> None:
    """Remove access control entries of a principal or of resources. Shows them, and asks."""
    filters = filters_of(named, principal, applying=False)
    if filters == [AclFilter()]:
        raise click.UsageError("say which entries: --principal, --topic, --group, --transactional-id or --cluster")

    async def find() -> list[Acl]:
        async with client.admin() as admin:
            return sorted({each for wanted in filters for each in await admin.describe_acls(wanted)})

    async def work(found: Sequence[Acl]) -> None:
        exact = [
            AclFilter(
                each.resource_type, each.name, each.pattern, each.principal, each.host, each.operation, each.permission
            )
            for each in found
        ]
        async with client.admin() as admin:
            await admin.delete_acls(exact)

    found = run(find())
    if not found:
        raise failure("there is no such ACL; `semel acl list` shows all of them")
    if not yes:
        show(acl_table(found))
        confirm(f"Remove {plural(len(found), 'ACL')}?")
    run(work(found))
    say(*(f"removed: {each}" for each in found))


def resources_of(named: dict[str, Any]) -> list[tuple[ResourceType, str, PatternType]]:
    """PURE. The resources of the options."""
    pattern = PatternType.PREFIXED if named["prefixed"] else PatternType.LITERAL
    found = [(kind, name, pattern) for option, kind in OPTIONS.items() for name in named[option]]
    return [*found, (CLUSTER, CLUSTER_NAME, PatternType.LITERAL)] if named["cluster"] else found


def filters_of(named: dict[str, Any], principal: str | None, *, applying: bool) -> list[AclFilter]:
    """PURE. A filter for each resource of the options; one for all without any. applying: entries that cover them."""
    resources = resources_of(named)
    if not resources:
        return [AclFilter(principal=principal)]
    match = PatternType.MATCH
    return [AclFilter(kind, name, match if applying else pattern, principal) for kind, name, pattern in resources]


def operations_of(text: str, kind: ResourceType) -> list[Operation]:
    """PURE. "read,write" as operations. Raises UsageError for one that this type of resource does not have."""
    found = []
    known = {each.name.lower().replace("_", "-"): each for each in (*OPERATIONS_OF[kind], Operation.ALL)}
    for word in filter(None, (each.strip().lower().replace("_", "-") for each in text.split(","))):
        if word not in known:
            what, there = kind.name.lower().replace("_", " "), ", ".join(sorted(known))
            raise click.UsageError(
                f"there is no operation {word!r} on a {what}.{similar(word, known)} There are {there}"
            )
        found.append(known[word])
    return found


def facts_of(entry: Acl) -> dict[str, str]:
    """PURE. The entry as plain types."""
    return {
        "resource_type": entry.resource_type.name.lower(),
        "name": entry.name,
        "pattern": entry.pattern.name.lower(),
        "principal": entry.principal,
        "host": entry.host,
        "operation": entry.operation.name.lower(),
        "permission": entry.permission.name.lower(),
    }


def acl_table(found: Sequence[Acl]) -> Table:
    """PURE."""
    shown = Table("", "name", "resource", "principal", "permission", "operation", "host", below=("host", "principal"))
    for entry in found:
        facts = facts_of(entry)
        name = f"{entry.name}…" if entry.pattern is PatternType.PREFIXED else entry.name
        kind = facts["resource_type"].replace("_", " ")
        shown.add_row(name, kind, entry.principal, facts["permission"], facts["operation"], entry.host)
    return shown
