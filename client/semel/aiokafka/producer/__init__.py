"""aiokafka's `producer`."""

from semel.aiokafka.producer.producer import AIOKafkaProducer

__all__ = ["AIOKafkaProducer"]
