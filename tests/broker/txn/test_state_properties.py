"""One transactional id through random sequences of requests, timeouts and completions: the invariants at every step."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from semel_broker.txn.model import state
from semel_broker.txn.model.identity import EPOCH_LAST, EPOCH_MAX, NO_IDENTITY, ClientName, ProducerIdentity
from semel_broker.txn.model.ledger import FENCES_KEPT
from semel_broker.txn.model.metadata import BETWEEN, ONGOING, TransactionMetadata
from semel_broker.txn.model.records import metadata_of, row_of
from semel_broker.txn.model.requests import End, Init, TransactionStep
from semel_protocol.errors import ErrorCode, KafkaError

TIMEOUT_MS = 100
BROKER = ClientName(host="broker 0")
HELD = ErrorCode.CONCURRENT_TRANSACTIONS


class OneTransactionalId(RuleBasedStateMachine):
    """`holders`: the identities of all instances so far, the last one first. Only the last one may act."""

    def __init__(self) -> None:
        super().__init__()
        self.txn: TransactionMetadata | None = None
        self.now_ms = 1_000
        self.fresh_id = 10
        self.holders: list[ProducerIdentity] = []
        self.fenced = False  # the last holder, by a timeout or by a new instance whose own epoch is still to come
        self.taking: Init | None = None

    def take(self, step: TransactionStep) -> None:
        if step.then is not None:
            if self.txn is not None:
                state.check_successor(self.txn, step.then)
                epochs = (self.txn.identity, step.then.identity)
                assert epochs[0].producer_id != epochs[1].producer_id or epochs[0].epoch <= epochs[1].epoch
            self.txn = step.then

    def fresh(self) -> int:
        self.fresh_id += 1
        return self.fresh_id

    @rule(near_the_end=st.booleans())
    def start(self, near_the_end: bool) -> None:
        """The first instance. Some ids start with few epochs left."""
        if self.txn is not None:
            return
        step = state.init(None, Init(transactional_id="t", timeout_ms=TIMEOUT_MS), self.now_ms, self.fresh())
        assert step.then is not None
        epoch = EPOCH_LAST - 2 if near_the_end else 0
        self.txn = TransactionMetadata(
            transactional_id="t",
            producer_id=step.then.producer_id,
            producer_epoch=epoch,
            timeout_ms=TIMEOUT_MS,
            last_update_ms=self.now_ms,
        )
        self.holders = [self.txn.identity]

    @precondition(lambda self: self.txn is not None)
    @rule(resumes=st.booleans())
    def init(self, resumes: bool) -> None:
        """A new instance, or the current one that asks for a new epoch."""
        expected = self.holders[0] if resumes else NO_IDENTITY
        self.ask(self.taking or Init(transactional_id="t", timeout_ms=TIMEOUT_MS, expected=expected))

    def ask(self, ask: Init) -> None:
        self.taking = None
        try:
            step = state.init(self.txn, ask, self.now_ms, self.fresh())
        except KafkaError as error:
            refused = error.code
        else:
            self.taken(ask, step)
            return
        if refused is HELD:
            self.taking = ask
            return
        assert refused is ErrorCode.PRODUCER_FENCED
        assert ask.expected, "only who brings something can be fenced"
        assert self.fenced

    def taken(self, ask: Init, step: TransactionStep) -> None:
        self.take(step)
        if step.answer is None:
            self.taking, self.fenced = ask, True
            return
        assert step.answer not in self.holders, "an epoch is given to one instance only"
        assert step.answer.epoch <= EPOCH_LAST
        self.holders.insert(0, step.answer)
        self.fenced = False

    @precondition(lambda self: self.txn is not None)
    @rule(who=st.integers(0, 3), partition=st.integers(0, 3), version=st.sampled_from([0, 2]))
    def add(self, who: int, partition: int, version: int) -> None:
        mine = self.holders[min(who, len(self.holders) - 1)]
        try:
            self.take(state.add_partitions(self.txn, mine, [("a", partition)], self.now_ms, version=version))
        except KafkaError:
            return
        assert mine == self.holders[0]
        assert not self.fenced, "a fenced producer adds nothing"
        state.verify(self.txn, mine, ("a", partition))

    @precondition(lambda self: self.txn is not None)
    @rule(who=st.integers(0, 3), commit=st.booleans(), version=st.sampled_from([0, 2]))
    def end(self, who: int, commit: bool, version: int) -> None:
        mine = self.holders[min(who, len(self.holders) - 1)]
        before = self.txn
        assert before is not None
        try:
            step = state.end(before, End(producer=mine, commit=commit, version=version), self.now_ms, self.fresh())
        except KafkaError:
            return
        if step.then is None:
            return  # it was done before
        assert mine == self.holders[0]
        assert not self.fenced, "a fenced producer decides nothing"
        self.take(step)
        assert self.txn is not None
        assert self.txn.producer_id == before.producer_id, "markers carry the id that wrote the data"
        assert self.txn.producer_epoch >= before.producer_epoch
        if version == 2:
            assert step.answer not in self.holders
            self.holders.insert(0, step.answer)

    @precondition(lambda self: self.txn is not None and self.txn.is_prepared)
    @rule()
    def markers_are_written(self) -> None:
        assert self.txn is not None
        self.take(TransactionStep(state.complete(self.txn, self.now_ms)))
        if self.taking is not None:
            self.ask(self.taking)  # it was held

    @precondition(lambda self: self.txn is not None)
    @rule(ms=st.sampled_from([1, TIMEOUT_MS, TIMEOUT_MS + 1]))
    def time_passes(self, ms: int) -> None:
        self.now_ms += ms
        before = self.txn
        assert before is not None
        step = state.time_out(before, self.now_ms, BROKER)
        assert (step.then is not None) == state.is_timed_out(before, self.now_ms)
        if step.then is not None:
            assert before.state is ONGOING
            self.take(step)
            self.fenced = True

    @precondition(lambda self: self.txn is not None)
    @rule()
    def the_broker_restarts(self) -> None:
        assert self.txn is not None
        stored = row_of(self.txn)[1]
        assert stored is not None
        found = metadata_of("t", stored)
        assert found.identity == self.txn.identity
        assert found.last_identity == self.txn.last_identity
        self.txn = found
        self.taking = None  # the producer lost its connection; its own request may have fenced it

    @invariant()
    def epochs_are_in_range_and_partitions_belong_to_a_transaction(self) -> None:
        if self.txn is None:
            return
        assert 0 <= self.txn.producer_epoch <= EPOCH_MAX
        assert len(self.txn.fences) <= FENCES_KEPT
        if self.txn.state in BETWEEN:
            assert not self.txn.partitions
            assert self.txn.next_producer_id == -1


TestOneTransactionalId = OneTransactionalId.TestCase
TestOneTransactionalId.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
