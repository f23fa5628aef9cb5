"""aiokafka's `producer.producer`: the Producer, with the arguments of aiokafka's that libraries give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel._config.client import Partitioner, describe_settings
from semel._config.producer import ProducerConfig
from semel._net.lifecycle import ClientState
from semel._type_variables import K_contra, V_contra
from semel.aiokafka.client import AIOKafkaClient
from semel.aiokafka.cluster import ClusterMetadata
from semel.aiokafka.given_loop import GivenLoop
from semel.aiokafka.partitioner import DefaultPartitioner
from semel.aiokafka.setting_attributes import SettingAttributes
from semel.producer import Producer

__all__ = ["AIOKafkaProducer"]

DEFAULT_PARTITIONER = DefaultPartitioner()
_missing = object()
"""aiokafka's mark for an argument that was not given."""


def _settle_idempotence(given: dict[str, Any]) -> None:
    """Set `enable_idempotence` where aiokafka's rules differ from semel's.

    In aiokafka it is off by default, so acks 0 or 1 alone are no contradiction. A `transactional_id` turns it on.
    """
    if given.get("transactional_id") is not None:
        given.pop("enable_idempotence", None)
    elif "enable_idempotence" not in given and given.get("acks", "all") not in ("all", -1):
        given["enable_idempotence"] = False


if TYPE_CHECKING:
    AIOKafkaProducer = Producer
else:

    class AIOKafkaProducer(SettingAttributes, Producer[K_contra, V_contra]):
        """`semel.Producer`. `_missing`, and an object of DefaultPartitioner, stand for the defaults."""

        def __init__(self, *unnamed: object, **settings: Any) -> None:
            given = {name: value for name, value in settings.items() if value is not _missing}
            self._given_loop = GivenLoop(given.pop("loop", None))
            if isinstance(given.get("partitioner"), DefaultPartitioner):
                del given["partitioner"]
            _settle_idempotence(given)
            super().__init__(*unnamed, **given)

        describe_settings(__init__, ProducerConfig)

        async def start(self) -> None:
            self._given_loop.check("AIOKafkaProducer")
            await super().start()

        async def flush(self) -> None:
            """As `Producer.flush`. Without effect before `start`."""
            if self._life.state is not ClientState.NEW:
                await super().flush()

        @property
        def _partitioner(self) -> Partitioner:
            return self._config.partitioner or DEFAULT_PARTITIONER

        @property
        def _closed(self) -> bool:
            return self._life.is_stopped

        @property
        def _metadata(self) -> ClusterMetadata:
            return self.client.cluster

        @property
        def client(self) -> AIOKafkaClient:
            """The producer's metadata, and `force_metadata_update`."""
            return AIOKafkaClient.of(self._cluster)
