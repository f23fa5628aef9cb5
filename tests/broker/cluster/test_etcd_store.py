"""The etcd store while etcd is unreachable, paused or slow, or answers wrongly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from time import monotonic

import msgspec
import pytest
import uvloop
from broker.bench import until
from broker.cluster.scripted_etcd import Answer, ScriptedEtcd, body, body_and_close, chunks, close, says, silence
from broker.cluster.store_setups import EtcdStoreSetup, world
from semel_broker.cluster.etcd import messages as etcd_messages
from semel_broker.cluster.etcd import store as etcd_store
from semel_broker.cluster.etcd import watch as etcd_watch
from semel_broker.cluster.etcd.connection import EtcdEndpoint
from semel_broker.cluster.etcd.session import EtcdSession
from semel_broker.cluster.etcd.store import EtcdStore
from semel_broker.cluster.store import (
    ABSENT,
    Changes,
    CompactedError,
    Expect,
    OutcomeUnknownError,
    Put,
    RemovedKey,
    SessionEndedError,
    StoreClosedError,
    StoreEntry,
    StoreError,
    StoreUnavailableError,
    Watch,
)
from semel_broker.scheduling.eager import begin
from support.etcd import EtcdProcess, free_ports

SOON_S = 20
EMPTY = '{"header":{"revision":"7"}}'
NO_LEADER = '{"error":"etcdserver: no leader","code":14,"message":"etcdserver: no leader"}'


@pytest.fixture
async def store_setup(etcd_process: EtcdProcess) -> AsyncIterator[EtcdStoreSetup]:
    store_setup = EtcdStoreSetup(etcd_process)
    yield store_setup
    await store_setup.close()


def over(*urls: str, timeout_ms: float = 5_000) -> EtcdStore:
    return EtcdStore(urls, namespace="/semel-tests/lies", world=world(), request_timeout_ms=timeout_ms)


async def following(watch: Watch) -> Changes:
    async with asyncio.timeout(SOON_S):
        return await anext(watch)


def dead() -> str:
    return f"http://127.0.0.1:{free_ports(1)[0]}"


# --- a real etcd that goes away ---


async def test_an_etcd_that_is_down_raises_store_unavailable_until_it_is_back(store_setup: EtcdStoreSetup) -> None:
    store = store_setup.another(request_timeout_ms=400)
    start = await store.transact([], [Put("k", b"1")])
    assert start is not None
    watch = store.watch("k", start)
    store_setup.process.kill()
    for refused in (store.get("k"), store.list(""), store.transact([], [Put("k", b"lost")]), store.open_session(5_000)):
        with pytest.raises(StoreUnavailableError, match=store_setup.process.url.removeprefix("http://")):
            await refused
    await asyncio.to_thread(store_setup.process.start)
    assert await store.get("k") == StoreEntry("k", b"1", start)
    assert await store.transact([Expect("k", start)], [Put("k", b"2")]) == start + 1
    assert (await following(watch)).changes == (StoreEntry("k", b"2", start + 1),)
    await store.close()


async def test_a_paused_etcd_ends_the_session_at_its_deadline_and_costs_the_watch_nothing(
    store_setup: EtcdStoreSetup,
) -> None:
    store = store_setup.another(request_timeout_ms=400)
    session = await store.open_session(1_000)
    start = await store.transact([], [Put("brokers/1", b"", session.lease)])
    assert start is not None
    watch = store.watch("", start)
    store_setup.process.pause()
    try:
        with pytest.raises(StoreUnavailableError):
            await store.get("brokers/1")
        with pytest.raises(OutcomeUnknownError):  # it lies in a socket of etcd's, which may yet read it
            await store.transact([Expect("k", ABSENT)], [Put("k", b"")])
        async with asyncio.timeout(SOON_S):
            await session.ended()
        assert session.has_ended
    finally:
        store_setup.process.resume()
    told: list[StoreEntry | RemovedKey] = []  # "k" among them or not, for etcd may have seen that its sender had left
    while "brokers/1" not in [each.key for each in told if isinstance(each, RemovedKey)]:
        told += (await following(watch)).changes
    assert await store.get("brokers/1") is None
    with pytest.raises(SessionEndedError):
        await store.transact([], [Put("brokers/1", b"", session.lease)])
    await (await store.open_session(5_000)).close()
    await store.close()


async def test_each_keep_alive_moves_the_deadline_counted_from_before_it_was_sent(store_setup: EtcdStoreSetup) -> None:
    before = monotonic()
    session = await store_setup.store.open_session(1_000)
    ttl_s = session._ttl_s
    assert before + ttl_s <= session.deadline <= monotonic() + ttl_s
    await store_setup.store.transact([], [Put("brokers/1", b"", session.lease)])
    deadlines = [session.deadline]
    while len(deadlines) < 5:  # five deadlines, a third of the lifetime apart: longer than the first one
        await asyncio.sleep(0.02)
        if session.deadline != deadlines[-1]:
            deadlines.append(session.deadline)
        assert session.deadline <= monotonic() + ttl_s
        assert not session.has_ended
    assert deadlines == sorted(deadlines)
    assert monotonic() > before + ttl_s
    assert await store_setup.store.get("brokers/1") is not None
    await session.close()
    assert await store_setup.store.get("brokers/1") is None


async def test_a_session_ends_when_its_lease_is_revoked(store_setup: EtcdStoreSetup) -> None:
    session = await store_setup.store.open_session(1_000)
    store_setup.process.call("/v3/lease/revoke", {"ID": str(session.lease)})
    async with asyncio.timeout(SOON_S):
        await session.ended()
    assert session.has_ended


async def test_a_watch_without_changes_follows_the_revision_and_survives_compaction(
    store_setup: EtcdStoreSetup,
) -> None:
    if not store_setup.process.tells_progress:
        pytest.skip("this etcd tells progress every ten minutes only")
    store = store_setup.store
    start = (await store.list("")).revision
    watch = store.watch("quiet/", start)
    waiting = asyncio.ensure_future(following(watch))
    await store.transact([], [Put("loud", b"1")])
    last = await store.transact([], [Put("loud", b"2")])
    assert last is not None
    async with asyncio.timeout(SOON_S):
        while watch.revision < last:
            await asyncio.sleep(0.02)
    store_setup.process.compact(last)
    await store_setup.crash()
    revision = await store.transact([], [Put("quiet/1", b"")])
    assert (await waiting).changes == (StoreEntry("quiet/1", b"", revision or 0),)


async def test_clusters_that_share_an_etcd_do_not_see_each_other(store_setup: EtcdStoreSetup) -> None:
    other = EtcdStore([store_setup.process.url], namespace=store_setup.namespace + "0", world=world())
    start = (await other.list("")).revision
    watch = other.watch("", start)
    await store_setup.store.transact([], [Put("k", b"1")])
    assert await other.get("k") is None
    assert (await other.list("")).entries == ()
    await other.transact([], [Put("mine", b"")])
    assert [each.key for each in (await following(watch)).changes] == ["mine"]
    await other.close()


def test_the_store_works_on_uvloop(etcd_process: EtcdProcess) -> None:
    async def run() -> None:
        store_setup = EtcdStoreSetup(etcd_process)
        session = await store_setup.store.open_session(60_000)
        revision = await store_setup.store.transact([], [Put("a", b"1", session.lease)])
        assert revision is not None
        watch = store_setup.store.watch("", revision)
        waiting = asyncio.ensure_future(following(watch))
        await store_setup.crash()
        await session.close()
        assert (await waiting).changes == (RemovedKey("a", revision + 1),)
        await store_setup.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())


async def test_a_keep_alive_that_is_answered_after_the_deadline_does_not_extend_the_session() -> None:
    """The process was paused past its deadline, and the answer is already in its socket."""
    now = 100.0

    async def keep_alive(lease: int, timeout_ms: float) -> int:
        nonlocal now
        now += 0.75
        assert session.has_ended
        return 1

    async def revoke(lease: int) -> None:
        raise AssertionError("it has ended already")

    paused = msgspec.structs.replace(world(), monotonic=lambda: now)
    session = EtcdSession(paused, lease=1, ttl_s=1, granted_at=99.5, keep_alive=keep_alive, revoke=revoke)
    assert not session.has_ended
    async with asyncio.timeout(SOON_S):
        await session.ended()
    assert session.has_ended
    assert session.deadline == 100.5
    await session.close()


async def test_a_store_can_be_closed_while_etcd_does_not_answer(store_setup: EtcdStoreSetup) -> None:
    store = store_setup.another(request_timeout_ms=300)
    session = await store.open_session(2_000)
    watch = store.watch("", 0)
    store_setup.process.pause()
    try:
        asking = asyncio.ensure_future(store.get("k"))
        await asyncio.sleep(0.01)  # the request is sent
        async with asyncio.timeout(SOON_S):
            await session.close()
            await store.close()
        with pytest.raises(StoreUnavailableError):
            await asking
        with pytest.raises(StoreClosedError):
            await following(watch)
    finally:
        store_setup.process.resume()


# --- several endpoints ---


async def test_requests_move_on_from_an_endpoint_that_is_down_or_does_not_answer(
    store_setup: EtcdStoreSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_store, "ATTEMPT_TIMEOUT_MS", 100)
    async with ScriptedEtcd(silence) as mute:
        store = EtcdStore([dead(), mute.url, store_setup.process.url], namespace=store_setup.namespace, world=world())
        assert await store.get("k") is None
        assert len(mute.requests) == 1
        revision = await store.transact([], [Put("k", b"")])  # by now it asks the third at once
        assert await store.get("k") == StoreEntry("k", b"", revision or 0)
        assert len(mute.requests) == 1
        await store.close()


async def test_a_silent_stream_is_opened_again_at_another_endpoint(
    store_setup: EtcdStoreSetup, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(etcd_watch, "QUIET_MS", 100)
    monkeypatch.setattr(etcd_watch, "OPEN_TIMEOUT_MS", 200)
    revision = await store_setup.store.transact([], [Put("k", b"1")])
    assert revision is not None
    created = b'{"result":{"header":{"revision":"%d"},"created":true}}\n' % revision
    async with ScriptedEtcd(chunks(created, 1000), silence) as dying:
        store = EtcdStore([dying.url, store_setup.process.url], namespace=store_setup.namespace, world=world())
        watch = store.watch("k", revision - 1)
        assert (await following(watch)).changes == (StoreEntry("k", b"1", revision),)
        assert len(dying.requests) == 2
        await store.close()


@pytest.mark.proves("watch-that-stands-still")
async def test_a_stream_that_is_behind_the_keep_alives_is_opened_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(etcd_watch, "QUIET_MS", 3_600_000)

    def line(value: object) -> bytes:
        return msgspec.json.encode({"result": value}) + b"\n"

    def created(revision: int) -> bytes:
        return line({"header": {"revision": str(revision)}, "created": True})

    event = {"kv": {"key": b"/semel-tests/lies/k", "value": b"5", "mod_revision": "5"}}
    beat = body(line({"header": {"revision": "5"}, "ID": "7", "TTL": "6"}).decode())
    again = created(5) + line({"header": {"revision": "5"}, "events": [event]})
    async with ScriptedEtcd(chunks(created(3), 1000), beat, beat, chunks(again, 1000), beat) as etcd:
        store = over(etcd.url)
        watch = store.watch("k", 3)
        reading = asyncio.create_task(following(watch))
        await until(lambda: watch._opened_at == 3)
        await store._keep_alive(7, 1_000)
        assert not reading.done()
        await store._keep_alive(7, 1_000)  # the revision of the keep-alive before has not arrived
        await until(reading.done)
        assert (await reading).changes == (StoreEntry("k", b"5", 5),)
        await store._keep_alive(7, 1_000)
        assert len(etcd.requests) == 5
        await store.close()


async def test_a_stream_that_is_both_silent_and_behind_ends_once() -> None:
    created = b'{"result":{"header":{"revision":"3"},"created":true}}\n'
    async with ScriptedEtcd(chunks(created, 1000)) as etcd:
        store = over(etcd.url)
        watch = store.watch("k", 3)
        await until(lambda: watch._silence is not None)
        assert watch._silence is not None
        watch._silence.reschedule(asyncio.get_running_loop().time())
        await asyncio.sleep(0)  # the time is over, and the reader has not noticed it yet
        watch.keep_up(5)
        await until(lambda: len(etcd.requests) == 2)
        await store.close()


# --- answers that are none ---


async def test_a_transaction_that_was_sent_and_not_answered_is_never_sent_again() -> None:
    answers: list[Answer] = [
        close,
        says(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{"),
        body("{", "200 OK"),
        body('{"code":14,"message":"etcdserver: request timed out"}', "503 Service Unavailable"),
        body("<html>", "502 Bad Gateway"),
    ]
    for answer in answers:
        async with ScriptedEtcd(answer, body(EMPTY)) as etcd, ScriptedEtcd(body(EMPTY)) as other:
            store = over(etcd.url, other.url, timeout_ms=300)
            with pytest.raises(OutcomeUnknownError, match="did not answer"):
                await store.transact([], [Put("k", b"")])
            assert (len(etcd.requests), len(other.requests)) == (1, 0)
            await store.close()


async def test_a_transaction_that_etcd_has_not_begun_is_repeated() -> None:
    done = body('{"header":{"revision":"8"},"succeeded":true}')
    async with ScriptedEtcd(body(NO_LEADER, "503 Service Unavailable"), done) as etcd:
        store = over(dead(), etcd.url)
        assert await store.transact([], [Put("k", b"")]) == 8
        assert len(etcd.requests) == 2
        await store.close()


async def test_an_idle_connection_that_etcd_has_closed_is_not_used_again() -> None:
    async with ScriptedEtcd(body_and_close(EMPTY), body('{"header":{"revision":"8"},"succeeded":true}')) as etcd:
        store = over(etcd.url)
        await store.list("")
        await asyncio.sleep(0.05)  # etcd's goodbye arrives; a transaction on this connection would be in doubt
        assert await store.transact([], [Put("k", b"")]) == 8
        await store.close()


async def test_a_read_is_repeated_after_any_failure() -> None:
    for answer in (close, says(b"SSH-2.0-OpenSSH_9.2\r\n\r\n\r\n"), body("<html>", "502 Bad Gateway"), body("[]")):
        async with ScriptedEtcd(answer, body(EMPTY)) as etcd:
            store = over(etcd.url)
            assert (await store.list("")).revision == 7
            assert len(etcd.requests) == 2
            await store.close()


async def test_the_reason_of_a_failure_is_not_hidden_by_a_last_attempt_that_ran_out_of_time() -> None:
    async with ScriptedEtcd(close, silence) as etcd:
        store = over(etcd.url, timeout_ms=200)
        with pytest.raises(StoreUnavailableError, match="before it carried a response"):
            await store.get("k")
        assert len(etcd.requests) == 2
        await store.close()


async def test_a_response_above_the_maximum_is_not_read() -> None:
    async with ScriptedEtcd(says(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999\r\n\r\n")) as etcd:
        store = over(etcd.url, timeout_ms=200)
        with pytest.raises(StoreUnavailableError, match="99999999999999 bytes"):
            await store.get("k")
        await store.close()


async def test_the_error_of_a_full_etcd_names_the_remedy() -> None:
    full = '{"code":8,"message":"etcdserver: mvcc: database space exceeded"}'
    async with ScriptedEtcd(body(full, "429 Too Many Requests")) as etcd:
        store = over(etcd.url)
        with pytest.raises(StoreError, match="compact and defragment"):
            await store.transact([], [Put("k", b"")])
        assert len(etcd.requests) == 1
        await store.close()


async def test_a_watch_reads_lines_however_they_are_cut_and_continues_after_an_error() -> None:
    def line(value: object) -> bytes:
        return msgspec.json.encode({"result": value}) + b"\n"

    key = b"/semel-tests/lies/k"
    events = [{"kv": {"key": key, "value": b"%d" % n, "mod_revision": str(n)}} for n in range(1, 6)]
    header = {"header": {"revision": "9"}}
    told = line({**header, "created": True}) + line({**header, "events": events[:2]}) + b"\n"
    told += line({**header, "events": events[2:3]})
    error = b'{"error":{"grpc_code":14,"message":"etcdserver: no leader"}}\n'
    for size in (1, 2, 7, 100, 10_000):
        again = chunks(line({**header, "created": True}) + line({**header, "events": events[1:]}), size)
        async with ScriptedEtcd(chunks(told + error, size), again) as etcd:
            store = over(etcd.url)
            watch = store.watch("k", 0)
            seen: list[StoreEntry | RemovedKey] = []
            while len(seen) < 5:
                seen += (await following(watch)).changes
            assert seen == [StoreEntry("k", b"%d" % n, n) for n in range(1, 6)]
            assert [
                '"start_revision":1,' in etcd.requests[0],
                '"start_revision":4,' in etcd.requests[1],
            ] == [True] * 2
            await store.close()


async def test_a_watch_that_etcd_cancels_continues_unless_it_was_compacted() -> None:
    canceled = b'{"result":{"header":{"revision":"9"},"canceled":true,"cancel_reason":"etcdserver: no leader"}}\n'
    compacted = b'{"result":{"header":{},"canceled":true,"compact_revision":"5"}}\n'
    async with ScriptedEtcd(chunks(canceled, 100), chunks(compacted, 100)) as etcd:
        store = over(etcd.url)
        with pytest.raises(CompactedError, match="from 5 on"):
            await following(store.watch("k", 3))
        assert len(etcd.requests) == 2
        await store.close()


def test_endpoints_are_checked_when_given() -> None:
    assert str(EtcdEndpoint.parse("http://etcd:2379")) == "etcd:2379"
    assert EtcdEndpoint.parse("https://[::1]/") == EtcdEndpoint("::1", 2379, is_tls=True)
    for url in ("etcd:2379", "http://", "http://a:b", "http://etcd/v3", "", "http://a..b", "http://é"):
        with pytest.raises(ValueError, match=r"etcd endpoint|[Pp]ort"):
            EtcdEndpoint.parse(url)
    with pytest.raises(ValueError, match="https endpoint"):
        over("https://etcd:2379")
    with pytest.raises(ValueError, match="no etcd endpoint"):
        over()


def test_large_numbers_of_etcd_are_read_exactly() -> None:
    lease = msgspec.json.decode(
        b'{"ID":"7587883212297104641","TTL":"6"}', type=etcd_messages.LeaseResponse, strict=False
    )
    assert (lease.lease, lease.ttl_s) == (7587883212297104641, 6)


async def test_the_store_can_be_called_by_a_request_that_has_no_task(store_setup: EtcdStoreSetup) -> None:
    """A handler runs without a task until its first wait (`eager.py`).

    CreateTopics calls the store first, and a time limit there needs a task.
    """
    loop = asyncio.get_running_loop()
    begun: asyncio.Future[int | asyncio.Task[int]] = loop.create_future()

    def data_received() -> None:
        assert asyncio.current_task() is None
        try:
            begun.set_result(begin(store_setup.store.transact([], [Put("a", b"1")]), loop))
        except RuntimeError as error:
            begun.set_exception(error)

    loop.call_soon(data_received)
    transaction = await begun
    assert isinstance(transaction, asyncio.Task)
    await transaction
    entry = await store_setup.store.get("a")
    assert entry is not None
    assert entry.value == b"1"
