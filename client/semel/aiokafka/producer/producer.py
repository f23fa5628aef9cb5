"""aiokafka's `producer.producer`: the Producer, with the arguments of aiokafka's that libraries give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semel._config.client import ProducerConfig, describe_settings
from semel._type_variables import K_contra, V_contra
from semel.aiokafka.partitioner import DefaultPartitioner
from semel.producer import Producer

__all__ = ["AIOKafkaProducer"]

_missing = object()
"""aiokafka's mark for an argument that was not given."""

if TYPE_CHECKING:
    AIOKafkaProducer = Producer
else:

    class AIOKafkaProducer(Producer[K_contra, V_contra]):
        """`semel.Producer`. `_missing`, and an object of DefaultPartitioner, stand for the defaults."""

        def __init__(self, *unnamed: object, **settings: Any) -> None:
            given = {name: value for name, value in settings.items() if value is not _missing}
            if isinstance(given.get("partitioner"), DefaultPartitioner):
                del given["partitioner"]
            super().__init__(*unnamed, **given)

        describe_settings(__init__, ProducerConfig)
