"""`semel quota`: lists, sets and removes quotas of clients."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import click
from semel_protocol.quotas import CLIENT_KEYS, IP_KEYS, REQUEST_PERCENTAGE, TYPES
from semel_protocol.tables import Table

from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import json_option, key_values, run, say, say_json, show, tell
from semel._texts import similar
from semel.admin import QuotaEntity, QuotaFilter

F = TypeVar("F", bound=Callable[..., Any])
Quotas = Mapping[QuotaEntity, Mapping[str, float]]
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30}
NUMBER = re.compile(r"(\d+(?:\.\d+)?|\.\d+)\s*([kmg]i?)?b?(?:/s)?|(\d+(?:\.\d+)?|\.\d+)\s*%", re.IGNORECASE)
DEFAULT_TEXT = "<default>"
dry_run_option = click.option("-n", "--dry-run", is_flag=True, help="Check the change, and change nothing.")


def entity_options(command: F) -> F:
    """The options that name an entity; the command gets them as keywords."""
    for option in (
        click.option("--default-ip", is_flag=True, help="All addresses without a quota of their own."),
        click.option("--ip", metavar="ADDRESS", help="The address of a client."),
        click.option("--default-client-id", is_flag=True, help="All client ids without a quota of their own."),
        click.option("--client-id", "of_client", metavar="ID", help="A client id."),
        click.option("--default-user", is_flag=True, help="All users without a quota of their own."),
        click.option("--user", metavar="NAME", help="A user: the name of a principal without 'User:'."),
    ):
        command = option(command)
    return command


@click.group()
def quota() -> None:
    """Show and change how much clients may send, read and change.

    \b
    producer_byte_rate        bytes a second that clients produce
    consumer_byte_rate        bytes a second that clients fetch
    request_percentage        time of the broker's event loop, in percent
    controller_mutation_rate  partitions a second that clients create and delete
    connection_creation_rate  connections a second from an address

    A user together with a client id is the most specific. docs/quotas.md has the order in which quotas hold.
    """


@quota.command("list")
@client_options()
@entity_options
@click.option("--strict", is_flag=True, help="Only entities that have no other parts than the named ones.")
@json_option
def list_(client: ClientSettings, strict: bool, as_json: bool, **named: Any) -> None:
    """List quotas: all of them, or those of a user, a client id or an address."""
    wanted = filter_of(named, strict=strict)

    async def work() -> dict[QuotaEntity, dict[str, float]]:
        async with client.admin() as admin:
            return await admin.describe_client_quotas(wanted)

    found = run(work())
    if as_json:
        say_json([facts_of(entity, values) for entity, values in found.items()])
    elif found:
        show(quota_table(found))
    else:
        tell("There is no such quota.")


@quota.command("set")
@client_options()
@entity_options
@dry_run_option
@click.argument("quotas", nargs=-1, required=True, metavar="QUOTA=VALUE...")
def set_(client: ClientSettings, dry_run: bool, quotas: tuple[str, ...], **named: Any) -> None:
    """Set quotas of a user, a client id, both together, or an address.

    \b
    semel quota set --user alice producer_byte_rate=1MB consumer_byte_rate=4MiB
    semel quota set --user alice --default-client-id request_percentage=20%
    semel quota set --default-ip connection_creation_rate=10
    """
    entity = entity_of(named)
    values = {known_key(entity, key): amount_of(key, text) for key, text in key_values(quotas, "QUOTA=VALUE").items()}
    _alter(client, entity, values, dry_run=dry_run)
    say(*(f"{'would set' if dry_run else 'set'}: {entity}: {key}={shown(value)}" for key, value in values.items()))


@quota.command()
@client_options()
@entity_options
@dry_run_option
@click.argument("keys", nargs=-1, required=True, metavar="QUOTA...")
def unset(client: ClientSettings, dry_run: bool, keys: tuple[str, ...], **named: Any) -> None:
    """Remove quotas of a user, a client id, both together, or an address.

    The next less specific quota then holds. A quota that is not set is no error.
    """
    entity = entity_of(named)
    _alter(client, entity, {known_key(entity, key): None for key in keys}, dry_run=dry_run)
    say(*(f"{'would remove' if dry_run else 'removed'}: {entity}: {key}" for key in keys))


def _alter(client: ClientSettings, entity: QuotaEntity, changes: Mapping[str, float | None], *, dry_run: bool) -> None:
    async def work() -> None:
        async with client.admin() as admin:
            await admin.alter_client_quotas({entity: changes}, validate_only=dry_run)

    run(work())


def entity_of(named: Mapping[str, Any]) -> QuotaEntity:
    """PURE. The entity of the options. Raises UsageError."""
    parts: dict[str, Any] = {}
    for part, option in (("user", "user"), ("client_id", "of_client"), ("ip", "ip")):
        name, is_default = named[option], named[f"default_{part}"]
        if name is not None and is_default:
            words = part.replace("_", "-")
            raise click.UsageError(f"give --{words} or --default-{words}, not both")
        if is_default or name is not None:
            parts[part] = QuotaEntity.DEFAULT if is_default else name
    if not parts:
        raise click.UsageError("name a --user, a --client-id, both, or an --ip; or a default, such as --default-user")
    if "ip" in parts and len(parts) > 1:
        raise click.UsageError("an --ip has quotas of its own: leave the user and the client id out")
    return QuotaEntity(**parts)


def filter_of(named: Mapping[str, Any], *, strict: bool) -> QuotaFilter:
    """PURE. A filter for the entity of the options; one for all without any."""
    if not any(named.values()):
        return QuotaFilter()
    entity = entity_of(named)
    return QuotaFilter(entity.user, entity.client_id, entity.ip, strict)


def known_key(entity: QuotaEntity, key: str) -> str:
    """PURE. The name of the quota. Raises UsageError for one that such an entity does not have."""
    known = CLIENT_KEYS if entity.ip is None else IP_KEYS
    if key not in known:
        raise click.UsageError(f"there is no quota {key!r} here.{similar(key, known)} There are {', '.join(known)}")
    return key


def amount_of(key: str, text: str) -> float:
    """PURE. "1MB", "4MiB", "12.5%" or "10" as a number. Raises UsageError."""
    found = NUMBER.fullmatch(text.strip())
    if found is None or (found[3] is not None and key != REQUEST_PERCENTAGE):
        raise click.UsageError(f"{key}={text}: give a number, such as 1000000, 1MB or 512KiB; of a percentage 12.5%")
    if found[3] is not None:
        return float(found[3])
    return float(found[1]) * UNITS[(found[2] or "").lower()]


def shown(value: float) -> str:
    """PURE. Without the fraction of a whole number."""
    return str(int(value)) if value == int(value) else str(value)


def facts_of(entity: QuotaEntity, values: Mapping[str, float]) -> dict[str, str | float | None]:
    """PURE. The entity and its quotas as plain types: null for a part or a quota that it does not have."""
    parts = {kind: DEFAULT_TEXT if name is None else name for kind, name in entity.parts.items()}
    names = {kind.replace("-", "_"): parts.get(kind) for kind in TYPES}
    return {**names, **dict.fromkeys((*CLIENT_KEYS, *IP_KEYS)), **values}


def quota_table(found: Quotas) -> Table:
    """PURE. A row for each quota."""
    table = Table("", "of", "quota", "value", right=("value",))
    for entity, values in found.items():
        for key, value in _in_order(values):
            table.add_row(str(entity), key, int(value) if value == int(value) else str(value))
    return table


def _in_order(values: Mapping[str, float]) -> Iterable[tuple[str, float]]:
    order = [*CLIENT_KEYS, *IP_KEYS]
    return sorted(values.items(), key=lambda each: (order.index(each[0]) if each[0] in order else len(order), each[0]))
