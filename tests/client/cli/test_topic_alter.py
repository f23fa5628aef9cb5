"""`semel topic alter`, `semel group reset` and `delete` against a broker process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from client.shell import Shell
from semel import Consumer
from support.against import outside
from support.processes import BrokerProcess


@pytest.fixture(scope="module")
def semel(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    if there := outside(request):
        yield Shell(there)
        return
    process = BrokerProcess(tmp_path_factory.mktemp("broker"), **{"group.initial.rebalance.delay.ms": "0"}).start()
    yield Shell(process)
    assert process.stop() == 0


def settings(semel: Shell, topic: str) -> dict[str, str]:
    """The settings with a value of their own."""
    rows = (line.split() for line in semel("topic", "describe", topic).splitlines())
    return {row[0]: row[1] for row in rows if len(row) == 3 and row[2] == "topic"}


def test_settings_that_are_not_named_stay_and_unset_ones_follow_their_default(semel: Shell) -> None:
    semel("topic", "create", "settings", "-c", "retention.ms=5000", "-c", "segment.bytes=2000000")
    out = semel("topic", "alter", "settings", "-c", "retention.ms=6000", "-c", "retention.bytes=9")
    assert out.splitlines() == [
        "settings: retention.ms = 6000 (was 5000)",
        "settings: retention.bytes = 9 (was -1)",
    ]
    assert settings(semel, "settings") == {"retention.bytes": "9", "retention.ms": "6000", "segment.bytes": "2000000"}
    out = semel("topic", "alter", "settings", "-u", "retention.ms")
    assert out == "settings: retention.ms has its default, 604800000 (was 6000)\n"
    assert settings(semel, "settings") == {"retention.bytes": "9", "segment.bytes": "2000000"}


def test_topics_get_more_partitions_and_never_fewer(semel: Shell) -> None:
    semel("topic", "create", "small", "-p", "1")
    semel("topic", "create", "large", "-p", "3")
    assert semel("topic", "alter", "small", "large", "-p", "3").splitlines() == [
        "small: 3 partitions (had 1)",
        "large: 3 partitions (unchanged)",
    ]
    assert "3 partitions" in semel("topic", "describe", "small")
    assert "small has 3 partitions, and partitions cannot be removed" in semel.fails(
        "topic", "alter", "small", "-p", "2"
    )


def test_a_dry_run_finds_what_is_wrong_and_changes_nothing(semel: Shell) -> None:
    semel("topic", "create", "dry")
    out = semel("topic", "alter", "dry", "-p", "2", "-c", "retention.ms=1", "--dry-run")
    assert out.splitlines()[-1] == "Possible. Nothing was changed."
    assert "1 partition" in semel("topic", "describe", "dry")
    assert settings(semel, "dry") == {}
    wrong = ("topic", "alter", "dry", "-c", "retention.ms=soon", "--dry-run")
    assert "soon" in semel.fails(*wrong)


def test_an_impossible_change_changes_nothing(semel: Shell) -> None:
    semel("topic", "create", "whole", "-p", "2")
    semel.fails("topic", "alter", "whole", "-p", "1", "-c", "retention.ms=1")
    semel.fails("topic", "alter", "whole", "-p", "3", "-c", "retention.ms=soon")
    semel.fails("topic", "alter", "whole", "nobodys", "-p", "3", "-c", "retention.ms=1")
    assert "2 partitions" in semel("topic", "describe", "whole")
    assert settings(semel, "whole") == {}


@pytest.mark.semel_only("the broker finds the nearest name")
def test_the_nearest_setting_is_named_and_the_sentence_ends_once(semel: Shell) -> None:
    semel("topic", "create", "typo")
    assert "did you mean retention.ms? Check" in semel.fails("topic", "alter", "typo", "-c", "retntion.ms=1")


def test_a_setting_to_unset_that_does_not_exist_is_an_error_with_the_nearest_name(semel: Shell) -> None:
    semel("topic", "create", "unset")
    said = semel.fails("topic", "alter", "unset", "-u", "retntion.ms")
    assert "--unset retntion.ms: topics have no such setting. Did you mean 'retention.ms'" in said
    assert "topics have no such setting. `semel topic describe" in semel.fails("topic", "alter", "unset", "-u", "foo")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("topic", "alter", "t"), "--partitions, --config or --unset"),
        (("topic", "alter", "t", "-c", "a=1", "-u", "a"), "a: both set and unset"),
        (("group", "reset", "g"), "either --to or --by"),
        (("group", "reset", "g", "--to", "1", "--by", "1"), "either --to or --by"),
        (("group", "reset", "g", "--to", "noon"), "'noon' is neither earliest"),
        (("group", "reset", "nobody", "--to", "earliest"), "nobody has no committed offsets"),
        (("group", "reset", "nobody", "nothing", "--to", "1"), "Create the topic"),
        (("group", "delete", "nobody", "-y"), "Check the group's name"),
    ],
)
def test_mistakes_are_explained(semel: Shell, arguments: tuple[str, ...], says: str) -> None:
    assert says in semel.fails(*arguments)


def reader(semel: Shell, name: str, records: int = 10) -> None:
    """A topic of one partition, and a group that has read all of it, of the same name."""
    semel("topic", "create", name, "-p", "1")
    semel("produce", name, text="".join(f"{number}\n" for number in range(records)))
    semel("consume", name, "-g", name, "--from-beginning", "-e")


def next_of(semel: Shell, name: str) -> list[str]:
    return semel("consume", name, "-g", name, "-e").split()


def test_a_group_continues_at_the_offsets_that_were_set(semel: Shell) -> None:
    for to, expected in (
        (("--to", "earliest"), 0),
        (("--to", "4"), 4),
        (("--by", "-3"), 7),
        (("--to", "2000-01-01T00:00"), 0),
    ):
        name = f"from-{expected}-{to[1]}".replace(":", ".")
        reader(semel, name)
        out = semel("group", "reset", name, *to, "-y")
        assert f"1 offset of {name} set" in out
        assert next_of(semel, name) == [str(number) for number in range(expected, 10)]


def test_a_time_after_all_records_is_the_end(semel: Shell) -> None:
    reader(semel, "late")
    semel("group", "reset", "late", "--to", "earliest", "-y")
    semel("group", "reset", "late", "--to", "2100-01-01T00:00+02:00", "-y")
    assert next_of(semel, "late") == []


def test_offsets_outside_of_the_log_become_the_nearest_ones(semel: Shell) -> None:
    reader(semel, "far")
    assert "nearest to 99" in semel("group", "reset", "far", "--to", "99", "-y")
    assert "nearest to -90" in semel("group", "reset", "far", "--by", "-100", "-y")
    assert len(next_of(semel, "far")) == 10


def test_offsets_are_not_set_without_confirmation_or_in_a_dry_run(semel: Shell) -> None:
    reader(semel, "asked")
    assert "Nothing was changed." in semel("group", "reset", "asked", "--to", "0", "-n")
    assert "Set 1 offset of asked?" in semel.fails("group", "reset", "asked", "--to", "0", text="n\n")
    assert "Nothing to change." in semel("group", "reset", "asked", "--to", "latest")
    assert next_of(semel, "asked") == []


def test_only_the_named_offsets_are_set_and_a_missing_group_is_created(semel: Shell) -> None:
    semel("topic", "create", "two", "-p", "2")
    semel("group", "reset", "fresh", "two:1", "--to", "latest", "-y")
    described = semel("group", "describe", "fresh").splitlines()
    assert [line.split()[:3] for line in described if line.split()[:1] == ["two"]] == [
        ["two", "0", "-"],
        ["two", "1", "0"],
    ]


def test_offsets_of_deleted_topics_are_skipped(semel: Shell) -> None:
    semel("topic", "create", "stays", "-p", "2")
    semel("topic", "create", "goes")
    for name in ("stays:1", "goes"):
        semel("group", "reset", "both", name, "--to", "0", "-y")
    semel("topic", "delete", "goes", "-y")
    out = semel("group", "reset", "both", "--to", "earliest")
    assert "  goes " not in out
    assert "Nothing to change." in out
    semel("topic", "delete", "stays", "-y")
    said = semel.fails("group", "reset", "both", "--to", "earliest")
    assert "both has no committed offsets" in said or "all committed offsets are of deleted topics" in said


@pytest.mark.real_time
async def test_offsets_of_a_group_with_members_are_not_set_and_the_members_are_named(semel: Shell) -> None:
    await asyncio.to_thread(reader, semel, "busy")
    async with Consumer("busy", bootstrap_servers=semel.address, group_id="busy", client_id="waits-here") as consumer:
        while not consumer.assignment():
            await consumer.getmany(timeout_ms=100)
        said = await asyncio.to_thread(semel.fails, "group", "reset", "busy", "--to", "earliest", "-y")
        assert "busy has 1 member (waits-here on 127.0.0.1)" in said
        assert "stop them first" in said
        said = await asyncio.to_thread(semel.fails, "group", "delete", "busy", "-y")
        assert "stop them first" in said
    await asyncio.to_thread(semel, "group", "delete", "busy", "-y")
    assert "busy" not in (await asyncio.to_thread(semel, "group", "list", "-q")).split()
    assert "busy does not exist" in await asyncio.to_thread(semel, "group", "delete", "busy", "-y", "--if-exists")
