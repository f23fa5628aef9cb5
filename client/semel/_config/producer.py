"""Settings of `Producer`: Kafka's names in snake_case with Kafka's defaults, checked together."""

from typing import Annotated, Literal

from semel._config.client import ClientConfig, ClientKeywords, CompressionType, Partitioner, Serializer, not_below
from semel._config.settings import INT64_MAX, Meaning, NotNegative, Positive, PositiveLong, instance_of, number
from semel.errors import KafkaConfigurationError
from semel.structs import GroupStep


class ProducerConfig(ClientConfig, frozen=True, kw_only=True):
    """Settings of `Producer`."""

    acks: Annotated[
        Literal[0, 1, -1, "all"],
        Meaning(
            "When a record counts as stored: at all in-sync replicas ('all'), at the leader (1), or once sent (0)."
        ),
    ] = "all"
    enable_idempotence: Annotated[
        bool, Meaning("Retries store each record once and in order (KIP-98). Needs acks='all'.")
    ] = True
    transactional_id: Annotated[
        str | None,
        Meaning(
            "Makes the producer transactional. One id for each worker, the same after a restart: a new producer fences "
            "the older one."
        ),
    ] = None
    transaction_timeout_ms: Annotated[
        Positive,
        Meaning(
            "The coordinator aborts a transaction that is open for longer. At most the broker's "
            "transaction.max.timeout.ms."
        ),
    ] = 60_000
    transaction_group_step: Annotated[
        GroupStep | None,
        instance_of("a GroupStep, which TransactionGroup.begin() returns", GroupStep),
        Meaning(
            "Makes this producer a member of a transaction group in this step. The `transactional_id` must be "
            "`<group>/<member>`."
        ),
    ] = None
    key_serializer: Annotated[
        Serializer | None,
        Meaning("Makes the key's bytes, or None for a record without key. None: keys are bytes already."),
    ] = None
    value_serializer: Annotated[
        Serializer | None,
        Meaning("Makes the value's bytes, or None for a record without value. None: values are bytes already."),
    ] = None
    compression_type: Annotated[CompressionType | None, Meaning("The codec of batches. None: no compression.")] = None
    max_batch_size: Annotated[
        Positive,
        Meaning(
            "A batch of one partition is sent when it reaches this size, in bytes. Larger records get a batch of their "
            "own (Kafka: batch.size)."
        ),
    ] = 16_384
    linger_ms: Annotated[
        float,
        number(0, INT64_MAX),
        Meaning(
            "How long a batch may wait for more records. With 0 it is sent as soon as the event loop runs and a "
            "request is free."
        ),
    ] = 0
    partitioner: Annotated[
        Partitioner | None,
        Meaning("None: murmur2 of the key, as Kafka; without a key one partition until its batch is full (KIP-480)."),
    ] = None
    max_request_size: Annotated[
        Positive, Meaning("The largest record, and the largest request made of several batches, in bytes.")
    ] = 1_048_576
    buffer_memory: Annotated[
        PositiveLong,
        Meaning(
            "The bytes of all records that are not sent or not acknowledged. `send` waits (max_block_ms) while they "
            "are used up."
        ),
    ] = 33_554_432
    delivery_timeout_ms: Annotated[
        NotNegative, Meaning("The time from `send` to success or failure, retries included.")
    ] = 120_000
    max_in_flight_requests_per_connection: Annotated[
        Positive,
        Meaning(
            "Produce requests to one broker that are sent and not answered. At most 5 with enable_idempotence, since "
            "brokers remember the last 5 batches of a producer."
        ),
    ] = 5

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.delivery_timeout_ms < self.linger_ms + self.request_timeout_ms:
            raise KafkaConfigurationError(
                f"delivery_timeout_ms={self.delivery_timeout_ms} is shorter than linger_ms={self.linger_ms} + "
                f"request_timeout_ms={self.request_timeout_ms}: raise it, or lower request_timeout_ms"
            )
        not_below(self, "buffer_memory", "max_batch_size")
        if self.transactional_id is not None and (not self.transactional_id or not self.enable_idempotence):
            raise KafkaConfigurationError(
                f"transactional_id={self.transactional_id!r} with enable_idempotence={self.enable_idempotence}: "
                "a transactional producer needs an id that is not empty, and enable_idempotence=True"
            )
        step = self.transaction_group_step
        group, _, member = (self.transactional_id or "").rpartition("/")
        if step is not None and (group != step.group or not member):
            raise KafkaConfigurationError(
                f"transactional_id={self.transactional_id!r} does not belong to transaction group {step.group!r}: "
                f"name it '{step.group}/<member>', without a slash in the member"
            )
        if self.enable_idempotence and self.acks not in ("all", -1):
            raise KafkaConfigurationError(
                f"acks={self.acks!r} contradicts enable_idempotence=True: set acks='all' or enable_idempotence=False"
            )
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:
            raise KafkaConfigurationError(
                f"max_in_flight_requests_per_connection={self.max_in_flight_requests_per_connection} contradicts "
                "enable_idempotence=True: brokers remember the last 5 batches of a producer, so use at most 5"
            )

    @property
    def required_acks(self) -> int:
        """acks as a number, as in Produce requests."""
        return -1 if self.acks == "all" else self.acks


class ProducerKeywords(ClientKeywords, total=False):
    """The keyword arguments of `Producer`, for editors and type checkers. A test compares them with the settings.

    The serializers are not among them: they decide the type arguments of `Producer[K, V]`, so its signature names them.
    """

    acks: Literal[0, 1, -1, "all"]
    enable_idempotence: bool
    transactional_id: str | None
    transaction_timeout_ms: int
    transaction_group_step: GroupStep | None
    compression_type: CompressionType | None
    max_batch_size: int
    linger_ms: float
    partitioner: Partitioner | None
    max_request_size: int
    buffer_memory: int
    delivery_timeout_ms: int
    max_in_flight_requests_per_connection: int
