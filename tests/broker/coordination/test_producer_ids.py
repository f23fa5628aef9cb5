"""Producer ids while the store fails at times."""

from __future__ import annotations

import pytest
from broker.coordination.owners import owners, producer_ids
from semel_broker.cluster.local_store import LocalStore
from semel_broker.cluster.store import OutcomeUnknownError, StoreUnavailableError
from semel_broker.coordination.producer_ids import BLOCK_SIZE
from semel_protocol.errors import ErrorCode, KafkaError
from semel_storage.disk.memory_disk import MemoryDisk


@pytest.fixture
def store() -> LocalStore:
    disk = MemoryDisk()
    disk.mkdir("data")
    return LocalStore.open(disk, "data/semel.store")


def numbered(number: int) -> int:
    return owners().bind("principal User:a", number)


async def test_a_store_that_is_away_is_a_reason_to_try_again(
    store: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(*_: object) -> None:
        raise StoreUnavailableError("no etcd answered")

    ids = producer_ids(store)
    with monkeypatch.context() as patch:
        patch.setattr(store, "transact", away)
        with pytest.raises(KafkaError, match="no etcd answered") as refused:
            await ids.next("principal User:a")
    assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await ids.next("principal User:a") == numbered(0)


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
    ids = producer_ids(store)
    with pytest.raises(KafkaError):
        await ids.next("principal User:a")
    assert await ids.next("principal User:a") == numbered(BLOCK_SIZE)
    assert await producer_ids(store).next("principal User:a") == numbered(2 * BLOCK_SIZE)
