"""Producer ids over a store that is not always there."""

from __future__ import annotations

import pytest
from semel_broker.cluster.local_store import LocalStore
from semel_broker.cluster.store import OutcomeUnknownError, StoreUnavailableError
from semel_broker.coordination.producer_ids import BLOCK_SIZE, ProducerIds
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.disk.memory_disk import MemoryDisk


@pytest.fixture
def store() -> LocalStore:
    disk = MemoryDisk()
    disk.mkdir("data")
    return LocalStore.open(disk, "data/semel.store")


async def test_a_store_that_is_away_is_a_reason_to_try_again(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise StoreUnavailableError("no etcd answered")

    ids = ProducerIds(store)
    with monkeypatch.context() as patch:
        patch.setattr(store, "transact", away)
        with pytest.raises(KafkaError, match="no etcd answered") as refused:
            await ids.next()
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await ids.next() == 0


async def test_a_block_that_may_be_ours_is_left_alone(store: LocalStore, monkeypatch: pytest.MonkeyPatch) -> None:
    transact = store.transact
    answers = ["lost"]

    async def answered_badly(*given: object) -> int | None:
        revision = await transact(*given)  # type: ignore[arg-type]
        if answers:
            answers.pop()
            raise OutcomeUnknownError("the answer was lost")
        return revision

    monkeypatch.setattr(store, "transact", answered_badly)
    ids = ProducerIds(store)
    with pytest.raises(KafkaError):
        await ids.next()
    assert await ids.next() == BLOCK_SIZE
    assert await ProducerIds(store).next() == 2 * BLOCK_SIZE
