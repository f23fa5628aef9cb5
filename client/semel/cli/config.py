"""`semel config`: lists resources with settings; shows, sets and unsets the settings of brokers. Those of topics are in
`semel topic`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import click
from semel_protocol.tables import Table

from semel import Admin
from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import failure, json_option, key_values, run, say, say_json, show, tell
from semel._texts import similar
from semel.admin import ConfigDescription, ConfigEntry, ConfigResource, ConfigResourceType, ConfigSource

ALL_BROKERS = ""
"""The resource that holds the cluster-wide values: all brokers take them, unless a broker has its own."""
broker_option = click.option(
    "--broker",
    type=click.IntRange(min=0),
    metavar="ID",
    help="The value of this broker alone. Default: the cluster-wide value.",
)
TYPES = {each.name.lower().replace("_", "-"): each for each in ConfigResourceType}
"""The types of resources, by their names here."""
dry_run_option = click.option("-n", "--dry-run", is_flag=True, help="Check the change, and change nothing.")


@click.group()
def config() -> None:
    """Show and change the settings of brokers.

    Dynamic settings change while the brokers run. A broker uses its own dynamic value, else the cluster-wide one, else
    that of its configuration file, else the default. `semel topic alter` changes the settings of topics.
    """


@config.command("list")
@client_options()
@click.option(
    "--type", "types", type=click.Choice(sorted(TYPES)), multiple=True, help="Only this type; repeatable. Default: all."
)
@json_option
def list_(client: ClientSettings, types: tuple[str, ...], as_json: bool) -> None:
    """List the resources that have settings.

    Groups and client metrics are listed if they were given settings.
    """

    async def work() -> list[ConfigResource]:
        async with client.admin() as admin:
            return await admin.list_config_resources(TYPES[each] for each in types)

    names = {kind: name for name, kind in TYPES.items()}
    found = [{"type": names[each.resource_type], "name": each.name} for each in run(work())]
    if as_json:
        say_json(found)
    elif found:
        show(resources_table(found))
    else:
        tell("There is no such resource.")


def resources_table(found: Sequence[Mapping[str, str]]) -> Table:
    """PURE. One row for each resource. found: as `semel config list --output json` prints it."""
    table = Table("Resources with settings", "type", "name")
    for each in found:
        table.add_row(each["type"], each["name"])
    return table


@config.command()
@client_options()
@click.argument("names", nargs=-1, metavar="[NAME]...")
@click.option(
    "--broker",
    "brokers",
    type=click.IntRange(min=0),
    multiple=True,
    metavar="ID",
    help="Show only this broker; repeatable. Default: the cluster-wide values, and all brokers.",
)
@click.option("-a", "--all", "all_settings", is_flag=True, help="Also show defaults, and what each setting means.")
@json_option
def describe(
    client: ClientSettings, names: tuple[str, ...], brokers: tuple[int, ...], all_settings: bool, as_json: bool
) -> None:
    """Show the settings of brokers that differ from their defaults, or the settings NAME.

    A setting is dynamic if `semel config set` can change it; others need a restart with a new configuration.
    """

    async def work() -> list[ConfigDescription]:
        async with client.admin() as admin:
            chosen = [str(each) for each in brokers or ()] or [ALL_BROKERS, *await _broker_ids(admin)]
            asked = [_resource(each) for each in chosen]
            found = await admin.describe_configs(asked, include_documentation=all_settings)
            await _check_names(admin, names)
            return found

    described = [facts_of(each, names, all_settings=all_settings) for each in run(work())]
    if as_json:
        say_json(described)
        return
    shown = [each for each in described if each["settings"]]
    for number, each in enumerate(shown):
        if number:
            tell("")
        show(settings_table(each))
    if not shown:
        tell("Every setting has its default; --all shows them.")


def facts_of(found: ConfigDescription, names: Sequence[str], *, all_settings: bool) -> dict[str, Any]:
    """PURE. The settings of one resource as plain types. names: the wanted ones; none for those without defaults."""
    entries = [each for _, each in sorted(found.configs.items())]
    if names:
        entries = [each for each in entries if each.name in names]
    elif not all_settings:
        entries = [each for each in entries if not each.is_default]
    return {
        "broker": None if found.name == ALL_BROKERS else int(found.name),
        "settings": [
            {
                "name": each.name,
                "value": each.value,
                "from": _source(each),
                "dynamic": not each.is_read_only,
                "documentation": each.documentation or None,
            }
            for each in entries
        ],
    }


def settings_table(described: Mapping[str, Any]) -> Table:
    """PURE. described: one of `semel config describe --json`."""
    title = "Cluster-wide" if described["broker"] is None else f"Broker {described['broker']}"
    documented = any(each["documentation"] for each in described["settings"])
    columns = ("setting", "value", "from", "dynamic", *(["meaning"] if documented else []))
    below = ("meaning", "value") if documented else ("value",)
    shown = Table(title, *columns, below=below)
    for each in described["settings"]:
        meaning = [each["documentation"]] if documented else []
        dynamic = "yes" if each["dynamic"] else "no"
        shown.add_row(each["name"], each["value"] or "", each["from"], dynamic, *meaning)
    return shown


@config.command("set")
@client_options()
@click.argument("pairs", nargs=-1, required=True, metavar="NAME=VALUE...")
@broker_option
@dry_run_option
def set_(client: ClientSettings, pairs: tuple[str, ...], broker: int | None, dry_run: bool) -> None:
    """Set dynamic settings of all brokers, or of one."""
    say(*run(_change(client, key_values(pairs, "NAME=VALUE"), broker, dry_run=dry_run)))


@config.command()
@client_options()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@broker_option
@dry_run_option
def unset(client: ClientSettings, names: tuple[str, ...], broker: int | None, dry_run: bool) -> None:
    """Remove the dynamic values of settings. The next value in the order that `semel config --help` gives is used."""
    say(*run(_change(client, dict.fromkeys(names), broker, dry_run=dry_run)))


async def _change(
    client: ClientSettings, settings: Mapping[str, str | None], broker: int | None, *, dry_run: bool
) -> list[str]:
    """Return a line for each change, and one for each broker whose own value differs."""
    target = ALL_BROKERS if broker is None else str(broker)
    async with client.admin() as admin:
        await _check_names(admin, list(settings))
        before = await _values(admin, target, settings)
        await admin.alter_configs([ConfigResource(ConfigResourceType.BROKER, target, settings)], validate_only=dry_run)
        if dry_run:
            return ["Possible. Nothing was changed."]
        where = "all brokers" if broker is None else f"broker {broker}"
        lines = []
        for name, value in settings.items():
            was = before.get(name)
            now = "has no dynamic value" if value is None else f"= {value}"
            lines.append(f"{where}: {name} {now} (was {'not set' if was is None else was})")
        return lines + (await _own_values(admin, settings) if broker is None else [])


async def _values(admin: Admin, target: str, names: Mapping[str, object]) -> dict[str, str | None]:
    """The dynamic values of all brokers or of one."""
    level = ConfigSource.DYNAMIC_DEFAULT_BROKER if target == ALL_BROKERS else ConfigSource.DYNAMIC_BROKER
    (found,) = await admin.describe_configs([_resource(target)])
    return {name: each.value for name, each in found.configs.items() if name in names and each.source is level}


async def _own_values(admin: Admin, names: Mapping[str, object]) -> list[str]:
    """A line for each broker that has its own value of these settings."""
    brokers = await _broker_ids(admin)
    return [
        f"broker {found.name}: {each.name} = {each.value}, its own value, stays"
        for found in await admin.describe_configs([_resource(each) for each in brokers])
        for each in found.configs.values()
        if each.name in names and each.source is ConfigSource.DYNAMIC_BROKER
    ]


async def _check_names(admin: Admin, names: Sequence[str]) -> None:
    """Raise ClickException for a setting that brokers do not have."""
    if not names:
        return
    first = (await _broker_ids(admin))[0]
    (found,) = await admin.describe_configs([_resource(first)])
    missing = [name for name in names if name not in found.configs]
    if missing:
        raise failure(
            f"brokers have no setting {missing[0]}.{similar(missing[0], found.configs)} "
            "`semel config describe --all` lists all settings"
        )


async def _broker_ids(admin: Admin) -> list[str]:
    return [str(each) for each in sorted((await admin.describe_cluster()).brokers)]


def _resource(name: str) -> ConfigResource:
    return ConfigResource(ConfigResourceType.BROKER, name)


def _source(entry: ConfigEntry) -> str:
    """The level that the value comes from."""
    words = {
        ConfigSource.DYNAMIC_BROKER: "this broker",
        ConfigSource.DYNAMIC_DEFAULT_BROKER: "cluster-wide",
        ConfigSource.STATIC_BROKER: "configuration",
        ConfigSource.DEFAULT: "default",
    }
    return words.get(entry.source, entry.source.name.lower())
