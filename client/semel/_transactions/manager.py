"""The transactions of one producer: the application's calls, their order, and the consequences of errors.

A commit or abort runs in a task of its own until its outcome is known. A caller that times out or is cancelled does not
change the outcome. It learns the outcome with its next call.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Mapping
from typing import Any, NoReturn

from semel._config.producer import ProducerConfig
from semel._net.cluster import Cluster
from semel._produce.counters import ProducerTransactionCounters
from semel._produce.sender import Sender
from semel._produce.transaction_state import (
    ErrorEffect,
    State,
    TransactionState,
    is_not_ongoing,
    verdict_on,
)
from semel._transactions.commit_outcome import CommitOutcome, discard_exception
from semel._transactions.coordinator import TransactionCoordinator
from semel._transactions.fencing import fenced, forgotten, is_committed
from semel.errors import (
    BrokerResponseError,
    CommitFailedError,
    FencedInstanceIdError,
    FencedMemberEpochError,
    GroupIdNotFound,
    IllegalGenerationError,
    IllegalStateError,
    InvalidProducerEpoch,
    InvalidProducerIdMapping,
    KafkaError,
    ProducerClosed,
    ProducerFenced,
    RebalanceInProgressError,
    StaleMemberEpochError,
    TransactionAborted,
    TransactionWasCommitted,
    UnknownMemberIdError,
)
from semel.structs import ConsumerGroupMetadata, OffsetAndMetadata, PreparedTransaction, TopicPartition

log = logging.getLogger(__name__)

UNKNOWN_OUTCOME = "Its last transaction may be committed: look for its records before you repeat it"
GROUP_HAS_MOVED_ON = (
    IllegalGenerationError,
    UnknownMemberIdError,
    RebalanceInProgressError,
    FencedInstanceIdError,
    StaleMemberEpochError,
    FencedMemberEpochError,
    GroupIdNotFound,
)


class ProducerTransactions:
    """The transactions of one producer, one after the other. `init` is the first call, `close` the last."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        sender: Sender,
        state: TransactionState,
        counters: ProducerTransactionCounters,
    ) -> None:
        assert sender.manager is not None
        self._counters = counters
        self._cluster, self._config, self._sender = cluster, config, sender
        self._state, self._manager = state, sender.manager
        self._coordinator = TransactionCoordinator(cluster, config, sender.manager)
        self._commit_outcome: CommitOutcome | None = None
        self._enrolling: asyncio.Task[None] | None = None
        self._committing_offsets: dict[asyncio.Task[None], None] = {}
        self._closed = False
        sender.enrol = self._enrol

    # Calls of the application

    async def init(self) -> None:
        """Initialise the transactional id once: fence older producers and abort their open transaction.

        Raises KafkaTimeoutError (max_block_ms), InvalidTransactionTimeout, TransactionalIdAuthorizationFailed.
        """
        if self._state.state is State.UNINITIALIZED:
            with self._counters.time("init"):
                await self._new_epoch(resume=False)
        self._state.check_usable()

    async def begin(self) -> None:
        """Begin a transaction. Raises IllegalStateError inside a transaction, and while the last commit's outcome is
        unknown.
        """
        ending = self._commit_outcome
        if ending is not None and ending.commit:
            raise IllegalStateError(
                "begin_transaction(): the outcome of the last commit is not known; call commit_transaction() again to "
                "learn it, or abort_transaction() to abort if that is still possible"
            )
        if ending is not None:
            await self._outcome(ending)
        state = self._state
        with self._counters.time("begin"):
            if state.state is State.READY and state.needs_new_epoch:
                await self._new_epoch(resume=True)
            state.begin(self._coordinator.version)
        self._counters.begun += 1

    async def commit(self) -> None:
        """Store every record and commit. Called again, it waits for the same commit.

        Raises TransactionHasFailed when the transaction can only be aborted, KafkaTimeoutError (max_block_ms) while the
        commit continues, and the error that ended the producer, such as ProducerFenced.
        """
        ending = self._commit_outcome
        if ending is None:
            self._state.start_commit()
            ending = self._start(self._commit(self._sender.flushed()), commit=True)
        elif not ending.commit:
            raise IllegalStateError("commit_transaction(): the transaction is being aborted; call abort_transaction()")
        with self._counters.time("commit"):
            await self._outcome(ending)

    def check_commits_itself(self, call: str) -> None:
        """Raise IllegalOperation in a step of a transaction group."""
        self._state.check_commits_itself(call)

    async def prepare(self) -> PreparedTransaction | None:
        """Store every record, for the group's driver to commit. None when nothing was sent. May be called again.

        Raises TransactionHasFailed when the transaction can only be aborted, TransactionAborted when another task
        aborts it, and the error that ended the producer, such as ProducerFenced.
        """
        is_new = self._state.state is not State.PREPARED
        self._state.start_prepare()
        await self._all_stored(self._sender.flushed())
        if self._state.state not in (State.PREPARING, State.PREPARED):
            raise TransactionAborted("abort_transaction() was called before the transaction was prepared")
        prepared = self._state.prepared(self._manager.producer_id, self._manager.producer_epoch)
        self._counters.prepared += is_new and prepared is not None
        return prepared

    async def abort(self) -> None:
        """Abort. Called again, it waits for the same abort. After a commit without an outcome, it finds that outcome.

        Raises TransactionWasCommitted when the commit has taken effect, KafkaTimeoutError, ProducerFenced.
        """
        ending = self._commit_outcome
        if ending is not None and ending.commit:
            await self._stop_commit(ending)
            ending = self._commit_outcome
        if ending is None:
            self._state.start_abort()
            ending = self._start(self._abort(), commit=False)
        with self._counters.time("abort"):
            await self._outcome(ending)

    def check_open(self) -> None:
        """Raise IllegalOperation outside of a transaction, TransactionHasFailed, and the error that ended the
        producer.
        """
        self._state.check_open()

    async def send_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        """Add a group's offsets to the transaction.

        Raises CommitFailedError when the group has rebalanced, DeletedTopicCommitError when the topic that was read was
        deleted, KafkaTimeoutError, ProducerFenced; the transaction can only be aborted then.
        """
        self._state.check_open()
        if not offsets:
            return
        task = asyncio.create_task(self._commit_offsets(offsets, group), name=f"offsets of {group.group_id}")
        self._committing_offsets[task] = None
        task.add_done_callback(self._offsets_done)
        # Cancelling the caller does not recall a request in flight. The commit waits for it.
        with self._counters.time("send-offsets"):
            await asyncio.wait([task])
        if task.cancelled():
            if self._closed:
                raise ProducerClosed("the producer was stopped before the offsets were part of the transaction")
            raise TransactionAborted("abort_transaction() was called before the offsets were part of the transaction")
        task.result()

    @property
    def is_fatal(self) -> bool:
        return self._state.state is State.ENDED

    async def close(self) -> None:
        """Abort a transaction that is open and not prepared, wait for a commit or abort within its timeout, and
        stop.
        """
        self._closed = True
        try:
            if self._state.state in (State.IN_TRANSACTION, State.PREPARING, State.ABORTABLE):
                self._state.start_abort()
                self._start(self._abort(), commit=False)
            if self._commit_outcome is not None:
                await asyncio.wait([self._commit_outcome.task], timeout=self._config.request_timeout_ms / 1000)
        finally:
            await self.leave()

    async def leave(self) -> None:
        """Stop at once. Another producer or the coordinator ends the open transaction."""
        self._closed = True
        await self._cancel([self._commit_outcome.task] if self._commit_outcome is not None else [])
        await self._cancel_requests()

    def cut(self) -> list[asyncio.Task[Any]]:
        """As `leave`, without an await. Returns the tasks, which are cancelled and end soon."""
        self._closed = True
        tasks: list[asyncio.Task[Any]] = self._requests()
        if self._commit_outcome is not None:
            tasks.append(self._commit_outcome.task)
        for task in tasks:
            task.cancel()
        return tasks

    # Commit and abort

    def _start(self, work: Coroutine[Any, Any, None], *, commit: bool) -> CommitOutcome:
        self._commit_outcome = CommitOutcome(
            commit, work, f"{'commit' if commit else 'abort'} of {self._state.transactional_id}"
        )
        return self._commit_outcome

    async def _outcome(self, ending: CommitOutcome) -> None:
        """Wait for a commit or abort for at most max_block_ms, and raise its error."""
        if not ending.task.done() and not await ending.over.wait(self._config.max_block_ms):
            call = "commit_transaction()" if ending.commit else "abort_transaction()"
            last = self._coordinator.last_error
            raise self._cluster.timed_out(
                f"{call}: the outcome is not known after max_block_ms={self._config.max_block_ms}; the request is "
                f"still being retried; call {call} again to learn it"
                + (", or abort_transaction() to give up" if ending.commit else "")
                + (f"; the last error: {last.message}" if last is not None else ""),
                self._config.max_block_ms,
            )
        if self._commit_outcome is ending:
            self._commit_outcome = None
        if ending.task.cancelled():
            if self._closed:
                raise ProducerClosed("the producer was stopped before the outcome of the transaction was known")
            raise TransactionAborted("abort_transaction() was called before the outcome of the commit was known")
        ending.task.result()

    async def _commit(self, stored: asyncio.Future[None]) -> None:
        # EndTxn is sent only after every Produce is answered. A Produce that fails after EndTxn was sent would leave a
        # committed transaction without some of its records.
        await self._all_stored(stored)
        state, new_epoch = self._state, False
        if state.touched:
            state.commit_sent = True
            doubt_before, self._coordinator.in_doubt = self._coordinator.in_doubt, False
            try:
                new_epoch = await self._coordinator.end(commit=True, version=state.version)
            except KafkaError as error:
                await self._commit_refused(error)
            finally:
                # A new epoch fences every earlier request that was not answered.
                self._coordinator.in_doubt = not new_epoch and (doubt_before or self._coordinator.in_doubt)
        self._close_transaction(new_epoch=new_epoch, committed=True)

    async def _all_stored(self, stored: asyncio.Future[None]) -> None:
        """Wait until all is stored. Raises TransactionHasFailed if something is not, and the error that ended the
        producer.
        """
        await stored
        if self._committing_offsets:
            await asyncio.wait(list(self._committing_offsets))
        cause = self._state.cause
        if isinstance(cause, InvalidProducerEpoch | ProducerFenced):
            # A partition has refused the epoch. Only the coordinator knows whether the producer is fenced.
            proof = await fenced(self._cluster, self._config, self._manager, cause)
            if proof is not None:
                self._end(proof)
        self._state.check_usable()

    async def _commit_refused(self, error: KafkaError) -> NoReturn:
        """Raise the consequence of a refused commit. An earlier try without an outcome may have committed."""
        if is_not_ongoing(error):
            await self._failed(self._not_open(error), abortable=True)
        elif not self._coordinator.maybe_done:
            await self._failed(error)
        else:
            (await self._failed(error, ends=True)).extend_message(UNKNOWN_OUTCOME)
        self._state.check_usable()
        raise error

    def _not_open(self, error: KafkaError) -> TransactionAborted:
        made = TransactionAborted(
            f"{error.message}: the coordinator has no such transaction open. It aborts one that is open for longer "
            f"than transaction_timeout_ms={self._config.transaction_timeout_ms}"
        )
        made.__cause__ = error
        return made

    async def _abort(self) -> None:
        await self._cancel_requests()
        self._sender.drop_waiting(TransactionAborted("the transaction is being aborted"))
        await self._sender.wait_for_answers()
        state, new_epoch = self._state, False
        if state.touched:
            try:
                new_epoch = await self._coordinator.end(commit=False, version=state.version)
            except KafkaError as error:
                if state.commit_sent:
                    await self._confirm_commit(error)
                if state.is_prepared:
                    await self._confirm_group_commit(error)
                if not is_not_ongoing(error) and verdict_on(error) is not ErrorEffect.RENEW:
                    raise await self._failed(error, ends=True) from None
                # Neither open nor committed: the coordinator never had the transaction, or has removed it.
                state.needs_new_epoch = True
        self._close_transaction(new_epoch=new_epoch, committed=False)

    async def _confirm_commit(self, error: KafkaError) -> NoReturn:
        """The coordinator refused an abort after a commit was sent. Sends the commit again to learn its outcome."""
        try:
            if not is_not_ongoing(error):
                raise error
            new_epoch = await self._coordinator.end(commit=True, version=self._state.version)
        except KafkaError as refusal:
            failure = await self._failed(refusal, ends=True)
            failure.extend_message(UNKNOWN_OUTCOME)
            raise failure from None
        self._close_transaction(new_epoch=new_epoch, committed=True)
        raise TransactionWasCommitted(
            f"the transaction of {self._state.transactional_id!r} cannot be aborted: it is committed"
        )

    async def _confirm_group_commit(self, error: KafkaError) -> NoReturn:
        """The coordinator refused the abort of a prepared transaction. Finds out whether its group has committed it."""
        is_fenced = verdict_on(error) is ErrorEffect.FENCED
        if is_not_ongoing(error) or (is_fenced and await is_committed(self._cluster, self._config, self._manager)):
            self._close_transaction(new_epoch=False, committed=True)
            raise TransactionWasCommitted(
                f"the transaction of {self._state.transactional_id!r} cannot be aborted: its group has committed it"
            )
        raise await self._failed(error, ends=True) from None

    def _close_transaction(self, *, new_epoch: bool, committed: bool) -> None:
        self._counters.committed += committed
        self._counters.aborted += not committed
        # Without a new epoch, an unanswered request could arrive during the next transaction. A driver that knows the
        # last transaction as prepared could commit the next one in its place.
        state = self._state
        state.needs_new_epoch = state.needs_new_epoch or state.is_prepared or self._coordinator.in_doubt
        state.closed(new_epoch=new_epoch)

    async def _stop_commit(self, ending: CommitOutcome) -> None:
        """Give up a commit. Returns when the transaction may be aborted, otherwise raises the commit's outcome."""
        await self._cancel([ending.task])
        if self._commit_outcome is ending:
            self._commit_outcome = None
        if not ending.task.cancelled():
            if ending.task.exception() is None:
                raise TransactionWasCommitted(
                    f"the transaction of {self._state.transactional_id!r} cannot be aborted: it is committed"
                )
            if self._state.state is not State.ABORTABLE:
                ending.task.result()

    # Parts of a transaction

    async def _new_epoch(self, *, resume: bool) -> None:
        try:
            await self._coordinator.init_producer_id(resume=resume, timeout_ms=self._config.max_block_ms)
        except KafkaError as error:
            if error.retriable:  # nothing has changed
                new = "create a new Producer and start it" if self._state.step is None else "join() the step again"
                again = "call begin_transaction() again" if resume else new
                error.extend_message(f"It is safe to try again: {again}")
                raise
            raise await self._failed(error, ends=True) from None
        self._state.initialized()
        self._sender.wake()

    def _enrol(self) -> None:
        """Add the wanted partitions to the transaction (transaction version 1)."""
        if self._enrolling is None:
            self._enrolling = asyncio.create_task(self._add_partitions(), name="AddPartitionsToTxn")
            self._enrolling.add_done_callback(discard_exception)

    async def _add_partitions(self) -> None:
        state = self._state
        try:
            while state.wanted and not state.must_abort:
                partitions = list(state.wanted)
                state.touched = True
                await self._coordinator.add_partitions(partitions)
                state.enrolled(partitions)
                self._sender.run()
        except KafkaError as error:
            await self._failed(error)
        finally:
            self._enrolling = None

    async def _commit_offsets(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], group: ConsumerGroupMetadata
    ) -> None:
        state, timeout_ms = self._state, self._config.max_block_ms
        try:
            state.touched = True
            if state.version < 2 and group.group_id not in state.groups:
                await self._coordinator.add_group(group.group_id, timeout_ms=timeout_ms)
                state.groups[group.group_id] = None
            await self._coordinator.commit_offsets(offsets, group, version=state.version, timeout_ms=timeout_ms)
        except KafkaError as error:
            failure = await self._failed(error)
            if isinstance(failure, GROUP_HAS_MOVED_ON):
                raise CommitFailedError(failure.message) from failure
            raise failure from None

    def _offsets_done(self, task: asyncio.Task[None]) -> None:
        self._committing_offsets.pop(task, None)
        discard_exception(task)

    # Errors

    async def _failed(self, error: KafkaError, *, abortable: bool = False, ends: bool = False) -> KafkaError:
        """Apply an error to the transaction. Returns the exception to raise, which may say more than `error`."""
        if self._state.state is State.ENDED:
            return self._state.end_error()
        verdict = verdict_on(error)
        if isinstance(error, InvalidProducerIdMapping):
            error = await forgotten(self._cluster, self._config, self._manager, error)
        if verdict is ErrorEffect.FENCED:
            assert isinstance(error, BrokerResponseError)
            error = await fenced(self._cluster, self._config, self._manager, error, proven=True) or error
            self._end(error)
        elif ends or (verdict is ErrorEffect.END and not abortable):
            self._end(error)
        else:
            self._state.fail(error, needs_new_epoch=abortable or verdict is ErrorEffect.RENEW)
            self._sender.wake()
        return error

    def _end(self, error: KafkaError) -> None:
        self._state.end(error)
        self._sender.end(error)

    async def _cancel_requests(self) -> None:
        await self._cancel(self._requests())

    def _requests(self) -> list[asyncio.Task[None]]:
        return [*self._committing_offsets, *([self._enrolling] if self._enrolling is not None else [])]

    async def _cancel(self, tasks: list[asyncio.Task[None]]) -> None:
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
