"""`semel consume`: its start offsets, and its output of bytes that are not text."""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime

import pytest
from click.testing import CliRunner
from semel import ConsumerRecord, Producer
from semel.cli.consume.record_text import Form, as_json, by_pattern
from semel.cli.main import main
from semel.diagnose import StartPosition, StartPositionError, start_position
from semel_broker.testing.in_process import EphemeralBroker

NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000


def consume(broker: EphemeralBroker, *arguments: str) -> str:
    done = CliRunner().invoke(
        main, ["consume", "t", "-e", *arguments], env={"SEMEL_BOOTSTRAP_SERVER": broker.bootstrap_servers}
    )
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


async def fill(broker: EphemeralBroker) -> None:
    """t-0: 3 plain records, 30 aborted ones with their marker, 3 committed ones with theirs. t-1: one plain record."""
    servers = broker.bootstrap_servers
    async with (
        Producer(bootstrap_servers=servers) as plain,
        Producer(bootstrap_servers=servers, transactional_id="x") as producer,
    ):
        for number in range(3):
            await plain.send_and_wait("t", b"plain-%d" % number, partition=0)
        await plain.send_and_wait("t", b"other", partition=1)
        await producer.begin_transaction()
        for number in range(30):
            await producer.send("t", b"aborted-%d" % number, partition=0)
        await producer.flush()
        await producer.abort_transaction()
        async with producer.transaction():
            for number in range(3):
                await producer.send("t", b"committed-%d" % number, partition=0)


def test_the_last_records_are_counted_without_markers_and_aborted_ones(semel_broker: EphemeralBroker) -> None:
    semel_broker.create_topic("t", 2)
    asyncio.run(fill(semel_broker))
    last = ("-p", "0", "-o")
    committed = ["committed-0", "committed-1", "committed-2"]
    assert consume(semel_broker, *last, "-2").split() == committed[1:]
    assert consume(semel_broker, *last, "-4").split() == ["plain-2", *committed]
    assert consume(semel_broker, *last, "-1000").split() == ["plain-0", "plain-1", "plain-2", *committed]
    assert consume(semel_broker, *last, "-4", "--isolation", "read_uncommitted").split() == ["aborted-29", *committed]
    assert consume(semel_broker, *last, "-0") == ""
    assert sorted(consume(semel_broker, "-o", "-1").split()) == ["committed-2", "other"], "of each partition"


def test_a_start_before_now_is_a_time(semel_broker: EphemeralBroker) -> None:
    async def fill_by_time() -> None:
        now_ms = round(datetime.now(UTC).timestamp() * 1000)
        async with Producer(bootstrap_servers=semel_broker.bootstrap_servers) as producer:
            for age_h in (50, 3, 1):
                await producer.send_and_wait("t", b"%d" % age_h, partition=0, timestamp_ms=now_ms - age_h * HOUR_MS)

    semel_broker.create_topic("t", 1)
    asyncio.run(fill_by_time())
    assert consume(semel_broker, "-o", "-2h").split() == ["1"]
    assert consume(semel_broker, "-o", "-2d").split() == ["3", "1"]
    assert consume(semel_broker, "-o", "-600m").split() == ["3", "1"]
    assert consume(semel_broker, "-o", "-30m") == ""


def test_a_start_that_the_partitions_do_not_have_is_named_and_moved_into_their_range(
    semel_broker: EphemeralBroker,
) -> None:
    semel_broker.create_topic("t", 1)
    asyncio.run(_fill_plain(semel_broker, 4))
    CliRunner().invoke(main, ["topic", "truncate", "t", "-b", semel_broker.bootstrap_servers, "--before", "2", "--yes"])

    def consumed(*arguments: str) -> tuple[str, str]:
        given = ["consume", "t", "-b", semel_broker.bootstrap_servers, "-e", *arguments]
        done = CliRunner().invoke(main, given)
        assert done.exit_code == 0, done.output
        return done.stdout, done.stderr

    assert consumed("-o", "99") == ("", "t: 0: offset 99 is beyond the end, which is 4; starting at the end\n")
    assert consumed("-o", "0") == ("2\n3\n", "t: 0: offset 0 is deleted; starting at 2, the first one\n")
    assert consumed("-o", "3") == ("3\n", "")
    assert consumed("-o", "4") == ("", "")
    assert consumed("-o", "beginning") == ("2\n3\n", "")
    nothing = "--exit-at-end prints nothing when it starts at the end: add --from-beginning, or --offset -5\n"
    assert consumed("-o", "end") == consumed() == ("", nothing)
    assert consumed("-o", "2200-01-01") == ("", "t: 0: no record is so new; starting at the end\n")


async def _fill_plain(broker: EphemeralBroker, count: int) -> None:
    async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send_and_wait("t", b"%d" % number, partition=0)


def test_a_missing_topic_is_named_with_similar_ones(semel_broker: EphemeralBroker) -> None:
    semel_broker.create_topic("flights", 1)
    done = CliRunner().invoke(main, ["consume", "flihgts", "-b", semel_broker.bootstrap_servers])
    assert done.exit_code == 1
    assert "There is no topic 'flihgts'. Did you mean 'flights'?" in done.output


@pytest.mark.parametrize(
    ("words", "position"),
    [
        ("earliest", StartPosition(timestamp=-2)),
        ("beginning", StartPosition(timestamp=-2)),
        ("end", StartPosition(timestamp=-1)),
        ("7", StartPosition(offset=7)),
        ("-7", StartPosition(last=7)),
        ("-90s", StartPosition(timestamp=NOW_MS - 90_000)),
        ("-5min", StartPosition(timestamp=NOW_MS - 300_000)),
        ("-1w", StartPosition(timestamp=NOW_MS - 7 * 24 * HOUR_MS)),
        ("-999999w", StartPosition(timestamp=0)),
        ("2023-11-14T22:13:20", StartPosition(timestamp=NOW_MS)),
    ],
)
def test_a_start_is_parsed(words: str, position: StartPosition) -> None:
    assert start_position(words, NOW_MS, may_be_last=True) == position


@pytest.mark.parametrize("words", ["-", "--1", "-1y", "-h", "+1h", "-1.5h", ""])
def test_another_start_is_refused_with_the_forms(words: str) -> None:
    with pytest.raises(StartPositionError, match="-5 for the last 5 records"):
        start_position(words, NOW_MS, may_be_last=True)
    with pytest.raises(StartPositionError, match="neither earliest, latest, an offset nor a time such as"):
        start_position("-5", NOW_MS)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["-g", "G", "-o", "5"], "--offset 5 with --group"),
        (["-g", "G", "-o", "-1h"], "--offset -1h with --group"),
        (["-g", "G", "-p", "0"], "--partition 0 with --group"),
        (["--from-beginning", "-o", "5"], "give either --from-beginning or --offset 5"),
        (["-X", "group.id=G"], "give the group with --group"),
    ],
)
def test_a_refused_start_names_what_was_given(arguments: list[str], says: str) -> None:
    done = CliRunner().invoke(main, ["consume", "t", *arguments])
    assert done.exit_code == 2
    assert says in done.output


def record(key: bytes | None, value: bytes | None) -> ConsumerRecord[bytes | None, bytes | None]:
    return ConsumerRecord("t", 0, 5, 9, 0, key, value, None, 0, 0, (("h", value),))


def test_json_tells_bytes_that_are_no_text_from_a_text_that_looks_like_them() -> None:
    show = as_json(Form())
    binary, text = json.loads(show(record(None, b"\xff\xfe"))), json.loads(show(record(b"k", b"\\xff\\xfe")))
    assert binary["value"] == text["value"] == "\\xff\\xfe"
    assert binary["value_base64"] == "//4="
    assert binary["headers"] == [["h", "\\xff\\xfe", "//4="]]
    assert "value_base64" not in text
    assert text["headers"] == [["h", "\\xff\\xfe"]]
    assert (binary["key"], "key_base64" in binary) == (None, False)


def test_an_encoding_holds_for_keys_values_and_headers() -> None:
    assert by_pattern("%k|%v|%h", Form(encoding="hex"))(record(b"k", b"\xff")) == b"6b|ff|h=ff"
    shown = json.loads(as_json(Form(encoding="base64"))(record(b"k", b"\xff")))
    assert (shown["key"], shown["value"], shown["headers"]) == ("aw==", "/w==", [["h", "/w=="]])
    assert "value_base64" not in shown


def test_a_missing_key_or_value_differs_from_an_empty_one() -> None:
    pattern = "%k,%v,%K,%S"
    assert by_pattern(pattern, Form())(record(None, b"")) == b",,-1,0"
    assert by_pattern(pattern, Form(null=b"NULL"))(record(None, b"")) == b"NULL,,-1,0"
    assert by_pattern("%v\\n", Form(null=b"NULL"))(record(None, None)) == b"NULL\n"
    assert by_pattern("%v\\n", Form())(record(None, None)) == b"\n"


def test_names_of_headers_that_are_not_utf_8_are_printed() -> None:
    """A record that another client has written never ends the command."""
    foreign = ConsumerRecord("t", 0, 5, 9, 0, None, b"v", None, 0, 0, (("h\udcff", b"x"), ("\udcfe", None)))
    assert by_pattern("%v %h", Form())(foreign) == b"v h\xff=x,\xfe="
    for form in (Form(), Form(escaped=True)):
        assert json.loads(as_json(form)(foreign))["headers"] == [["h\\udcff", "x"], ["\\udcfe", None]]
    assert by_pattern("%h", Form(escaped=True))(foreign) == b"h\\xff=x,\\xfe="


def test_bytes_of_the_pattern_that_are_not_utf_8_are_printed_as_they_are() -> None:
    assert by_pattern("\udcff%v\udcfe", Form())(record(None, b"v")) == b"\xffv\xfe"
