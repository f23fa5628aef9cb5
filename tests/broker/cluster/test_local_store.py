"""The store of a single broker: compare-and-swap, durability, torn tails, damage."""

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from semel_broker.cluster import local_store
from semel_broker.cluster.local_store import (
    CorruptStoreError,
    LocalStore,
    StoreState,
    WrittenTransaction,
    frame,
    replay,
)
from semel_broker.cluster.store import ABSENT, Change, Delete, Expect, Put, StoreEntry
from semel_storage.disk.memory_disk import MemoryDisk

PATH = "data/semel.store"


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.mkdir("data")
    return disk


# --- compare-and-swap ---


async def test_a_key_is_found_after_a_put_and_not_after_a_delete(disk: MemoryDisk) -> None:
    store = LocalStore.open(disk, PATH)
    assert await store.get("a") is None
    assert await store.transact([], [Put("a", b"1"), Put("b", b"2")]) == 1
    assert await store.get("a") == StoreEntry("a", b"1", 1)
    assert await store.transact([], [Delete("a"), Delete("never was")]) == 2
    assert await store.get("a") is None
    assert await store.get("b") == StoreEntry("b", b"2", 1)


async def test_a_listing_has_the_prefix_in_key_order(disk: MemoryDisk) -> None:
    store = LocalStore.open(disk, PATH)
    await store.transact([], [Put(key, b"") for key in ("t/b", "t/a", "s", "u", "t/")])
    listing = await store.list("t/")
    assert [entry.key for entry in listing.entries] == ["t/", "t/a", "t/b"]
    assert listing.revision == 1


async def test_one_unmet_expectation_stops_all_changes(disk: MemoryDisk) -> None:
    store = LocalStore.open(disk, PATH)
    await store.transact([], [Put("a", b"1")])
    assert await store.transact([Expect("a", 1), Expect("b", 1)], [Put("a", b"2")]) is None
    assert await store.transact([Expect("a", ABSENT)], [Put("a", b"2")]) is None
    assert await store.transact([Expect("a", 1), Expect("b", ABSENT)], [Put("a", b"2")]) == 2
    assert await store.get("a") == StoreEntry("a", b"2", 2)


async def test_a_key_deleted_and_put_again_is_not_mistaken_for_the_old_one(disk: MemoryDisk) -> None:
    store = LocalStore.open(disk, PATH)
    await store.transact([], [Put("a", b"1")])
    await store.transact([], [Delete("a")])
    await store.transact([], [Put("a", b"1")])
    assert await store.transact([Expect("a", 1)], [Put("a", b"2")]) is None


async def test_one_of_many_concurrent_transactions_succeeds(disk: MemoryDisk) -> None:
    store = LocalStore.open(disk, PATH)
    claims = [store.transact([Expect("a")], [Put("a", b"%d" % i)]) for i in range(20)]
    outcomes = await asyncio.gather(*claims)
    assert [outcome for outcome in outcomes if outcome is not None] == [1]
    assert await store.get("a") == StoreEntry("a", b"%d" % outcomes.index(1), 1)


# --- durability ---


async def test_answered_transactions_survive_a_crash(disk: MemoryDisk) -> None:
    store = LocalStore.open(disk, PATH)
    for i in range(10):
        await store.transact([], [Put(f"k{i}", b"%d" % i)])
    disk.crash()
    again = LocalStore.open(disk, PATH)
    assert [entry.value for entry in (await again.list("k")).entries] == [b"%d" % i for i in range(10)]
    assert (await again.list("")).revision == 10


async def test_no_transaction_is_answered_before_it_is_synced(disk: MemoryDisk) -> None:
    store = LocalStore.open(disk, PATH)
    disk.hold_syncs()
    tasks = [
        asyncio.ensure_future(store.transact([], [Put("a", b"1")])),
        asyncio.ensure_future(store.transact([Expect("a")], [Put("a", b"2")])),
        asyncio.ensure_future(store.get("a")),
        asyncio.ensure_future(store.list("")),
    ]
    for _ in range(5):
        await asyncio.sleep(0)
    assert not any(task.done() for task in tasks)
    disk.release_syncs()
    assert await tasks[0] == 1
    assert await tasks[1] is None


async def test_a_watch_returns_no_change_before_it_is_synced(disk: MemoryDisk) -> None:
    store = LocalStore.open(disk, PATH)
    watch = store.watch("a", 0)
    waiting = asyncio.ensure_future(anext(watch))
    disk.hold_syncs()
    writing = asyncio.ensure_future(store.transact([], [Put("a", b"1")]))
    for _ in range(5):
        await asyncio.sleep(0)
    late = asyncio.ensure_future(anext(store.watch("a", 0)))
    await asyncio.sleep(0)
    assert not waiting.done()
    assert not late.done()
    disk.release_syncs()
    assert await writing == 1
    assert (await waiting).changes == (await late).changes == (StoreEntry("a", b"1", 1),)


async def test_transactions_that_arrive_during_a_sync_share_the_next_one(disk: MemoryDisk) -> None:
    store = LocalStore.open(disk, PATH)
    await asyncio.gather(*(store.transact([], [Put(f"k{i}", b"")]) for i in range(100)))
    assert replay(disk.read_bytes(PATH), PATH).frames <= 3  # the first state, the first to arrive, all the others


async def test_a_cancelled_caller_does_not_affect_the_others(disk: MemoryDisk) -> None:
    store = LocalStore.open(disk, PATH)
    disk.hold_syncs()
    leaving = asyncio.ensure_future(store.transact([], [Put("a", b"1")]))
    staying = asyncio.ensure_future(store.transact([], [Put("b", b"2")]))
    await asyncio.sleep(0)
    leaving.cancel()
    await asyncio.sleep(0)
    disk.release_syncs()
    assert await staying == 2
    assert await store.transact([], [Put("c", b"3")]) == 3


async def test_a_transaction_that_arrives_as_a_flush_ends_is_written(disk: MemoryDisk) -> None:
    store = LocalStore.open(disk, PATH)
    async with asyncio.timeout(5):
        for i in range(50):
            first = asyncio.ensure_future(store.transact([], [Put("a", b"%d" % i)]))
            for _ in range(i % 7):
                await asyncio.sleep(0)
            await store.transact([], [Put("b", b"%d" % i)])
            await first


# --- growth ---


async def test_a_journal_that_has_grown_is_replaced_by_its_state(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_store, "COMPACT_BYTES_MIN", 2000)
    store = LocalStore.open(disk, PATH)
    for i in range(500):
        await store.transact([], [Put("counter", b"%d" % i)])
        assert disk.size(PATH) < 4000
    disk.crash()
    assert await LocalStore.open(disk, PATH).get("counter") == StoreEntry("counter", b"499", 500)


# --- crashes and damage ---


def journal(count: int) -> tuple[bytes, list[int]]:
    """A journal of `count` transactions, and the position at which each of its frames ends."""
    data, ends = frame([StoreState(0, [])]), []
    ends.append(len(data))
    for revision in range(1, count + 1):
        data += frame([WrittenTransaction(revision, [("last", b"%d" % revision), (f"k{revision}", b"x" * revision)])])
        ends.append(len(data))
    return data, ends


def test_torn_tail_is_cut_at_every_byte() -> None:
    data, ends = journal(3)
    for cut in range(ends[2], ends[3]):
        for tail in (b"", bytes(7), b"\xff" * 7):
            found = replay(data[:cut] + tail, PATH)
            assert (found.revision, found.length) == (2, ends[2]), (cut, tail)


def test_one_damaged_byte_before_the_last_frame_is_refused_with_the_place() -> None:
    data, ends = journal(3)
    for at in range(ends[2]):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        with pytest.raises(CorruptStoreError, match=PATH):
            replay(bytes(damaged), PATH)


async def test_an_empty_file_is_damage_not_a_new_store(disk: MemoryDisk) -> None:
    disk.open(PATH).close()
    with pytest.raises(CorruptStoreError, match="restore it"):
        LocalStore.open(disk, PATH)


def test_a_journal_with_a_transaction_missing_is_refused() -> None:
    with pytest.raises(CorruptStoreError, match="does not follow"):
        replay(frame([StoreState(5, [])]) + frame([WrittenTransaction(7, [])]), PATH)


def test_a_frame_of_an_unknown_form_is_refused() -> None:
    payload_of_another_version = frame([StoreState(0, [])]).replace(b"state", b"stade")
    with pytest.raises(CorruptStoreError):
        replay(payload_of_another_version, PATH)


@pytest.mark.proves("partition-begins-empty")
async def test_damage_after_a_clean_close_is_not_taken_for_a_torn_tail(disk: MemoryDisk) -> None:
    store = LocalStore.open(disk, PATH)
    for i in range(5):
        await store.transact([], [Put(f"k{i}", b"value")])
    await store.close()
    whole = disk.read_bytes(PATH)
    assert replay(whole, PATH).frames == 1
    for size in range(len(whole)):
        disk.write_atomically(PATH, whole[:size])
        with pytest.raises(CorruptStoreError, match=PATH):
            LocalStore.open(disk, PATH)
    for at in range(len(whole)):
        disk.write_atomically(PATH, whole[:at] + bytes((whole[at] ^ 4,)) + whole[at + 1 :])
        with pytest.raises(CorruptStoreError, match=PATH):
            LocalStore.open(disk, PATH)
    disk.write_atomically(PATH, whole)
    assert len((await LocalStore.open(disk, PATH).list("")).entries) == 5


async def test_a_torn_tail_is_gone_after_opening(disk: MemoryDisk) -> None:
    data, ends = journal(3)
    disk.write_atomically(PATH, data[: ends[3] - 1])
    store = LocalStore.open(disk, PATH)
    assert await store.transact([], [Put("new", b"1")]) == 3
    disk.crash()
    entry = await LocalStore.open(disk, PATH).get("last")
    assert entry is not None
    assert entry.value == b"2"


KEYS = st.sampled_from(["a", "b", "c"])
CHANGES = st.lists(st.one_of(st.builds(Put, KEYS, st.binary(max_size=20)), st.builds(Delete, KEYS)), max_size=3)


@given(st.lists(st.tuples(CHANGES, st.sampled_from(["go on", "reopen", "crash"])), max_size=15), st.integers(0, 2000))
@settings(max_examples=60, deadline=None)
def test_the_store_behaves_as_a_durable_dict(steps: list[tuple[list[Change], str]], compact_bytes: int) -> None:
    """The model: each answered change exists after any sequence of crashes, reopenings and compactions."""

    async def run() -> None:
        disk = MemoryDisk()
        disk.mkdir("data")
        store, model, revision = LocalStore.open(disk, PATH), dict[str, bytes](), 0
        for changes, then in steps:
            last = {change.key: change for change in changes}
            revision += any(isinstance(change, Put) or change.key in model for change in last.values())
            assert await store.transact([], changes) == revision
            for change in changes:
                if isinstance(change, Put):
                    model[change.key] = change.value
                else:
                    model.pop(change.key, None)
            if then == "reopen":
                await store.close()
            if then == "crash":
                disk.crash()
            if then != "go on":
                store = LocalStore.open(disk, PATH)
            listing = await store.list("")
            assert {entry.key: entry.value for entry in listing.entries} == model
            assert listing.revision == revision

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_store, "COMPACT_BYTES_MIN", compact_bytes)
        patch.setattr(local_store, "COMPACT_FACTOR", 1)
        asyncio.run(run())
