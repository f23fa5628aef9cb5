"""The contract of every store: compare-and-swap, watches without a gap, sessions, and the data after a crash."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from broker.cluster.store_setups import StoreSetup, build
from semel_broker.cluster import local_watch
from semel_broker.cluster.store import (
    ABSENT,
    CHANGES_MAX,
    Changes,
    CompactedError,
    Delete,
    Expect,
    Put,
    RemovedKey,
    SessionEndedError,
    Store,
    StoreClosedError,
    StoreEntry,
    Watch,
)

SOON_S = 20
"""An upper bound for each operation here on a busy machine. No test waits for this time to pass."""


@pytest.fixture(params=["memory", "file", "etcd"])
async def store_setup(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[StoreSetup]:
    monkeypatch.setattr(local_watch, "TRANSACTIONS_KEPT", 200)
    store_setup = build(request.param, tmp_path, request)
    yield store_setup
    await store_setup.close()


@pytest.fixture
def store(store_setup: StoreSetup) -> Store:
    return store_setup.store


async def put(store: Store, key: str, value: bytes = b"", lease: int = 0) -> int:
    revision = await store.transact([], [Put(key, value, lease)])
    assert revision is not None
    return revision


async def following(watch: Watch) -> Changes:
    async with asyncio.timeout(SOON_S):
        return await anext(watch)


async def keys(store: Store, prefix: str = "") -> list[str]:
    return [entry.key for entry in (await store.list(prefix)).entries]


# --- reading and writing ---


async def test_a_key_is_found_after_a_put_and_not_after_a_delete(store: Store) -> None:
    assert await store.get("a") is None
    first = await store.transact([], [Put("a", b"1"), Put("b", bytes(range(256)))])
    assert first is not None
    assert await store.get("a") == StoreEntry("a", b"1", first)
    assert await store.transact([], [Delete("a"), Delete("never was")]) == first + 1
    assert await store.get("a") is None
    assert await store.get("b") == StoreEntry("b", bytes(range(256)), first)


async def test_a_listing_is_everything_under_a_prefix_in_key_order(store: Store) -> None:
    await store.transact(
        [], [Put(key, b"") for key in ("t/b", "t/ä", "t/a/b", "t/a", "s", "u", "t0", "t/", "t/\U0010ffff")]
    )
    assert await keys(store, "t/") == ["t/", "t/a", "t/a/b", "t/b", "t/ä", "t/\U0010ffff"]
    assert await keys(store, "t/a") == ["t/a", "t/a/b"]
    assert await keys(store) == sorted(["t/b", "t/ä", "t/a/b", "t/a", "s", "u", "t0", "t/", "t/\U0010ffff"])
    assert await keys(store, "nothing") == []


async def test_a_large_value_and_an_empty_one_come_back(store: Store) -> None:
    await store.transact([], [Put("large", b"\xff\x00" * 500_000), Put("empty", b"")])
    large, empty = await store.get("large"), await store.get("empty")
    assert large is not None
    assert large.value == b"\xff\x00" * 500_000
    assert empty is not None
    assert empty.value == b""


async def test_the_revision_moves_by_one_with_each_transaction_that_changes_something(store: Store) -> None:
    first = await put(store, "a")
    assert await put(store, "a") == first + 1
    assert await store.transact([], []) == first + 1
    assert await store.transact([], [Delete("never was")]) == first + 1
    assert await store.transact([Expect("a", 1)], [Put("a", b"")]) is None
    assert (await store.list("")).revision == first + 1


async def test_of_several_changes_of_one_key_the_last_one_counts(store: Store) -> None:
    await store.transact([], [Put("a", b"1"), Put("a", b"2"), Put("b", b""), Delete("b")])
    listing = await store.list("")
    assert [(entry.key, entry.value) for entry in listing.entries] == [("a", b"2")]


async def test_a_transaction_has_a_bound_that_every_store_keeps(store: Store) -> None:
    await store.transact([Expect(f"{i}") for i in range(CHANGES_MAX)], [Put(f"{i}", b"") for i in range(CHANGES_MAX)])
    assert len(await keys(store)) == CHANGES_MAX
    with pytest.raises(AssertionError, match="at most"):
        await store.transact([], [Put(f"{i}", b"") for i in range(CHANGES_MAX + 1)])


# --- compare-and-swap ---


async def test_one_unmet_expectation_stops_all_changes(store: Store) -> None:
    first = await put(store, "a", b"1")
    assert await store.transact([Expect("a", first), Expect("b", first)], [Put("a", b"2")]) is None
    assert await store.transact([Expect("a", ABSENT)], [Put("a", b"2"), Put("c", b"")]) is None
    assert await store.get("c") is None
    assert await store.transact([Expect("a", first), Expect("b", ABSENT)], [Put("a", b"2")]) == first + 1


async def test_a_key_deleted_and_put_again_is_not_mistaken_for_the_old_one(store: Store) -> None:
    first = await put(store, "a", b"1")
    await store.transact([], [Delete("a")])
    await put(store, "a", b"1")
    assert await store.transact([Expect("a", first)], [Put("a", b"2")]) is None


async def test_of_many_claims_at_once_exactly_one_wins(store: Store) -> None:
    outcomes = await asyncio.gather(*(store.transact([Expect("a")], [Put("a", b"%d" % i)]) for i in range(20)))
    (winner,) = [i for i, outcome in enumerate(outcomes) if outcome is not None]
    assert await store.get("a") == StoreEntry("a", b"%d" % winner, outcomes[winner] or 0)


async def test_counters_that_are_raised_at_once_lose_no_step(store: Store) -> None:
    async def raise_them(times: int) -> None:
        for _ in range(times):
            while True:
                here, there = await store.get("here"), await store.get("there")
                expects = [Expect(k, e.revision if e else ABSENT) for k, e in (("here", here), ("there", there))]
                n = int(here.value) + 1 if here else 1
                if await store.transact(expects, [Put("here", b"%d" % n), Put("there", b"%d" % n)]) is not None:
                    break

    await asyncio.gather(*(raise_them(6) for _ in range(4)))
    assert [entry.value for entry in (await store.list("")).entries] == [b"24", b"24"]


# --- watches ---


async def test_a_watch_returns_whole_transactions_under_its_prefix_only(store: Store) -> None:
    start = (await store.list("")).revision
    watch = store.watch("t/", start)
    first = await store.transact([], [Put("t/a", b"1"), Put("s/a", b"x"), Put("t/b", b"2")])
    await put(store, "u/a")
    third = await store.transact([], [Delete("t/a"), Put("t/b", b"3")])
    assert first is not None
    assert third is not None
    told: list[StoreEntry | RemovedKey] = []
    while len(told) < 4:
        changes = await following(watch)
        assert changes.revision == changes.changes[-1].revision
        told += changes.changes
    by_key = sorted(told, key=lambda each: (each.revision, each.key))
    assert by_key == [
        StoreEntry("t/a", b"1", first),
        StoreEntry("t/b", b"2", first),
        RemovedKey("t/a", third),
        StoreEntry("t/b", b"3", third),
    ]
    assert [each.revision for each in told] == [first, first, third, third]
    assert watch.revision == third
    await watch.close()


async def test_a_watch_from_an_old_revision_returns_all_changes_since(store: Store) -> None:
    revisions = [await put(store, "k", b"%d" % i) for i in range(30)]
    watch = store.watch("k", revisions[9])
    told: list[StoreEntry | RemovedKey] = []
    while len(told) < 20:
        told += (await following(watch)).changes
    assert told == [StoreEntry("k", b"%d" % i, revisions[i]) for i in range(10, 30)]


async def test_no_change_is_left_out_between_a_listing_and_its_watch(store: Store) -> None:
    """Readers start while a writer works. Each listing and the changes after it result in the final state."""
    count = 60

    async def write() -> None:
        for i in range(count):
            await store.transact([], [Put(f"k/{i % 7}", b"%d" % i), Delete(f"k/{(i + 3) % 7}")])

    async def follow(pause: int) -> dict[str, bytes]:
        while (await store.list("k/")).revision < base + pause:
            await asyncio.sleep(0)
        listing = await store.list("k/")
        seen = {entry.key: entry.value for entry in listing.entries}
        last, watch = listing.revision, store.watch("k/", listing.revision)
        while last < base + count:
            for each in (await following(watch)).changes:
                assert last <= each.revision <= last + 1, "a transaction came twice, or was left out"
                last = each.revision
                if isinstance(each, RemovedKey):
                    seen.pop(each.key)
                else:
                    seen[each.key] = each.value
        await watch.close()
        return seen

    base = (await store.list("")).revision
    _, *seen = await asyncio.gather(write(), *(follow(pause) for pause in (0, 1, 10, 30, 59)))
    expected = {entry.key: entry.value for entry in (await store.list("k/")).entries}
    assert seen == [expected] * 5


async def test_a_reader_that_is_cancelled_while_it_waits_loses_nothing(store: Store) -> None:
    watch = store.watch("k", (await store.list("")).revision)
    revisions, told = [], []
    for i in range(40):
        if i % 2 == 0:
            revisions.append(await put(store, "k", b"%d" % i))
        try:
            async with asyncio.timeout(0.001 * (i % 3)):
                told += [each.revision for each in (await anext(watch)).changes]
        except TimeoutError:
            pass
    while len(told) < len(revisions):
        told += [each.revision for each in (await following(watch)).changes]
    assert told == revisions


async def test_a_watch_from_a_revision_that_is_yet_to_come_waits_for_it(store: Store) -> None:
    start = (await store.list("")).revision
    watch = store.watch("k", start + 2)
    for i in range(4):
        await put(store, "k", b"%d" % i)
    assert (await following(watch)).changes[0] == StoreEntry("k", b"2", start + 3)


async def test_a_compacted_watch_raises_compacted_and_a_new_listing_continues(
    store_setup: StoreSetup, store: Store
) -> None:
    old = await put(store, "k", b"1")
    await put(store, "k", b"2")
    await store_setup.forget()
    watch = store.watch("k", old)
    for _ in range(2):
        with pytest.raises(CompactedError, match="list again"):
            await following(watch)
    listing = await store.list("k")
    assert [entry.value for entry in listing.entries] == [b"2"]
    again = store.watch("k", listing.revision)
    await put(store, "k", b"3")
    assert [each.revision for each in (await following(again)).changes] == [listing.revision + 1]


async def test_closing_a_watch_ends_it_for_waiting_and_later_callers(store: Store) -> None:
    watch = store.watch("k", (await store.list("")).revision)
    waiting = asyncio.ensure_future(following(watch))
    await asyncio.sleep(0.05)  # the store could have answered
    assert not waiting.done()
    await put(store, "other")
    await watch.close()
    for ended in (waiting, following(watch)):
        with pytest.raises(StopAsyncIteration):
            await ended
    await watch.close()


async def test_closing_the_store_ends_its_watches_and_refuses_later_calls(store: Store) -> None:
    watch = store.watch("k", (await store.list("")).revision)
    waiting = asyncio.ensure_future(following(watch))
    await asyncio.sleep(0.05)  # the store could have answered
    writing = asyncio.ensure_future(store.transact([], [Put("k", b"1")]))
    await asyncio.sleep(0)
    await store.close()
    assert await writing is not None, "what was under way was not waited for"
    for refused in (waiting, following(watch), store.get("k"), store.list(""), store.transact([], [Put("k", b"")])):
        with pytest.raises(StoreClosedError):
            await refused
    with pytest.raises(StoreClosedError):
        store.watch("k", 0)
    with pytest.raises(StoreClosedError):
        await store.open_session(5_000)
    await store.close()


# --- sessions ---


async def test_closing_a_session_removes_its_keys_at_once_and_watches_see_it(store: Store) -> None:
    session = await store.open_session(60_000)
    await store.transact([], [Put("b/1", b"", session.lease), Put("b/2", b"", session.lease), Put("stays", b"")])
    before = session.has_ended
    watch = store.watch("b/", (await store.list("")).revision)
    await session.close()
    changes = await following(watch)
    assert sorted(changes.changes, key=lambda each: each.key) == [
        RemovedKey("b/1", changes.revision),
        RemovedKey("b/2", changes.revision),
    ]
    assert await keys(store) == ["stays"]
    async with asyncio.timeout(SOON_S):
        await session.ended()
    assert (before, session.has_ended) == (False, True)
    await session.close()


async def test_a_session_that_has_ended_writes_nothing(store: Store) -> None:
    session = await store.open_session(60_000)
    await session.close()
    with pytest.raises(SessionEndedError):
        await store.transact([], [Put("a", b"", session.lease), Put("b", b"")])
    assert await keys(store) == []


async def test_a_key_written_without_the_session_outlives_it(store: Store) -> None:
    one, other = await store.open_session(60_000), await store.open_session(60_000)
    assert one.lease != other.lease
    for key in ("kept", "handed over", "deleted"):
        await put(store, key, b"", one.lease)
    await store.transact([], [Put("kept", b""), Put("handed over", b"", other.lease), Delete("deleted")])
    await one.close()
    assert await keys(store) == ["handed over", "kept"]
    await other.close()
    assert await keys(store) == ["kept"]


async def test_the_keys_of_a_session_are_removed_when_its_process_dies(store_setup: StoreSetup, store: Store) -> None:
    """A client that follows the keys sees their removal, in its watch or in the listing after the watch has ended."""
    session = await store.open_session(1_000)
    await store.transact([], [Put("brokers/1", b"", session.lease), Put("brokers/2", b"")])
    before = (await store.list("brokers/")).revision
    recorder = await store_setup.holder_dies(session)
    watch = recorder.watch("brokers/", before)
    if recorder is store:
        assert (await following(watch)).changes == (RemovedKey("brokers/1", before + 1),)
    else:  # opened again after the crash, without what lies before
        with pytest.raises(CompactedError):
            await following(watch)
    assert await keys(recorder, "brokers/") == ["brokers/2"]
    assert (await recorder.list("")).revision == before + 1
    assert await recorder.transact([Expect("brokers/1", ABSENT)], [Put("brokers/1", b"next")]) is not None


# --- crashes ---


async def test_all_answered_changes_are_there_after_a_crash(store_setup: StoreSetup, store: Store) -> None:
    revisions = [await put(store, f"k/{i}", b"%d" % i) for i in range(20)]
    again = await store_setup.crash()
    listing = await again.list("k/")
    assert sorted(entry.revision for entry in listing.entries) == revisions
    assert listing.revision == revisions[-1]
    assert await again.transact([Expect("k/7", revisions[7])], [Put("k/7", b"new")]) == revisions[-1] + 1


async def test_a_watch_continues_without_a_gap_after_a_crash(store_setup: StoreSetup, store: Store) -> None:
    """The old watch continues if the store has survived. Otherwise the client lists and watches again."""
    first = await put(store, "k/1")
    watch = store.watch("k/", first)
    second = await put(store, "k/2")
    assert (await following(watch)).revision == second
    again = await store_setup.crash()
    if again is not store:
        listing = await again.list("k/")
        assert listing.revision == second
        watch = again.watch("k/", listing.revision)
    third = await put(again, "k/3")
    changes = await following(watch)
    assert changes.changes == (StoreEntry("k/3", b"", third),)
    assert third == second + 1
