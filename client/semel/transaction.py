"""The context manager of one transaction: `async with producer.transaction():`."""

from __future__ import annotations

import logging
from types import TracebackType

from semel._transactions.manager import ProducerTransactions
from semel.errors import AbortableError, InvalidProducerEpoch, KafkaError, ProducerFenced

log = logging.getLogger(__name__)


class Transaction:
    """One transaction: begins on entering, commits on leaving, aborts when the block raises.

    Leaving raises what `commit_transaction` raises; a failed transaction is aborted first. An exception of the block is
    not replaced by one of the abort, except that InvalidProducerEpoch becomes ProducerFenced when the abort shows that
    a newer producer has the transactional_id.
    """

    def __init__(self, transactions: ProducerTransactions) -> None:
        self._transactions = transactions

    async def __aenter__(self) -> Transaction:
        self._transactions.check_commits_itself("transaction()")
        await self._transactions.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self._abort(error)
            return
        try:
            await self._transactions.commit()
        except AbortableError as failure:
            await self._abort(failure)
            raise

    async def _abort(self, reason: BaseException) -> None:
        """Wait for the abort for at most max_block_ms. After that the abort continues, and the next transaction waits
        for it.
        """
        if self._transactions.is_fatal:
            return  # the coordinator has aborted it, or aborts it after transaction_timeout_ms
        try:
            await self._transactions.abort()
        except ProducerFenced as fenced:
            if isinstance(reason, InvalidProducerEpoch):
                raise fenced from reason
            reason.add_note(f"the transaction is not aborted yet: {fenced}")
        except KafkaError as error:
            log.warning("the transaction is not aborted yet: %s", error)
            reason.add_note(f"the transaction is not aborted yet: {error}")
