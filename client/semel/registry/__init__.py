"""Avro and Protobuf with a schema registry, in Confluent's wire format: the modules `avro` and `protobuf`.

    registry = AsyncSchemaRegistryClient({"url": "http://localhost:8081"})
    producer = Producer(value_serializer=await AvroSerializer.load(registry, SCHEMA, topic="orders"))
    consumer = Consumer("orders", value_deserializer=AvroDeserializer(registry, Order))

The client of the registry is confluent-kafka's; the extras `semel[avro]` and `semel[protobuf]` install it. No call of a
serializer waits for the network: `load` asks for the id of the schema before. A deserializer that meets an unknown id
lets the consumer wait for its schema. docs/serializers.md explains both.
"""

from semel.registry.schemas import RegistryError, RegistryUnavailableError

__all__ = ["RegistryError", "RegistryUnavailableError"]
