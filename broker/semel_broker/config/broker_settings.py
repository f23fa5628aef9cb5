"""PURE: the declarations of a broker's settings: names, types, bounds, defaults and documentation."""

from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from semel_broker.config.settings import (
    INT32_MAX,
    INT64_MAX,
    Bytes,
    CleanupPolicy,
    CompressionType,
    Count,
    Doc,
    GzipLevel,
    Lz4Level,
    Millis,
    Minutes,
    Ratio,
    Records,
    TimestampType,
    ZstdLevel,
)

HOUR_MS: Final = 3_600_000
MIB: Final = 1 << 20
Samples = Annotated[int, Meta(ge=1, le=1_000)]
Slots = Annotated[int, Meta(ge=0, le=INT32_MAX)]
SampleSeconds = Annotated[int, Meta(ge=1, le=3_600)]
Port = Annotated[int, Meta(ge=0, le=65_535)]
Factor = Annotated[int, Meta(ge=1, le=32_767)]
SignedMillis = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
SignedBytes = Annotated[int, Meta(ge=-1, le=INT64_MAX)]
SegmentBytes = Annotated[int, Meta(ge=1024, le=INT32_MAX)]
AnyLong = Annotated[int, Meta(ge=-INT64_MAX - 1, le=INT64_MAX)]
LocalRetention = Annotated[int, Meta(ge=-2, le=INT64_MAX)]

# Why some settings of Kafka, of topics and of brokers, have only one value here or no effect.
PREALLOCATE: Final = "Segment files grow with what is appended; no space is reserved."
DELETE_DELAY: Final = "Files of segments are removed at once."
JITTER: Final = "Segments are rolled when they are due, without a random delay."
LOGINS: Final = "The broker logs in nowhere by Kerberos or with tokens."
REMOTE: Final = "There is no tiered storage: all segments are local, as long as retention keeps them."


class BrokerSettings(msgspec.Struct, kw_only=True):
    """Every setting of one broker. The setting's name is the field's with dots; the unit is its last word."""

    # Identity and network.
    node_id: Annotated[int, Meta(ge=0, le=INT32_MAX), Doc("Id of this broker in the cluster; never changes.")] = 0
    log_dir: Annotated[str, Doc("Directory of all data of this broker.")] = "semel-data"
    log_min_free_bytes: Annotated[
        Annotated[int, Meta(ge=-1, le=INT64_MAX)],
        Doc(
            "Free bytes of the disk below which Produce and new partitions are refused: there is room to delete then. "
            "-1: a hundredth of the disk, from 1 to 64 MiB; 0: none."
        ),
    ] = -1
    disk_hang_timeout_ms: Annotated[
        Annotated[int, Meta(ge=100, le=INT32_MAX)],
        Doc(
            "Time that a call to the disk may wait before the disk counts as hanging: then writes are refused, and in "
            "a cluster other brokers lead."
        ),
    ] = 10_000
    host_name: Annotated[
        str,
        Doc(
            "Address that the broker listens on; 0.0.0.0: all of IPv4; ::, also in listeners: all of IPv4 and of IPv6."
        ),
    ] = "127.0.0.1"
    port: Annotated[Port, Doc("Port that the broker listens on; 0 takes a free one.")] = 9092
    advertised_host_name: Annotated[str, Doc("Address advertised to clients; empty: the one listened on.")] = ""
    advertised_port: Annotated[Port, Doc("Port advertised to clients; 0: the one listened on.")] = 0
    listeners: Annotated[
        tuple[str, ...],
        Doc("Listeners as NAME://HOST:PORT; empty: one listener PLAINTEXT for clients, at host.name and port."),
    ] = ()
    advertised_listeners: Annotated[
        tuple[str, ...],
        Doc("Addresses advertised to the clients of each listener as NAME://HOST:PORT; empty: those of listeners."),
    ] = ()
    listener_security_protocol_map: Annotated[tuple[str, ...], Doc("Protocol of each listener as NAME:PROTOCOL.")] = (
        "PLAINTEXT:PLAINTEXT",
        "SSL:SSL",
        "SASL_PLAINTEXT:SASL_PLAINTEXT",
        "SASL_SSL:SASL_SSL",
    )
    metrics_listener: Annotated[
        str,
        Doc("HOST:PORT of metrics and health over HTTP, without TLS and authentication; empty: off."),
    ] = "127.0.0.1:9404"
    metrics_series_max: Annotated[
        Count, Doc("Most series of topics, partitions and groups in one scrape; the others are left out.")
    ] = 20_000
    telemetry_max_bytes: Annotated[
        Annotated[int, Meta(ge=1, le=16 * MIB)], Doc("Largest push of metrics by a client, compressed (KIP-714).")
    ] = MIB
    telemetry_otlp_endpoint: Annotated[
        str,
        Doc(
            "URL of an OpenTelemetry collector that gets the metrics of clients too, such as "
            "http://127.0.0.1:4318/v1/metrics; empty: none."
        ),
    ] = ""
    ssl_keystore_type: Annotated[Literal["PEM"], Doc("Format of certificate and key; Java's stores are not read.")] = (
        "PEM"
    )
    ssl_keystore_location: Annotated[
        str,
        Doc("File in PEM with the certificate chain of listeners with SSL, and its key unless it has its own file."),
    ] = ""
    ssl_key_location: Annotated[
        str, Doc("File in PEM with the private key of the certificate; empty: it is in ssl.keystore.location.")
    ] = ""
    ssl_keystore_certificate_chain: Annotated[
        str, Doc("The certificate chain itself in PEM, in place of ssl.keystore.location.")
    ] = ""
    ssl_keystore_key: Annotated[
        str, Doc("The private key itself in PEM, for ssl.keystore.certificate.chain.", is_secret=True)
    ] = ""
    ssl_key_password: Annotated[str, Doc("Password of the private key; empty: it has none.", is_secret=True)] = ""
    ssl_truststore_type: Annotated[Literal["PEM"], Doc("Format of the CAs; Java's stores are not read.")] = "PEM"
    ssl_truststore_location: Annotated[
        str, Doc("File in PEM with the CAs that sign the certificates of clients (ssl.client.auth) and of brokers.")
    ] = ""
    ssl_truststore_certificates: Annotated[
        str, Doc("The CAs themselves in PEM, in place of ssl.truststore.location.")
    ] = ""
    ssl_client_auth: Annotated[
        Literal["none", "requested", "required"],
        Doc("Whether clients show a certificate; requested: those without one are served too."),
    ] = "none"
    ssl_enabled_protocols: Annotated[
        tuple[Literal["TLSv1.2", "TLSv1.3"], ...], Doc("Versions of TLS that clients may use.")
    ] = ("TLSv1.2", "TLSv1.3")
    ssl_endpoint_identification_algorithm: Annotated[
        str,
        Doc("https: the certificate of another broker must have the host that was connected to; empty: any host."),
    ] = "https"
    ssl_principal_mapping_rules: Annotated[
        str,
        Doc("Rules that make a principal of the subject of a client's certificate, comma-separated (KIP-371)."),
    ] = "DEFAULT"
    sasl_enabled_mechanisms: Annotated[
        tuple[Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"], ...],
        Doc("Mechanisms of listeners with SASL_PLAINTEXT or SASL_SSL; PLAIN checks the same users as SCRAM."),
    ] = ("SCRAM-SHA-256", "SCRAM-SHA-512")
    sasl_plain_without_tls_enable: Annotated[
        bool,
        Doc("Allow PLAIN and OAUTHBEARER on listeners without TLS, where everyone on the way can read the secrets."),
    ] = False
    sasl_oauthbearer_jwks_endpoint_url: Annotated[
        str, Doc("The https URL of the keys (JWKS) of the issuer of tokens, for OAUTHBEARER; no other one is asked.")
    ] = ""
    sasl_oauthbearer_jwks_file: Annotated[
        str, Doc("File with the keys (JWKS) of the issuer, in place of sasl.oauthbearer.jwks.endpoint.url.")
    ] = ""
    sasl_oauthbearer_jwks_ca_file: Annotated[
        str, Doc("File in PEM with the CAs of sasl.oauthbearer.jwks.endpoint.url; empty: those of the system.")
    ] = ""
    sasl_oauthbearer_jwks_endpoint_refresh_ms: Annotated[
        Annotated[int, Meta(ge=1_000, le=INT64_MAX)], Doc("Time after which the keys of the issuer are read again.")
    ] = 3_600_000
    sasl_oauthbearer_expected_issuer: Annotated[
        str, Doc("The issuer (iss) that a token must have. OAUTHBEARER needs it.")
    ] = ""
    sasl_oauthbearer_expected_audience: Annotated[
        tuple[str, ...], Doc("Audiences (aud), of which a token must have one. OAUTHBEARER needs it.")
    ] = ()
    sasl_oauthbearer_sub_claim_name: Annotated[str, Doc("The claim of a token with the name of the principal.")] = "sub"
    sasl_oauthbearer_scope_claim_name: Annotated[str, Doc("The claim of a token with its scopes.")] = "scope"
    sasl_oauthbearer_clock_skew_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=600)], Doc("How far the clocks of issuer and broker may differ.")
    ] = 30
    sasl_kerberos_kinit_cmd: Annotated[str, Doc(LOGINS, dynamic=True, no_effect=True)] = "/usr/bin/kinit"
    sasl_kerberos_min_time_before_relogin: Annotated[AnyLong, Doc(LOGINS, dynamic=True, no_effect=True)] = 60_000
    sasl_kerberos_ticket_renew_jitter: Annotated[Ratio, Doc(LOGINS, dynamic=True, no_effect=True)] = 0.05
    sasl_kerberos_ticket_renew_window_factor: Annotated[Ratio, Doc(LOGINS, dynamic=True, no_effect=True)] = 0.8
    sasl_login_refresh_buffer_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=3_600)], Doc(LOGINS, dynamic=True, no_effect=True)
    ] = 300
    sasl_login_refresh_min_period_seconds: Annotated[
        Annotated[int, Meta(ge=0, le=900)], Doc(LOGINS, dynamic=True, no_effect=True)
    ] = 60
    sasl_login_refresh_window_factor: Annotated[
        Annotated[float, Meta(ge=0.5, le=1)], Doc(LOGINS, dynamic=True, no_effect=True)
    ] = 0.8
    sasl_login_refresh_window_jitter: Annotated[
        Annotated[float, Meta(ge=0, le=0.25)], Doc(LOGINS, dynamic=True, no_effect=True)
    ] = 0.05
    sasl_server_max_receive_size: Annotated[
        Annotated[int, Meta(ge=1_024, le=INT32_MAX)], Doc("Largest token of a client; Kafka's default is 524288 bytes.")
    ] = 131_072
    connections_max_reauth_ms: Annotated[
        Millis,
        Doc("Time after which a client with SASL must authenticate again, or its connection is closed; 0: never."),
    ] = 0
    connection_failed_authentication_delay_ms: Annotated[
        Annotated[int, Meta(ge=0, le=10_000)], Doc("Time before a failed authentication is answered.")
    ] = 100
    broker_rack: Annotated[str, Doc("Rack of the broker; replicas are spread over racks.")] = ""
    max_connections: Annotated[Count, Doc("Open connections; further ones are closed.", dynamic=True)] = INT32_MAX
    connections_max_idle_ms: Annotated[Millis, Doc("Time after which an idle connection is closed.", dynamic=True)] = (
        600_000
    )
    socket_request_max_bytes: Annotated[Bytes, Doc("Largest request; a larger one closes its connection.")] = 100 * MIB
    replica_selector_class: Annotated[
        str,
        Doc(
            "Lets consumers with `client.rack` fetch from an in-sync replica in their rack (KIP-392): rack, or "
            "org.apache.kafka.common.replica.RackAwareReplicaSelector; empty: from the leader alone. The same on all "
            "brokers."
        ),
    ] = ""
    fetch_max_bytes: Annotated[Bytes, Doc("Largest Fetch response, whatever is requested.")] = 55 * MIB
    max_request_partition_size_limit: Annotated[
        Count, Doc("Partitions in a response to DescribeTopicPartitions (KIP-966), whatever is requested.")
    ] = 2_000
    max_incremental_fetch_session_cache_slots: Annotated[
        Slots, Doc("Fetch sessions of clients (KIP-227); clients beyond it fetch without. 0: none.")
    ] = 1_000

    # Authorization.
    authorizer_class_name: Annotated[
        str,
        Doc(
            "The authorizer: org.apache.kafka.metadata.authorizer.StandardAuthorizer, whose ACLs say what a client may "
            "do; empty: every client may do everything."
        ),
    ] = ""
    super_users: Annotated[
        str, Doc("Principals that may do everything, separated by semicolons: User:alice;User:bob.")
    ] = ""
    allow_everyone_if_no_acl_found: Annotated[
        bool, Doc("With an authorizer: whether everybody may use a resource that no ACL names.")
    ] = False

    audit_log_file: Annotated[
        str, Doc("File of the audit log, in JSON lines; -: standard output; empty: there is none.")
    ] = ""
    audit_log_allowed: Annotated[
        Literal["admin", "all", "none"],
        Doc(
            "What the audit log has besides denied requests: administrative operations, all that the authorizer "
            "allows, or nothing."
        ),
    ] = "admin"
    audit_log_required: Annotated[
        bool,
        Doc(
            "While the audit log cannot be written: refuse the requests that must have a line in it, instead of losing "
            "the lines."
        ),
    ] = False

    # The cluster.
    etcd_endpoints: Annotated[
        tuple[str, ...], Doc("URLs of the cluster's etcd, http:// or https://; empty: this broker is alone.")
    ] = ()
    etcd_tls_ca_file: Annotated[
        str, Doc("File in PEM with the CAs that sign etcd's certificates; empty: the CAs of the system.")
    ] = ""
    etcd_tls_certificate_file: Annotated[
        str, Doc("File in PEM with the certificate shown to etcd, for --client-cert-auth; empty: none.")
    ] = ""
    etcd_tls_key_file: Annotated[
        str, Doc("File in PEM with the certificate's private key; empty: it is in the certificate's file.")
    ] = ""
    etcd_tls_server_name: Annotated[
        str, Doc("Name that etcd's certificates must have; empty: the host of each URL.")
    ] = ""
    etcd_user: Annotated[str, Doc("User of etcd that this broker is; empty: etcd has no users.")] = ""
    etcd_password: Annotated[str, Doc("Password of etcd.user.", is_secret=True)] = ""
    cluster_name: Annotated[str, Doc("Name of the cluster; several clusters can share an etcd.")] = "semel"
    inter_broker_listener_name: Annotated[
        str,
        Doc("The one of listeners that is for other brokers only; empty: peer.host.name and peer.port are for them."),
    ] = ""
    security_inter_broker_protocol: Annotated[
        Literal["PLAINTEXT", "SSL"],
        Doc("Protocol between brokers at peer.port; SSL: both sides show certificates, by the settings ssl.*."),
    ] = "PLAINTEXT"
    broker_principals: Annotated[
        str,
        Doc(
            "Principals of the certificates of brokers, separated by semicolons; with SSL between brokers, no other "
            "principal may connect as a broker."
        ),
    ] = ""
    peer_host_name: Annotated[str, Doc("Address that the broker listens on for other brokers; empty: host.name.")] = ""
    peer_port: Annotated[Port, Doc("Port for other brokers only; 0 takes a free one.")] = 0
    advertised_peer_host_name: Annotated[
        str, Doc("Address advertised to other brokers; empty: the one listened on.")
    ] = ""
    advertised_peer_port: Annotated[Port, Doc("Port advertised to other brokers; 0: the one listened on.")] = 0
    broker_session_timeout_ms: Annotated[
        Annotated[int, Meta(ge=1_000, le=INT32_MAX)],
        Doc("Time without a keep-alive after which a broker loses its leaderships."),
    ] = 6_000
    controlled_shutdown_max_wait_ms: Annotated[
        Millis, Doc("Time for which a broker that stops waits until others lead its partitions.")
    ] = 10_000
    auto_leader_rebalance_enable: Annotated[bool, Doc("Elect preferred leaders again when they are in sync.")] = True
    leader_imbalance_check_interval_seconds: Annotated[
        Count, Doc("Interval between elections of preferred leaders.")
    ] = 300

    # Replication.
    replica_lag_time_max_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT64_MAX)],
        Doc("Time after which a follower that lags behind is no longer in sync."),
    ] = 30_000
    replica_fetch_wait_max_ms: Annotated[Count, Doc("Longest wait of a follower's fetch for records.")] = 500
    replica_fetch_max_bytes: Annotated[Bytes, Doc("Bytes of one partition in a response to a follower.")] = MIB
    replica_fetch_response_max_bytes: Annotated[Bytes, Doc("Bytes in one response to a follower.")] = 10 * MIB
    replication_quota_bytes_per_second: Annotated[
        Millis, Doc("Bytes a second that replicas which are not in sync may fetch; 0: no limit.")
    ] = 0
    leader_replication_throttled_rate: Annotated[
        Millis,
        Doc(
            "Bytes a second that a leader sends to the replicas of leader.replication.throttled.replicas not in sync.",
            dynamic=True,
        ),
    ] = INT64_MAX
    follower_replication_throttled_rate: Annotated[
        Millis,
        Doc(
            "Bytes a second that the replicas of follower.replication.throttled.replicas not in sync fetch.",
            dynamic=True,
        ),
    ] = INT64_MAX

    # Quotas of clients.
    quota_window_num: Annotated[Samples, Doc("Samples of the window over which rates of clients are measured.")] = 11
    quota_window_size_seconds: Annotated[SampleSeconds, Doc("Length of a sample of the rates of clients.")] = 1
    controller_quota_window_num: Annotated[
        Samples, Doc("Samples whose sum is the largest burst of changes of topics.")
    ] = 11
    controller_quota_window_size_seconds: Annotated[
        SampleSeconds, Doc("Length of a sample of the changes of topics.")
    ] = 1

    # Durability and topics.
    durability: Annotated[
        Literal["fsync", "os"],
        Doc("fsync: acks=1 and acks=all are answered after a sync. os: after the write, as in Kafka by default."),
    ] = "fsync"
    auto_create_topics_enable: Annotated[bool, Doc("Create a topic when a client first requests it.", dynamic=True)] = (
        True
    )
    delete_topic_enable: Annotated[bool, Doc("Allow DeleteTopics.")] = True
    num_partitions: Annotated[Count, Doc("Partitions of a topic created without a count.", dynamic=True)] = 1
    default_replication_factor: Annotated[
        Annotated[int, Meta(ge=1, le=32_767)], Doc("Replicas of a topic created without a count.", dynamic=True)
    ] = 1
    min_insync_replicas: Annotated[
        Count, Doc("In-sync replicas that a write with acks=all needs; default of the topics.", dynamic=True)
    ] = 1
    message_max_bytes: Annotated[
        Bytes, Doc("Largest record batch; default of the topics' max.message.bytes.", dynamic=True)
    ] = MIB + 12
    compression_type: Annotated[
        CompressionType,
        Doc("Codec of stored batches; producer: the one that the producer used.", dynamic=True),
    ] = "producer"
    compression_gzip_level: Annotated[
        GzipLevel, Doc("Level at which batches are recompressed with gzip; -1: gzip's own default.", dynamic=True)
    ] = -1
    compression_lz4_level: Annotated[
        Lz4Level, Doc("Level at which batches are recompressed with lz4; 9: the fast compressor.", dynamic=True)
    ] = 9
    compression_zstd_level: Annotated[
        ZstdLevel,
        Doc(
            "Level at which batches are recompressed with zstd; levels above 10 would block other requests.",
            dynamic=True,
        ),
    ] = 3
    unclean_leader_election_enable: Annotated[
        bool,
        Doc("A replica that is not in sync is never elected, because acknowledged records would be lost.", fixed=True),
    ] = False

    # Logs: defaults of the topics' settings.
    log_segment_bytes: Annotated[SegmentBytes, Doc("Size at which a new segment begins.", dynamic=True)] = 1024 * MIB
    log_roll_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT64_MAX)] | None,
        Doc("Age at which a new segment begins.", dynamic=True, synonyms=("log.roll.hours",)),
    ] = None
    log_roll_hours: Annotated[Count, Doc("Age at which a new segment begins, unless log.roll.ms is given.")] = 168
    log_retention_ms: Annotated[
        SignedMillis | None,
        Doc(
            "Age at which a segment is deleted; -1: never.",
            dynamic=True,
            synonyms=("log.retention.minutes", "log.retention.hours"),
        ),
    ] = None
    log_retention_minutes: Annotated[
        Annotated[int, Meta(ge=-1, le=INT32_MAX)] | None,
        Doc("The same, unless log.retention.ms is given.", synonyms=("log.retention.hours",)),
    ] = None
    log_retention_hours: Annotated[
        Annotated[int, Meta(ge=-1, le=INT32_MAX)], Doc("The same, unless log.retention.minutes is given.")
    ] = 168
    log_retention_bytes: Annotated[
        SignedBytes, Doc("Size of a partition above which old segments are deleted; -1: none.", dynamic=True)
    ] = -1
    log_retention_check_interval_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT64_MAX)], Doc("Interval between searches for old segments.")
    ] = 300_000
    log_index_interval_bytes: Annotated[Bytes, Doc("Bytes of log between two index entries.", dynamic=True)] = 4096
    log_index_size_max_bytes: Annotated[
        Annotated[int, Meta(ge=12, le=INT32_MAX)], Doc("Largest index of a segment.", dynamic=True)
    ] = 10 * MIB
    log_cleanup_policy: Annotated[
        CleanupPolicy, Doc("delete: by age and size. compact: keep the last value of each key.", dynamic=True)
    ] = ("delete",)
    log_message_timestamp_type: Annotated[
        TimestampType, Doc("Whether a record's timestamp is the producer's or the time of its append.", dynamic=True)
    ] = "CreateTime"
    log_message_timestamp_before_max_ms: Annotated[
        Millis, Doc("Greatest time that a producer's timestamp may lie in the past.", dynamic=True)
    ] = INT64_MAX
    log_message_timestamp_after_max_ms: Annotated[
        Millis, Doc("Greatest time that a producer's timestamp may lie in the future.", dynamic=True)
    ] = HOUR_MS
    log_flush_offset_checkpoint_interval_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT32_MAX)],
        Doc("Interval at which logs are synced and recovery points are written."),
    ] = 60_000
    log_flush_interval_messages: Annotated[
        Records,
        Doc("With durability=os: records after which a sync begins; acknowledgements do not wait.", dynamic=True),
    ] = INT64_MAX
    log_flush_interval_ms: Annotated[
        Millis | None,
        Doc("With durability=os: time after which a sync begins; acknowledgements do not wait.", dynamic=True),
    ] = None
    log_preallocate: Annotated[bool, Doc(PREALLOCATE, dynamic=True, no_effect=True)] = False
    log_segment_delete_delay_ms: Annotated[Millis, Doc(DELETE_DELAY, dynamic=True, no_effect=True)] = 0
    log_roll_jitter_hours: Annotated[Bytes, Doc(JITTER, dynamic=True, no_effect=True)] = 0
    log_roll_jitter_ms: Annotated[Millis | None, Doc(JITTER, dynamic=True, no_effect=True)] = None
    log_local_retention_ms: Annotated[LocalRetention, Doc(REMOTE, dynamic=True, no_effect=True)] = -2
    log_local_retention_bytes: Annotated[LocalRetention, Doc(REMOTE, dynamic=True, no_effect=True)] = -2

    # Compaction.
    log_cleaner_enable: Annotated[bool, Doc("Compact the logs whose policy asks for it.")] = True
    log_cleaner_backoff_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT64_MAX)], Doc("Pause of the cleaner when no log is dirty.", dynamic=True)
    ] = 15_000
    log_cleaner_dedupe_buffer_size: Annotated[
        Annotated[int, Meta(ge=MIB, le=INT64_MAX)], Doc("Bytes for the keys of one compaction pass.", dynamic=True)
    ] = 32 * MIB
    log_cleaner_min_cleanable_ratio: Annotated[
        Ratio, Doc("Dirty share of a log at which it is compacted.", dynamic=True)
    ] = 0.5
    log_cleaner_min_compaction_lag_ms: Annotated[
        Millis, Doc("Least age of a record before it is compacted.", dynamic=True)
    ] = 0
    log_cleaner_max_compaction_lag_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT64_MAX)], Doc("Greatest age of a record before it is compacted.", dynamic=True)
    ] = INT64_MAX
    log_cleaner_delete_retention_ms: Annotated[
        Millis, Doc("Time for which a tombstone is kept after compaction.", dynamic=True)
    ] = 24 * HOUR_MS

    # Producers.
    producer_id_expiration_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT32_MAX)],
        Doc("Time after which the state of an idle producer is removed.", dynamic=True),
    ] = 24 * HOUR_MS
    producer_id_expiration_check_interval_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT32_MAX)], Doc("Interval between searches for idle producers.")
    ] = 600_000

    # Consumer groups and their offsets.
    group_min_session_timeout_ms: Annotated[Bytes, Doc("Shortest session timeout of a member.")] = 6_000
    group_max_session_timeout_ms: Annotated[Bytes, Doc("Longest session timeout of a member.")] = 1_800_000
    # Not Kafka's 3000: each new member restarts the wait. So a short one gathers the members that one command starts,
    # and a single consumer starts without a noticeable delay.
    group_initial_rebalance_delay_ms: Annotated[Bytes, Doc("Time an empty group waits for more members.")] = 300
    group_max_size: Annotated[Count, Doc("Members that one group may have.")] = INT32_MAX
    group_coordinator_rebalance_protocols: Annotated[
        tuple[Literal["classic", "consumer"], ...],
        Doc("Protocols of groups: classic, which has to be there, and consumer (KIP-848)."),
    ] = ("classic", "consumer")
    group_consumer_session_timeout_ms: Annotated[Count, Doc("Session timeout of members of the consumer protocol.")] = (
        45_000
    )
    group_consumer_min_session_timeout_ms: Annotated[Count, Doc("Least group.consumer.session.timeout.ms.")] = 45_000
    group_consumer_max_session_timeout_ms: Annotated[Count, Doc("Greatest group.consumer.session.timeout.ms.")] = 60_000
    group_consumer_heartbeat_interval_ms: Annotated[
        Count, Doc("Interval of the heartbeats of members of the consumer protocol.")
    ] = 5_000
    group_consumer_min_heartbeat_interval_ms: Annotated[Count, Doc("Least group.consumer.heartbeat.interval.ms.")] = (
        5_000
    )
    group_consumer_max_heartbeat_interval_ms: Annotated[
        Count, Doc("Greatest group.consumer.heartbeat.interval.ms.")
    ] = 15_000
    group_consumer_max_size: Annotated[Count, Doc("Members that one group of the consumer protocol may have.")] = (
        INT32_MAX
    )
    group_consumer_assignors: Annotated[
        tuple[Literal["uniform", "range"], ...],
        Doc("Assignors of the consumer protocol; the first one serves members that ask for none."),
    ] = ("uniform", "range")
    group_consumer_migration_policy: Annotated[
        Literal["disabled", "upgrade", "downgrade", "bidirectional"],
        Doc("Changes of a group with members to the consumer protocol (upgrade) and to the classic one (downgrade)."),
    ] = "bidirectional"
    offset_metadata_max_bytes: Annotated[
        Bytes, Doc("Longest metadata of a committed offset; as in Kafka, in UTF-16 code units and not in bytes.")
    ] = 4_096
    offsets_topic_num_partitions: Annotated[Count, Doc("Partitions of __consumer_offsets; fixed once it exists.")] = 50
    offsets_topic_replication_factor: Annotated[
        Factor | None, Doc("Replicas of __consumer_offsets; default: 3 in a cluster, 1 for a single broker.")
    ] = None
    offsets_topic_segment_bytes: Annotated[SegmentBytes, Doc("Segment size of __consumer_offsets.")] = 100 * MIB
    offsets_retention_minutes: Annotated[
        Minutes, Doc("Time after which the offsets of an empty group are removed.")
    ] = 10_080
    offsets_retention_check_interval_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT64_MAX)], Doc("Interval between searches for expired offsets.")
    ] = 600_000

    # Transactions.
    transaction_version: Annotated[
        Annotated[int, Meta(ge=1, le=2)],
        Doc("2: every end of a transaction bumps the producer's epoch, for clients that can (KIP-890). 1: never."),
    ] = 2
    transaction_max_timeout_ms: Annotated[Count, Doc("Longest transaction timeout of a producer.")] = 900_000
    transaction_two_phase_commit_enable: Annotated[
        bool, Doc("Allow producers whose prepared transactions never time out (KIP-939).")
    ] = False
    transactional_id_expiration_ms: Annotated[Count, Doc("Time after which an unused transactional id is removed.")] = (
        604_800_000
    )
    # semel's own. The token of a group's last commit is removed too: a driver that returns later would repeat the step.
    transaction_group_expiration_ms: Annotated[
        Annotated[int, Meta(ge=1, le=INT64_MAX)],
        Doc("Time without a step after which a transaction group is removed, once all its members are."),
    ] = 720 * HOUR_MS
    transaction_abort_timed_out_transaction_cleanup_interval_ms: Annotated[
        Count, Doc("Interval between searches for transactions past their timeout.")
    ] = 10_000
    transaction_remove_expired_transaction_cleanup_interval_ms: Annotated[
        Count, Doc("Interval between searches for expired transactional ids.")
    ] = 3_600_000
    transaction_state_log_num_partitions: Annotated[
        Count, Doc("Partitions of __transaction_state; fixed once it exists.")
    ] = 50
    transaction_state_log_replication_factor: Annotated[
        Factor | None, Doc("Replicas of __transaction_state; default: 3 in a cluster, 1 for a single broker.")
    ] = None
    transaction_state_log_segment_bytes: Annotated[SegmentBytes, Doc("Segment size of __transaction_state.")] = (
        100 * MIB
    )
