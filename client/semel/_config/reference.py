"""The settings of each struct in words, for `help`. Written by `make map` from the declarations."""

from typing import Final

SETTINGS: Final = {
    "ClientConfig": """\
bootstrap_servers (default: 'localhost:9092')
    One or several addresses, `host[:port]`, comma-separated or as a list. One that answers is
    enough. Must be host:port as a str, several with commas, or a list of them.
client_id (default: 'semel')
    The name of this client in the broker's log, in quotas and in the ledger of fences. Must be a
    str of at most 32767 bytes.
request_timeout_ms (default: 30000)
    The longest wait for an answer. A request without an answer closes its connection. Must be a
    whole number from 1 to 2147483647.
bootstrap_timeout_ms (default: 10000)
    How long `start` tries the bootstrap servers. Must be a whole number from 0 to
    9223372036854775807.
metadata_max_age_ms (default: 300000)
    How long topics, partitions and leaders are used before the client asks for them again. An error
    that shows that they are stale makes it ask at once. Must be a whole number from 1 to
    9223372036854775807.
retry_backoff_ms (default: 100)
    The pause before a request is sent again. It doubles with each attempt, up to
    retry_backoff_max_ms. Must be a whole number from 0 to 9223372036854775807.
retry_backoff_max_ms (default: 1000)
    The longest pause before a request is sent again. Must be a whole number from 0 to
    9223372036854775807.
reconnect_backoff_ms (default: 50)
    The pause before the next attempt to connect to a broker. It doubles up to
    reconnect_backoff_max_ms. Must be a whole number from 0 to 9223372036854775807.
reconnect_backoff_max_ms (default: 1000)
    The longest pause before the next attempt to connect to a broker. Must be a whole number from 0
    to 9223372036854775807.
connections_max_idle_ms (default: 540000)
    A connection without traffic for longer is closed. None: never. Must be a whole number from 1 to
    9223372036854775807, or None for never.
max_block_ms (default: 60000)
    How long a call may wait for metadata, for a coordinator or for memory. Must be a whole number
    from 0 to 9223372036854775807.
receive_frame_bytes_max (default: 104857600)
    The largest response accepted from a broker, in bytes. Must be a whole number from 1 to
    2147483647.
security_protocol (default: 'PLAINTEXT')
    'SSL' and 'SASL_SSL' are TLS. 'SASL_PLAINTEXT' and 'SASL_SSL' authenticate the client by
    `sasl_mechanism`. Must be one of 'PLAINTEXT', 'SSL', 'SASL_PLAINTEXT', 'SASL_SSL'.
ssl_context (default: None)
    The certificates to trust, and the client's own, in place of the files below:
    `ssl.create_default_context(cafile=...)`. Needs security_protocol='SSL'. Must be an
    ssl.SSLContext, or None.
ssl_cafile (default: None)
    The file in PEM with the CAs that sign the brokers' certificates. None: those of the system.
    Needs security_protocol='SSL'. Must be a str of at most 32767 bytes, or None.
ssl_certfile (default: None)
    The file in PEM with the client's own certificate chain, for brokers that require one. Must be a
    str of at most 32767 bytes, or None.
ssl_keyfile (default: None)
    The file in PEM with the private key of the certificate. None: it is in ssl_certfile. Must be a
    str of at most 32767 bytes, or None.
ssl_password (default: None)
    The password of the private key. None: it has none. Must be a str, or None.
ssl_check_hostname (default: True)
    Whether the certificate must have the host name of the broker. Without this check, any
    certificate of the CA can pretend to be the broker. Must be one of True, False.
sasl_mechanism (default: 'PLAIN')
    How the client authenticates, for 'SASL_PLAINTEXT' and 'SASL_SSL'. SCRAM does not send the
    password. PLAIN sends it as it is: use it with TLS. OAUTHBEARER sends a token. GSSAPI (Kerberos)
    is not supported. Must be one of 'PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512', 'OAUTHBEARER'.
sasl_plain_username (default: None)
    The user, for PLAIN and SCRAM. Must be a str of at most 32767 bytes, or None.
sasl_plain_password (default: None)
    The password of the user, for PLAIN and SCRAM. Must be a str, or None.
sasl_oauth_token_provider (default: None)
    The source of tokens, for OAUTHBEARER: an object with `async def token(self) -> str`. Must be an
    object with `async def token(self) -> str`, or None.
edge (default: None)
    Clocks, random numbers and TCP. None is the real ones; simulators pass their own. Must be an
    Edge, or None.
""",
    "ProducerConfig": """\
acks (default: 'all')
    When a record counts as stored: at all in-sync replicas ('all'), at the leader (1), or once sent
    (0). Must be one of 0, 1, -1, 'all'.
enable_idempotence (default: True)
    Retries store each record once and in order (KIP-98). Needs acks='all'. Must be one of True,
    False.
transactional_id (default: None)
    Makes the producer transactional. One id for each worker, the same after a restart: a new
    producer fences the older one. Must be a str of at most 32767 bytes, or None.
transaction_timeout_ms (default: 60000)
    The coordinator aborts a transaction that is open for longer. At most the broker's
    transaction.max.timeout.ms. Must be a whole number from 1 to 2147483647.
transaction_group_step (default: None)
    Makes this producer a member of a transaction group in this step. The `transactional_id` must be
    `<group>/<member>`. Must be a GroupStep, which TransactionGroup.begin() returns, or None.
key_serializer (default: None)
    Makes the key's bytes, or None for a record without key. None: keys are bytes already. Must be a
    function, or None.
value_serializer (default: None)
    Makes the value's bytes, or None for a record without value. None: values are bytes already.
    Must be a function, or None.
compression_type (default: None)
    The codec of batches. None: no compression. Must be one of None, 'none', 'gzip', 'snappy',
    'lz4', 'zstd'.
max_batch_size (default: 16384)
    A batch of one partition is sent when it reaches this size, in bytes. Larger records get a batch
    of their own (Kafka: batch.size). Must be a whole number from 1 to 2147483647.
linger_ms (default: 0)
    How long a batch may wait for more records. With 0 it is sent as soon as the event loop runs and
    a request is free. Must be a number from 0 to 9223372036854775807.
partitioner (default: None)
    None: murmur2 of the key, as Kafka; without a key one partition until its batch is full
    (KIP-480). Must be a function, or None.
max_request_size (default: 1048576)
    The largest record, and the largest request made of several batches, in bytes. Must be a whole
    number from 1 to 2147483647.
buffer_memory (default: 33554432)
    The bytes of all records that are not sent or not acknowledged. `send` waits (max_block_ms)
    while they are used up. Must be a whole number from 1 to 9223372036854775807.
delivery_timeout_ms (default: 120000)
    The time from `send` to success or failure, retries included. Must be a whole number from 0 to
    2147483647.
max_in_flight_requests_per_connection (default: 5)
    Produce requests to one broker that are sent and not answered. At most 5 with
    enable_idempotence, since brokers remember the last 5 batches of a producer. Must be a whole
    number from 1 to 2147483647.
""",
    "ConsumerConfig": """\
group_id (default: None)
    The group that shares partitions and keeps offsets. None: no group and no commits; all
    partitions are read. Must be a str of at most 32767 bytes, or None.
group_instance_id (default: None)
    Makes a static member (KIP-345): a restart within session_timeout_ms causes no rebalance. Must
    be a str of at most 32767 bytes, or None.
group_protocol (default: 'classic')
    'consumer' is the protocol of KIP-848: the broker assigns the partitions, and only those that
    move are revoked. It needs brokers that serve it: semel's, or Apache Kafka from 4.0 on. The
    broker then decides session_timeout_ms, heartbeat_interval_ms and partition_assignment_strategy,
    which must not be given. Must be one of 'classic', 'consumer'.
group_remote_assignor (default: None)
    With group_protocol='consumer': the broker's assignor, such as 'uniform' or 'range'. None: the
    broker's default. Must be a str of at most 32767 bytes, or None.
key_deserializer (default: None)
    Makes `record.key` from the bytes, or from None for a record without key. None: keys stay bytes.
    Must be a function, or None.
value_deserializer (default: None)
    Makes `record.value` from the bytes, or from None for a record without value. None: values stay
    bytes. Must be a function, or None.
auto_offset_reset (default: 'latest')
    Where to start without a committed offset, or when it does not exist any more. 'none' raises an
    error instead. Must be one of 'latest', 'earliest', 'none'.
enable_auto_commit (default: True)
    Commit the consumed offsets every auto_commit_interval_ms and before partitions are revoked. A
    record is consumed when the application asks for the next one. Must be one of True, False.
auto_commit_interval_ms (default: 5000)
    The time between two commits, with enable_auto_commit. Must be a whole number from 1 to
    2147483647.
max_poll_records (default: 500)
    The largest number of records that getmany returns. None: all that are buffered. Must be a whole
    number from 1 to 2147483647, or None for all that is there.
max_poll_interval_ms (default: 300000)
    A member that does not ask for records for longer leaves the group. It joins again when it asks.
    Must be a whole number from 1 to 2147483647.
session_timeout_ms (default: 45000)
    The coordinator removes a member from the group after this time without a heartbeat. The broker
    allows a range: group.min.session.timeout.ms to group.max.session.timeout.ms. Must be a whole
    number from 1 to 2147483647.
heartbeat_interval_ms (default: 3000)
    The time between two heartbeats; at most a third of session_timeout_ms is usual. Must be a whole
    number from 1 to 2147483647.
rebalance_timeout_ms (default: None)
    How long a rebalance may wait for this member. While the application processes records, the
    revocation of their partition waits for at most about this time. None: max_poll_interval_ms, as
    Kafka. Must be a whole number from 1 to 2147483647, or None for max_poll_interval_ms.
partition_assignment_strategy (default: ('range', 'cooperative-sticky'))
    Names or assignors, the preferred one first. Cooperative rebalancing needs all of them to be
    cooperative (KIP-429). Must be names of assignors, or assignors of this package.
fetch_min_bytes (default: 1)
    The broker answers a fetch once it has this many bytes, or after fetch_max_wait_ms. Must be a
    whole number from 0 to 2147483647.
fetch_max_bytes (default: 52428800)
    The bytes of one fetch's answer. A first batch that is larger is returned whole. Must be a whole
    number from 1 to 2147483647.
fetch_max_wait_ms (default: 500)
    How long the broker waits for fetch_min_bytes. Must be less than request_timeout_ms. Must be a
    whole number from 0 to 2147483647.
max_partition_fetch_bytes (default: 1048576)
    The bytes of one partition in a fetch's answer. A first batch that is larger is returned whole.
    Must be a whole number from 1 to 2147483647.
fetch_buffer_bytes (default: 67108864)
    semel's own: the bound on bytes fetched ahead of the application, over all partitions. Must be a
    whole number from 1 to 9223372036854775807.
isolation_level (default: 'read_uncommitted')
    'read_committed' returns records of committed transactions only, and none behind an open
    transaction. Must be one of 'read_uncommitted', 'read_committed'.
check_crcs (default: True)
    Check the CRC of each batch. A wrong one raises CorruptRecordException. Must be one of True,
    False.
exclude_internal_topics (default: True)
    Whether a pattern leaves out internal topics such as __consumer_offsets. Must be one of True,
    False.
allow_auto_create_topics (default: True)
    Let the broker create subscribed topics that do not exist, if its auto.create.topics.enable
    allows it. Must be one of True, False.
client_rack (default: '')
    The rack of this client. It fetches from a replica there if brokers have
    `replica.selector.class` (KIP-392). Must be a str of at most 32767 bytes.
default_api_timeout_ms (default: 60000)
    How long commit, committed, position, beginning_offsets and similar calls may take, retries
    included. Must be a whole number from 1 to 2147483647.
consumer_timeout_ms (default: None)
    Accepted for programs written for aiokafka. It has no effect. Must be a whole number from 0 to
    2147483647, or None for the same, as it has no effect.
""",
    "BatchReaderConfig": """\
isolation_level (default: 'read_committed')
    'read_committed' returns records of committed transactions only, and none behind an open
    transaction. Must be one of 'read_uncommitted', 'read_committed'.
check_crcs (default: True)
    Check the CRC of each batch. A wrong one raises CorruptRecordException. Must be one of True,
    False.
fetch_min_bytes (default: 1)
    The broker answers a fetch once it has this many bytes, or after fetch_max_wait_ms. Must be a
    whole number from 0 to 2147483647.
fetch_max_bytes (default: 52428800)
    The bytes of one fetch's answer. A first batch that is larger is returned whole. Must be a whole
    number from 1 to 2147483647.
fetch_max_wait_ms (default: 500)
    How long the broker waits for fetch_min_bytes. Must be less than request_timeout_ms. Must be a
    whole number from 0 to 2147483647.
max_partition_fetch_bytes (default: 4194304)
    Larger than the consumer's: one partition is read at a time, and fetched data is handed out at
    once. Must be a whole number from 1 to 2147483647.
client_rack (default: '')
    The rack of this client. It fetches from a replica there if brokers have
    `replica.selector.class` (KIP-392). Must be a str of at most 32767 bytes.
default_api_timeout_ms (default: 60000)
    How long a call may take, retries included, and how long `read` may go without progress. Must be
    a whole number from 1 to 2147483647.
""",
    "DriverConfig": """\
owner (default: '')
    A text that names the driver. Members of a step that is over get it in their errors. Must be a
    str of at most 32767 bytes.
timeout_ms (default: 60000)
    A step is aborted when its first transaction is open for longer. At most the broker's
    transaction.max.timeout.ms. Must be a whole number from 1 to 2147483647.
""",
    "TransactionGroupConfig": """\
name
    The name of the group. Its members are the transactional ids `<name>/<member>`. Must be a str of
    at most 32767 bytes.
""",
}
"""Name of the struct -> a paragraph for each setting that it declares itself."""
