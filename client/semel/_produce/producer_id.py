"""Obtains a producer id from a broker, which a Sender needs before it may send (KIP-98)."""

import asyncio
import logging
from collections.abc import Callable

from semel_protocol.acls import Operation
from semel_protocol.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse

from semel._config.producer import ProducerConfig
from semel._net.cluster import Cluster
from semel._net.outage import Outage
from semel._net.retry import FOREVER_MS, Deadline
from semel._produce.sequences import TransactionManager
from semel.errors import KafkaError, error_for

log = logging.getLogger(__name__)

NO_TRANSACTION_TIMEOUT_MS = 0x7FFFFFFF


async def new_producer_id(
    cluster: Cluster, config: ProducerConfig, refused: Callable[[KafkaError], None] = lambda error: None
) -> tuple[int, int]:
    """A new (producer id, epoch). Retries until a broker gives one; meanwhile records wait and may time out.
    refused: is called with the error of each try.

    Raises KafkaError when a broker refuses with an error that is not retriable.
    """

    async def attempt(_: Deadline) -> tuple[int, int]:
        connection = await cluster.any_connection()
        answer: InitProducerIdResponse = await connection.request(
            InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=NO_TRANSACTION_TIMEOUT_MS),
            timeout_ms=config.request_timeout_ms,
        )
        if answer.error_code:
            right = cluster.right(Operation.IDEMPOTENT_WRITE)
            said = f"{what}: {answer.error_message}" if answer.error_message else what  # a field of semel's own
            raise error_for(answer.error_code, said, right)
        return answer.producer_id, answer.producer_epoch

    def on_error(error: KafkaError) -> None:
        refused(error)
        if outage.is_due():
            log.warning("client %r: cannot get a producer id, trying again: %s", config.client_id, error)

    what = "asking for a producer id"
    outage = Outage(cluster.edge)
    return await cluster.retrying(attempt, what=what, timeout_ms=FOREVER_MS, on_error=on_error)


class ProducerIdSource:
    """Obtains a producer id in the background for a Sender without one, then calls `found` or `failed`."""

    def __init__(
        self,
        cluster: Cluster,
        config: ProducerConfig,
        manager: TransactionManager,
        *,
        found: Callable[[], None],
        failed: Callable[[KafkaError], None],
    ) -> None:
        self._cluster, self._config, self._manager = cluster, config, manager
        self._found, self._failed = found, failed
        self._task: asyncio.Task[None] | None = None

    def obtain(self) -> None:
        """Begin a request unless one is in progress."""
        if self._task is None:
            self._task = asyncio.create_task(self._obtain(), name="InitProducerId")

    def cut(self) -> list[asyncio.Task[None]]:
        """End the request in progress. Returns its task, which ends soon."""
        if self._task is None:
            return []
        self._task.cancel()
        return [self._task]

    async def _obtain(self) -> None:
        try:
            found = await new_producer_id(self._cluster, self._config, self._manager.id_refused)
            self._manager.set_producer_id(*found)
        except KafkaError as error:
            self._failed(error)
        self._task = None
        self._found()
