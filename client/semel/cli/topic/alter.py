"""`semel topic alter`: adds partitions to topics, and changes their settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import click

from semel import Admin
from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import failure, key_values, run, say
from semel._texts import plural, similar
from semel.admin import ConfigResource, ConfigResourceType, NewPartitions
from semel.diagnose import topics_of
from semel.errors import TopicAuthorizationFailedError
from semel.structs import TopicMetadata

NO_EFFECT = "Has no effect. "
"""Begins the documentation of a setting that the broker takes and does not use."""


@click.command()
@client_options()
@click.argument("names", nargs=-1, required=True)
@click.option(
    "-p",
    "--partitions",
    type=click.IntRange(min=1),
    metavar="N",
    help="The total number of partitions after the change. Default: unchanged.",
)
@click.option(
    "-c", "--config", "configs", multiple=True, metavar="KEY=VALUE", help="Set a setting of the topics; repeatable."
)
@click.option("-u", "--unset", multiple=True, metavar="KEY", help="Set a setting to its default; repeatable.")
@click.option("-n", "--dry-run", is_flag=True, help="Check the changes, and change nothing.")
def alter(
    client: ClientSettings,
    names: tuple[str, ...],
    partitions: int | None,
    configs: tuple[str, ...],
    unset: tuple[str, ...],
    dry_run: bool,
) -> None:
    """Add partitions to topics, and change their settings.

    Other settings do not change. Partitions can only be added. Stored records stay in their partitions, so the records
    of one key may be in two partitions afterwards.
    """
    settings: dict[str, str | None] = {**key_values(configs, "--config")}
    twice = sorted({key for key in unset if key in settings})
    if twice:
        raise click.BadParameter(f"{', '.join(twice)}: both set and unset", param_hint="--unset")
    settings.update(dict.fromkeys(unset))
    if not settings and partitions is None:
        raise click.UsageError("nothing to change: give --partitions, --config or --unset")

    async def work() -> list[str]:
        async with client.admin() as admin:
            topics = await topics_of(admin, list(dict.fromkeys(names)))
            growing = _growing(topics, partitions)
            before = await _settings(admin, topics, settings)
            await _check_names(admin, topics, [key for key in unset if (topics[0].name, key) not in before])
            await _alter(admin, topics, settings, growing, validate_only=True)
            if dry_run:
                return [*_told(topics, partitions, settings, before, {}), "Possible. Nothing was changed."]
            await _alter(admin, topics, settings, growing, validate_only=False)
            await tell_without_effect(
                admin, topics[0].name, [name for name, value in settings.items() if value is not None]
            )
            return _told(topics, partitions, settings, before, await _settings(admin, topics, settings))

    say(*run(work()))


async def _alter(
    admin: Admin,
    topics: list[TopicMetadata],
    settings: Mapping[str, str | None],
    growing: Mapping[str, NewPartitions],
    *,
    validate_only: bool,
) -> None:
    if settings:
        rows = [ConfigResource(ConfigResourceType.TOPIC, topic.name, settings) for topic in topics]
        await admin.alter_configs(rows, validate_only)
    if growing:
        await admin.create_partitions(growing, validate_only=validate_only)


def _growing(topics: list[TopicMetadata], partitions: int | None) -> dict[str, NewPartitions]:
    """The topics that get partitions. Raises ClickException when a topic has more already."""
    if partitions is None:
        return {}
    for topic in topics:
        if len(topic.partitions) > partitions:
            raise failure(
                f"{topic.name} has {plural(len(topic.partitions), 'partition')}, and partitions cannot be removed with "
                "their records. Create a topic with fewer, and copy the records to it"
            )
    return {topic.name: NewPartitions(partitions) for topic in topics if len(topic.partitions) < partitions}


Values = Mapping[tuple[str, str], str | None]
"""By topic and setting."""


async def _settings(admin: Admin, topics: list[TopicMetadata], wanted: Mapping[str, str | None]) -> Values:
    if not wanted:
        return {}
    asked = [ConfigResource(ConfigResourceType.TOPIC, topic.name, list(wanted)) for topic in topics]
    return {
        (described.name, name): entry.value
        for described in await admin.describe_configs(asked)
        for name, entry in described.configs.items()
    }


async def tell_without_effect(admin: Admin, topic: str, given: Sequence[str]) -> None:
    """Print a word about each of these settings that has no effect: semel takes some of Kafka's for the sake of tools.

    Silent if the user may not describe the settings: they are set, and the word is no reason to fail.
    """
    if not given:
        return
    asked = ConfigResource(ConfigResourceType.TOPIC, topic, given)
    try:
        (described,) = await admin.describe_configs([asked], include_documentation=True)
    except TopicAuthorizationFailedError:
        return
    for name, entry in described.configs.items():
        if (entry.documentation or "").startswith(NO_EFFECT):
            say(f"{name} has no effect: {(entry.documentation or '').removeprefix(NO_EFFECT)}", err=True)


async def _check_names(admin: Admin, topics: list[TopicMetadata], missing: list[str]) -> None:
    """Raise ClickException for a setting to unset that topics do not have. The broker accepts any name."""
    if missing:
        (described,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topics[0].name)])
        raise failure(
            f"--unset {missing[0]}: topics have no such setting.{similar(missing[0], described.configs)} "
            "`semel topic describe TOPIC --all-configs` lists all settings"
        )


def _told(
    topics: list[TopicMetadata],
    partitions: int | None,
    settings: Mapping[str, str | None],
    before: Values,
    after: Values,
) -> list[str]:
    """A line for each change."""
    lines = []
    for topic in topics:
        for name, value in settings.items():
            default = after.get((topic.name, name))
            follows = "has its default" if default is None else f"has its default, {default}"
            is_now = follows if value is None else f"= {value}"
            lines.append(f"{topic.name}: {name} {is_now} (was {before.get((topic.name, name))})")
        if partitions is not None:
            had = len(topic.partitions)
            was = "unchanged" if had == partitions else f"had {had}"
            lines.append(f"{topic.name}: {plural(partitions, 'partition')} ({was})")
    return lines
