"""The registration of a broker in its cluster: its session, its broker epoch, and the deadline of its leaderships.

`register` opens a session, writes `brokers/<id>` under it, and waits until the controller has admitted that
registration. From then on, and only until the session's deadline, `is_valid` is true: this broker may lead. Its image
then has all changes up to the admission. So this broker knows that it has lost the leaderships of its earlier
registrations. When the session is lost, the listeners are called at once. Then the broker registers again with a new
session and a new broker epoch, until it is closed.

An entry under the same id may exist. If it has the directory id of this broker, it is an earlier registration of this
broker, because one process at a time uses the directory. It is replaced at once, and its key `controller` is removed.
Another directory id belongs to another broker. If that broker is dead, its session expires soon. If the session does
not expire, the other broker is alive and `register` raises NodeIdTakenError.
"""

from __future__ import annotations

import math
from asyncio import FIRST_COMPLETED, Event, Future, Task, get_running_loop, sleep, timeout, wait
from base64 import urlsafe_b64encode
from collections.abc import Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from semel_broker.cluster import elections, records
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import ImageDelta
from semel_broker.cluster.records import CONTROLLER, LEAVING, OFFLINE, BrokerRecord, ControllerRecord, Leaving, Offline
from semel_broker.cluster.store import (
    ABSENT,
    Change,
    Delete,
    Expect,
    OutcomeUnknownError,
    Put,
    Session,
    SessionEndedError,
    Store,
    StoreClosedError,
    StoreEntry,
    StoreError,
    StoreUnavailableError,
)
from semel_broker.config.loading import BrokerConfig, ConfigError
from semel_broker.world import World

RETRY_S: Final = 0.2
LOG_INTERVAL_S: Final = 5.0
WAIT_FOR_OTHER_S: Final = 0.5
OTHER_TTLS_MAX: Final = 2
"""Session timeouts after which the entry of another broker under this id proves that it is alive."""
LEAVE_TIMEOUT_MS: Final = 10_000

NOT_REGISTERED: Final = 0
NEVER: Final = -math.inf

_broker = msgspec.json.Decoder(BrokerRecord).decode
_controller = msgspec.json.Decoder(ControllerRecord).decode


class NodeIdTakenError(ConfigError):
    """Another live broker has this id. The message says which one."""


class Registration:
    """One per broker. Call `offline_changed` after each change of what `offline` and `hangs` return.

    Code that acts as a leader checks `is_valid` each time: a paused process may continue before its timers run.
    """

    def __init__(self, world: World, config: BrokerConfig, store: Store, feed: Feed) -> None:
        self.on_lost: list[Callable[[], None]] = []
        """Called as soon as this broker notices the end of its session; it registers again."""
        self.on_registered: list[Callable[[], None]] = []
        """Called when this broker has a broker epoch."""
        self.on_admitted: list[Callable[[], None]] = []
        """Called when it may lead."""
        self.offline: Callable[[], dict[str, list[int]]] = dict
        """Returns the partitions whose files this broker cannot use, by topic id."""
        self.hangs: Callable[[], bool] = lambda: False
        """Whether its disk hangs."""
        self.epoch = NOT_REGISTERED
        """The broker epoch: the revision of the registration."""
        self._world = world
        self._node_id = config.node_id
        self._ttl_ms = config.broker_session_timeout_ms
        self._store = store
        self._feed = feed
        self._note = world.log.info if config.is_clustered else world.log.debug  # alone, it has no other broker to join
        self._session: Session | None = None
        self._telling: Task[None] | None = None
        self._admitted: Session | None = None
        self._is_leaving = False
        self._task: Task[None] | None = None
        self._first: Future[None] | None = None
        self._replaced = Event()
        self._moved = Event()
        self._offline_changed = Event()
        feed.listeners.append(self._on_image_changed)

    # --- state ----------------------------------------------------------------------------------------------

    @property
    def node_id(self) -> int:
        return self._node_id

    @property
    def deadline(self) -> float:
        """The time until which this broker may act as a leader, in seconds of `World.monotonic`. Each answered
        keep-alive extends it.
        """
        return NEVER if self._admitted is None else self._admitted.deadline

    def is_valid(self) -> bool:
        """Whether this broker may act as a leader now: no other leader can have been elected in its place."""
        return self._admitted is not None and not self._admitted.has_ended

    @property
    def left_ms(self) -> int:
        """Milliseconds to the deadline of the session, admitted or not; 0: there is no session."""
        if self._session is None or self._session.has_ended:
            return 0
        return round(min(self._session.deadline - self._world.monotonic(), self._ttl_ms / 1000) * 1000)

    @property
    def lease(self) -> int | None:
        """The lease of the session, admitted or not; None: there is no session."""
        return None if self._session is None or self._session.has_ended else self._session.lease

    # --- joining and leaving ------------------------------------------------------------------------------------

    async def register(self, record: BrokerRecord) -> None:
        """Join the cluster with `record`, whose incarnation and offline partitions are set here. Returns once this
        broker is admitted.

        While the store cannot be reached, or there is no controller, it waits and logs this. Raises NodeIdTakenError.
        """
        assert self._task is None, "a broker registers once"
        assert record.node_id == self._node_id, (record.node_id, self._node_id)
        loop = get_running_loop()
        self._first = loop.create_future()
        self._task = loop.create_task(self._stay_registered(record), name="registration")
        try:
            while not (await wait((self._first,), timeout=LOG_INTERVAL_S))[0]:
                self._world.log.warning("waiting_for_admission", node_id=self._node_id, broker_epoch=self.epoch)
            self._first.result()
        except BaseException:
            await self.close()
            raise

    def offline_changed(self) -> None:
        """A partition went offline, or the disk hangs or goes on: the cluster learns it, and other replicas lead."""
        self._offline_changed.set()

    async def leave(self, timeout_ms: int = LEAVE_TIMEOUT_MS) -> None:
        """Leave the cluster: wait at most `timeout_ms` until other brokers lead this broker's partitions, and end the
        session.
        """
        self._is_leaving = True
        if self.is_valid() and elections.leave(self._feed.image, self._node_id):
            try:
                async with timeout(timeout_ms / 1000):
                    await self._let_others_lead()
            except TimeoutError:
                left = len(elections.leave(self._feed.image, self._node_id))
                self._world.log.warning("left_while_leading", partitions=left, timeout_ms=timeout_ms)
            except StoreError as error:
                self._world.log.warning("leaving_not_announced", error=str(error))
        await self.close()

    async def close(self) -> None:
        """End the session, in the store if it can be reached, and do not register again."""
        self._is_leaving = True
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await wait((self._task,))
        if self._first is not None:
            self._first.cancel()
        if self._on_image_changed in self._feed.listeners:
            self._feed.listeners.remove(self._on_image_changed)
        session = self._session
        self._forget_session()
        if session is not None:
            await self._end(session)

    async def _let_others_lead(self) -> None:
        session, epoch = self._session, self.epoch
        assert session is not None
        leaving = Put(f"{LEAVING}{self._node_id}", msgspec.json.encode(Leaving(epoch)), session.lease)
        await self._store.transact([Expect(records.broker_key(self._node_id), epoch)], [leaving])
        while self.epoch == epoch:
            self._moved.clear()
            if not elections.leave(self._feed.image, self._node_id):
                return
            await self._moved.wait()

    # --- the session -------------------------------------------------------------------------------

    async def _stay_registered(self, record: BrokerRecord) -> None:
        first = self._first
        assert first is not None
        while not self._is_leaving:
            try:
                await self._run_session(record)
            except SessionEndedError as error:
                self._world.log.info("not_registered", node_id=self._node_id, error=str(error))
            except Exception as error:
                if not first.done():
                    first.set_exception(error)
                    return
                if isinstance(error, StoreClosedError):
                    return
                self._world.log.exception("registration_failed", node_id=self._node_id)
                await sleep(RETRY_S)

    async def _run_session(self, record: BrokerRecord) -> None:
        """Open a session, register, and wait for its end. Raises SessionEndedError, NodeIdTakenError, StoreError."""
        session = await self._open_session()
        try:
            known = await self._enter(session, record)
            telling = self._tell_offline(session, known)
            self._telling = get_running_loop().create_task(telling, name="tell offline partitions")
            await self._until_ended(session)
        except Exception:
            self._session_lost()
            await self._end(session)
            raise
        self._session_lost()
        await self._end(session)

    async def _end(self, session: Session) -> None:
        """Close the session if it has not ended. This removes its keys if the store can be reached."""
        try:
            if not session.has_ended:
                await session.close()
        except StoreError as error:
            self._world.log.info("session_not_closed", error=str(error))

    async def _open_session(self) -> Session:
        while True:
            try:
                return await self._store.open_session(self._ttl_ms)
            except StoreUnavailableError as error:
                self._world.log.warning("store_unavailable", action="open a session", error=str(error))
                await sleep(RETRY_S)

    async def _enter(self, session: Session, record: BrokerRecord) -> dict[str, list[int]]:
        """Write the registration, and try again until it is written; the offline partitions that it names.

        Raises SessionEndedError, NodeIdTakenError.
        """
        incarnation = urlsafe_b64encode(self._world.rng.randbytes(16)).decode().rstrip("=")
        offline = self.offline()
        record = replace(record, incarnation=incarnation, offline=offline or msgspec.UNSET)
        self._session = session
        other = _OtherBroker(self._ttl_ms * OTHER_TTLS_MAX / 1000)
        while not session.has_ended:
            try:
                revision = await self._try_to_enter(session, record, other)
            except (StoreUnavailableError, OutcomeUnknownError) as error:
                self._world.log.warning("store_unavailable", action="register", error=str(error))
                await sleep(RETRY_S)
                continue
            if revision is not None:
                self.epoch = revision
                self._note("registered", node_id=self._node_id, broker_epoch=revision)
                self._notify(self.on_registered)
                self._compare()
                return offline
        raise SessionEndedError("the session ended before the broker was registered")

    async def _try_to_enter(self, session: Session, record: BrokerRecord, other: _OtherBroker) -> int | None:
        """Try once to write the registration. Returns the broker epoch, or None if the caller must try again."""
        key = records.broker_key(self._node_id)
        entry = await self._store.get(key)
        there = None if entry is None else _broker(entry.value)
        if entry is not None and there is not None:
            if there.incarnation == record.incarnation:
                return entry.revision  # an earlier attempt, whose answer was lost
            if there.directory_id != record.directory_id:
                await self._wait_for(other, entry, there)
                return None
        expects = [Expect(key, ABSENT if entry is None else entry.revision)]
        changes: list[Change] = [Put(key, msgspec.json.encode(record), session.lease)]
        if entry is not None:
            controller = await self._store.get(CONTROLLER)
            if controller is not None and _controller(controller.value).broker_epoch == entry.revision:
                expects.append(Expect(CONTROLLER, controller.revision))
                changes.append(Delete(CONTROLLER))
        return await self._store.transact(expects, changes)

    async def _wait_for(self, other: _OtherBroker, entry: StoreEntry, there: BrokerRecord) -> None:
        """Another broker has the id: pause, so that its session can expire. Raises NodeIdTakenError if it is alive."""
        now, is_new = self._world.monotonic(), other.revision == ABSENT
        if is_new:
            other.since = now
        assert self._first is not None
        is_alive = now - other.since > other.limit_s or (not is_new and entry.revision != other.revision)
        if is_alive and not self._first.done():
            raise NodeIdTakenError(
                f"node.id = {self._node_id}: broker {there.host}:{there.port} (directory {there.directory_id}) is "
                "registered under this id and alive. Give this broker an id of its own (--broker-id), or stop that one"
            )
        if is_new or is_alive:
            self._world.log.warning(
                "node_id_taken", node_id=self._node_id, host=there.host, port=there.port, waits_s=other.limit_s
            )
            other.since = now
        other.revision = entry.revision
        await sleep(WAIT_FOR_OTHER_S)

    async def _tell_offline(self, session: Session, known: dict[str, list[int]]) -> None:
        """Write the partitions that go offline during this session, and whether the disk hangs. The registration names
        the partitions of `known`.
        """
        epoch, hung = self.epoch, False
        expects = [Expect(records.broker_key(self._node_id), epoch)]
        while not session.has_ended:
            self._offline_changed.clear()
            offline, hangs = self.offline(), self.hangs()
            if (offline, hangs) == (known, hung):
                await self._offline_changed.wait()
                continue
            put = Put(f"{OFFLINE}{self._node_id}", msgspec.json.encode(Offline(epoch, offline, hangs)), session.lease)
            try:
                if await self._store.transact(expects, [put]) is None:
                    return  # the registration was replaced or removed: the next one names them
            except (SessionEndedError, StoreClosedError):
                return
            except StoreError as error:
                self._world.log.warning("store_unavailable", action="tell offline partitions", error=str(error))
                await sleep(RETRY_S)
                continue
            if offline != known:
                self._world.log.info(
                    "offline_partitions_told", node_id=self._node_id, partitions=sum(map(len, offline.values()))
                )
            if hangs is not hung:
                self._world.log.info("disk_state_told", node_id=self._node_id, hangs=hangs)
            known, hung = offline, hangs

    async def _until_ended(self, session: Session) -> None:
        """Wait until the session has ended, its deadline has passed, or the image shows another registration."""
        loop = get_running_loop()
        ended = loop.create_task(session.ended())
        replaced = loop.create_task(self._replaced.wait())
        try:
            while not (session.has_ended or self._replaced.is_set()):
                left_s = session.deadline - self._world.monotonic()
                limit_s = None if left_s == math.inf else max(0.0, left_s)
                await wait((ended, replaced), timeout=limit_s, return_when=FIRST_COMPLETED)
        finally:
            if not loop.is_closed():  # a closed loop has dropped its tasks
                ended.cancel()
                replaced.cancel()

    # --- changes of the image ----------------------------------------------------------------------------------------

    def _on_image_changed(self, delta: ImageDelta) -> None:
        self._moved.set()
        if delta.brokers:
            self._compare()

    def _compare(self) -> None:
        """Check whether the image shows this registration as admitted, replaced or removed."""
        image, session = self._feed.image, self._session
        if self.epoch == NOT_REGISTERED or session is None or image.revision < self.epoch:
            return
        stored = image.registration(self._node_id)
        if stored is None or stored.revision != self.epoch:
            self._replaced.set()  # removed or replaced: other brokers ignore the session, even if it lives
            self._admitted = None
        elif self._admitted is None and image.is_admitted(self._node_id):
            self._admitted = session
            self._note("admitted", node_id=self._node_id, broker_epoch=self.epoch)
            self._notify(self.on_admitted)
            if self._first is not None and not self._first.done():
                self._first.set_result(None)

    def _session_lost(self) -> None:
        was_registered = self.epoch != NOT_REGISTERED
        self._forget_session()
        self._moved.set()
        if was_registered:
            self._world.log.warning("session_lost", node_id=self._node_id)
            self._notify(self.on_lost)

    def _forget_session(self) -> None:
        self._session = self._admitted = None
        self.epoch = NOT_REGISTERED
        self._replaced.clear()
        if self._telling is not None:
            self._telling.cancel()
            self._telling = None

    def _notify(self, listeners: list[Callable[[], None]]) -> None:
        for listener in listeners:
            try:
                listener()
            except Exception:  # a bug of semel: the other listeners must be called
                self._world.log.exception("registration_listener_failed", listener=repr(listener))


class _OtherBroker(msgspec.Struct):
    """Another broker that has this id: the revision of its entry, and the time since when this broker waits for the end
    of its session (`since`, seconds, monotonic). After `limit_s` it counts as alive."""

    limit_s: float
    revision: int = ABSENT
    since: float = 0.0
