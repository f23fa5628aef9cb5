"""Safeguards of the client: retries, outcomes of requests, and records returned to the application."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from semel._consume.fetcher import Fetcher, Named
from semel._group.consumer_group import AnyGroup, ConsumerGroup
from semel._group.group import ClassicGroup
from semel._group.member import GroupIdentity
from semel._group.offsets import Membership
from semel._net.connection import Connection
from semel._net.lifecycle import Lifecycle
from semel._produce.accumulator import Batch, PartitionQueue
from semel._produce.sequences import TransactionManager
from semel._produce.transaction_state import TransactionState
from semel._subscription.fetch_buffer import Chunk, Decoding, FetchBuffer
from semel._subscription.subscription import Subscription
from semel._transactions import coordinator as transaction_coordinator
from semel._transactions import groups as transaction_groups
from semel._transactions.coordinator import TransactionCoordinator
from semel._transactions.manager import ProducerTransactions
from semel.consumer import Consumer
from semel.errors import KafkaError
from semel.structs import TopicPartition
from semel_protocol.batch import BatchHeader
from semel_protocol.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from semel_protocol.records import Columns

from sim.ablations.ablation import Seam, both, faults, old_transactions, safeguard
from sim.ablations.occasions import lasting_readers, lost_outcome, refusals_amid_moves
from sim.ablations.worlds import any_connection, clients_that_keep_epochs, needless_rebalances
from sim.plan import RunPlan
from sim.workloads import CONSUMER_CHURN, CONSUMER_PIPELINE

TRANSACTIONAL = ("transactional", "pipeline")
LOSES_ANSWERS = faults("reset", "kill broker", "cut", "hold", "late", "power loss", "slow link")


def delays_of_writers_with_one_try(plan: RunPlan) -> bool:
    """Whether requests are delayed of a writer that gives up a batch after one failed try."""
    clients = [client for workload in plan.workloads for client in workload.clients if client.role == "writer"]
    one_try = [
        client.name
        for client in clients
        if client.settings["delivery_timeout_ms"]
        <= client.settings["request_timeout_ms"] + client.settings["linger_ms"]
        and client.settings["max_in_flight_requests_per_connection"] > 1
    ]
    return any(fault.kind == "late" and fault.host in one_try for fault in plan.faults)


@safeguard(
    "closings outlive their callers",
    "a consumer whose stop() is cancelled sends no more heartbeats, and leaves its group",
    "churn",
    CONSUMER_CHURN,
)
def closings(seam: Seam) -> None:
    def with_the_caller(self: Lifecycle) -> None:
        assert self._closing is not None
        self._closing.cancel()

    async def silent(self: Consumer) -> None:
        pass

    seam.replace(Lifecycle, "_hurry", with_the_caller)
    seam.replace(Consumer, "_last_words", silent)
    seam.replace(Consumer, "_cut", lambda self: [])


@safeguard("sequences are kept over retries", "the broker recognizes a batch that is sent again", shows=LOSES_ANSWERS)
def sequences_kept(seam: Seam) -> None:
    take = PartitionQueue.take

    def take_anew(self: PartitionQueue, connection: Connection, manager: TransactionManager | None) -> Batch:
        self.waiting[0].stamp = None
        return take(self, connection, manager)

    seam.replace(PartitionQueue, "take", take_anew)


@safeguard(
    "doubtful batches get no new epoch",
    "a batch that may be stored already is not sent again under a new epoch",
    "idempotent",
    shows=delays_of_writers_with_one_try,
)
def doubtful_batches(seam: Seam) -> None:
    rewind = PartitionQueue.rewind

    def bold(self: PartitionQueue, manager: TransactionManager) -> list[Batch] | None:
        return None if rewind(self, manager) is None else []

    seam.replace(PartitionQueue, "rewind", bold)


@safeguard(
    "older batches are settled before a refusal counts",
    "batches before one that is refused for good keep their numbers while they may be stored",
    "idempotent",
    brokers=3,
    occasion=refusals_amid_moves,
)
def older_batches_settled(seam: Seam) -> None:
    def broken_by(self: PartitionQueue, batch: Batch) -> None:
        self.needs_new_epoch = True

    seam.replace(PartitionQueue, "broken_by", broken_by)


@safeguard(
    "nothing overtakes a retry",
    "newer batches wait until a failed older batch is sent again",
    shows=LOSES_ANSWERS,
    needless="the partition's sequence check refuses a batch that has overtaken another; it is sent again, at a cost",
)
def nothing_overtakes(seam: Seam) -> None:
    def may_send(self: PartitionQueue, connection: object) -> bool:
        return bool(self.waiting) and not self.paused and not self.needs_new_epoch

    seam.replace(PartitionQueue, "may_send", may_send)


# Transactions


@safeguard(
    "a lost answer to a commit is no commit",
    "the client sends EndTxn again until the coordinator confirms the commit",
    *TRANSACTIONAL,
    shows=LOSES_ANSWERS,
)
def lost_answer_is_no_commit(seam: Seam) -> None:
    answer = TransactionCoordinator._answer

    async def hopeful(self: TransactionCoordinator, connection: Connection, message: Any, *args: Any) -> Any:
        try:
            return await answer(self, connection, message, *args)
        except KafkaError:
            if isinstance(message, EndTxnRequest) and message.committed:
                return EndTxnResponse(producer_id=-1, producer_epoch=-1)
            raise

    seam.replace(TransactionCoordinator, "_answer", hopeful)


@safeguard(
    "the outcome of a commit is confirmed",
    "after a commit without an answer, a refused abort makes the client ask for the commit's outcome",
    *TRANSACTIONAL,
    shows=LOSES_ANSWERS,
)
def commit_heard_out(seam: Seam) -> None:
    async def resigned(self: ProducerTransactions, error: KafkaError) -> None:
        """Take the refusal as the outcome: the transaction is not open, so it counts as aborted."""

    seam.replace(ProducerTransactions, "_confirm_commit", resigned)


@safeguard(
    "a commit waits for its records",
    "EndTxn is not sent before the records of its transaction are stored",
    *TRANSACTIONAL,
)
def commit_waits(seam: Seam) -> None:
    commit = ProducerTransactions._commit

    async def hasty(self: ProducerTransactions, stored: asyncio.Future[None]) -> None:
        sent: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sent.set_result(None)
        await commit(self, sent)

    seam.replace(ProducerTransactions, "_commit", hasty)


@safeguard(
    "a failed record fails its transaction", "a transaction with a missing record cannot be committed", *TRANSACTIONAL
)
def failed_record(seam: Seam) -> None:
    seam.replace(TransactionState, "fail", lambda self, error, *, needs_new_epoch=False: None)


@safeguard(
    "a new epoch after doubt",
    "an unanswered request of one transaction does not arrive in the next one",
    *TRANSACTIONAL,
    shows=both(old_transactions, LOSES_ANSWERS),
    given=any_connection,
)
def new_epoch_after_doubt(seam: Seam) -> None:
    clients_that_keep_epochs(seam)


@safeguard(
    "offsets are committed with the membership that read them",
    "the coordinator can refuse offsets of partitions that another member has got since",
    "pipeline",
)
def outdated_standing(seam: Seam) -> None:
    def transaction_membership(self: GroupIdentity) -> Membership:
        return self.membership

    seam.replace(GroupIdentity, "transaction_membership", property(transaction_membership))


@safeguard(
    "a new member id after a revocation in processing",
    "a member cannot commit records of revoked partitions in a generation that stays the same",
    "pipeline",
    given=needless_rebalances,
)
def joins_as_another(seam: Seam) -> None:
    async def join_as_before(self: ClassicGroup) -> None:
        pass

    seam.replace(ClassicGroup, "_join_as_another", join_as_before)


# Reading


@safeguard(
    "aborted records are left out",
    "a consumer does not return records that the broker lists as aborted",
    *TRANSACTIONAL,
)
def aborted_left_out(seam: Seam) -> None:
    seam.replace(Chunk, "is_aborted", lambda self, header: False)


@safeguard(
    "positions move over markers", "a consumer reaches the end of a partition that ends with a marker", *TRANSACTIONAL
)
def positions_over_markers(seam: Seam) -> None:
    decode_next = FetchBuffer._decode_next

    def forgetful(self: FetchBuffer, decoding: Decoding) -> None:
        before, count = self.next_offset, len(self.records)
        decode_next(self, decoding)
        if len(self.records) == count:
            self.next_offset = before

    seam.replace(FetchBuffer, "_decode_next", forgetful)


@safeguard(
    "records below the position are left out",
    "a consumer with a position inside a batch does not return the whole batch",
    "churn",
    "pipeline",
    "idempotent",
)
def below_position(seam: Seam) -> None:
    rows = FetchBuffer._rows

    def all_rows(self: FetchBuffer, columns: Columns, header: BatchHeader, decoding: Decoding) -> list[Any]:
        position, self.next_offset = self.next_offset, 0
        try:
            return rows(self, columns, header, decoding)
        finally:
            self.next_offset = position

    seam.replace(FetchBuffer, "_rows", all_rows)


@safeguard("fetched for another position", "the client drops the answer to a fetch that it sent before a seek")
def fetched_for_another(seam: Seam) -> None:
    accept = Fetcher._accept

    def credulous(self: Fetcher, node_id: int, named: Named, response: Any) -> None:
        now = {place: (state, state.buffer.fetch_offset or 0) for place, (state, _) in named.items()}
        accept(self, node_id, now, response)

    seam.replace(Fetcher, "_accept", credulous)


@safeguard(
    "the retry timer wakes all fetches",
    "partitions that were refused at different moments are all fetched again",
    brokers=3,
    occasion=lasting_readers,
)
def rings_for_all(seam: Seam) -> None:
    def ring_once(self: Fetcher) -> None:
        self.wake()  # sees the fired timer as still running and sets no other
        self._timer = None

    seam.replace(Fetcher, "_timer_fired", ring_once)


@safeguard(
    "only what was handed out is committed",
    "auto-commit does not cover records that the application has not received",
    "churn",
    "idempotent",
)
def handed_out_is_committed(seam: Seam) -> None:
    def eager(self: Subscription, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        chosen = self.states if partitions is None else partitions
        states = [self.states[place] for place in chosen if place in self.states]
        return {
            each.topic_partition: each.buffer.fetch_offset for each in states if each.buffer.fetch_offset is not None
        }

    seam.replace(Subscription, "to_commit", eager)


@safeguard(
    "lost partitions are let go",
    "a member returns no records of a partition that belongs to another member",
    "churn",
    "pipeline",
)
def lost_let_go(seam: Seam) -> None:
    seam.replace(Subscription, "drop", lambda self, partitions: None)


@safeguard(
    "an error may leave the outcome open",
    "a commit that was written, but answered with an error, is not reported as not committed",
    "groups",
    shows=lambda plan: sum(client.role == "driver" for each in plan.workloads for client in each.clients) > 1,
    brokers=3,
    occasion=lost_outcome,
)
def answers_are_outcomes(seam: Seam) -> None:
    for module in (transaction_coordinator, transaction_groups):
        seam.replace(module, "is_unsettled", lambda error: False)


# --- members that read on ---------------------------------------------------------------------------------------------


@safeguard(
    "a start waits for records",
    "a member that joins for longer than max.poll.interval.ms gets its first assignment",
    CONSUMER_PIPELINE,
)
def start_waits_for_records(seam: Seam) -> None:
    async def uncounted(self: Consumer, group: AnyGroup) -> None:
        while self._subscription.is_automatic and not group.assignments:
            self._check()
            await group.settled.wait()
        self._check()

    seam.replace(Consumer, "_first_assignment", uncounted)


@safeguard(
    "a call for records wakes a member that has left (consumer protocol)",
    "a member that was silent for max.poll.interval.ms joins again once it is asked for records",
    CONSUMER_PIPELINE,
)
def call_wakes_member_of_consumer_protocol(seam: Seam) -> None:
    def silent(self: ConsumerGroup) -> None:
        self.member.outdated = None

    seam.replace(ConsumerGroup, "application_polled", silent)


@safeguard(
    "a call for records wakes a member that has left",
    "a member that was silent for max.poll.interval.ms joins again once it is asked for records",
    "pipeline",
)
def call_wakes_member(seam: Seam) -> None:
    def silent(self: ClassicGroup) -> None:
        self.member.outdated = None

    seam.replace(ClassicGroup, "application_polled", silent)
