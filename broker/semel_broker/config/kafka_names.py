"""PURE: the settings of Kafka that this broker does not have, each with what to do instead."""

from typing import Final

_PEERS: Final = "other brokers connect to inter.broker.listener.name, or to peer.host.name and peer.port"
_CLUSTER: Final = "brokers are held together by etcd.endpoints, and each of them can be the controller"
_SECURITY: Final = (
    "leave it out; SASL has the mechanisms SCRAM-SHA-256, SCRAM-SHA-512 and PLAIN, with users in the store (semel user)"
)
_TLS: Final = "certificates and keys are PEM: set ssl.keystore.location and ssl.truststore.location"
_THREADS: Final = "one event loop serves everything, there are no threads to count: leave it out"
_GROUPS: Final = "groups have the protocols classic and consumer, without this setting: leave it out"
_CALLBACK: Final = "there are no callback classes: leave it out, and use semel quota or kafka-configs"
_DEFAULT: Final = "quotas are not settings: leave it out, and use semel quota set --default-user"
_REPLICAS: Final = "replication.quota.bytes.per.second bounds replicas that catch up"
_REMOTE: Final = "there is no tiered storage: leave it out"
_WAITING: Final = "requests that wait are woken when they can be answered: leave it out"
_METRICS: Final = "there are no metrics reporters: leave it out; metrics.listener serves metrics to Prometheus"
_CLEANER: Final = "compaction paces itself: leave it out; log.cleaner.dedupe.buffer.size bounds its memory"
_BUFFERS: Final = "buffers are the operating system's: leave it out; socket.request.max.bytes bounds a request"
_FORMAT: Final = "there is one record format, and API versions are negotiated: leave it out"
_POLICY: Final = "there are no policy classes: leave it out"
_INTERNAL: Final = "with three replicas an internal topic wants two in sync, on its own: leave it out"

NAMES: Final = {
    "early.start.listeners": "all listeners start together: leave it out, and set listeners",
    "controller.listener.names": _PEERS,
    "process.roles": _CLUSTER,
    "broker.heartbeat.interval.ms": "a broker is lost after broker.session.timeout.ms",
    "initial.broker.registration.timeout.ms": "a broker is lost after broker.session.timeout.ms",
    "broker.id.generation.enable": "give node.id",
    "reserved.broker.max.id": "give node.id",
    "background.threads": _THREADS,
    "num.io.threads": _THREADS,
    "num.network.threads": _THREADS,
    "num.replica.fetchers": _THREADS,
    "num.replica.alter.log.dirs.threads": _THREADS,
    "num.recovery.threads.per.data.dir": _THREADS,
    "log.cleaner.threads": _THREADS,
    "group.coordinator.threads": _THREADS,
    "queued.max.requests": "max.connections bounds connections, and each has a fixed bound of requests: leave it out",
    "queued.max.request.bytes": "requests of all connections have a fixed bound together: leave it out",
    "max.connections.per.ip": "max.connections bounds connections, whatever their addresses",
    "max.connections.per.ip.overrides": "max.connections bounds connections, whatever their addresses",
    "max.connection.creation.rate": "max.connections bounds them; semel quota set --ip bounds how fast they come",
    "controlled.shutdown.enable": "a broker always hands over; controlled.shutdown.max.wait.ms bounds how long",
    "inter.broker.protocol.version": _FORMAT,
    "log.message.format.version": _FORMAT,
    "message.format.version": _FORMAT,
    "log.message.downconversion.enable": _FORMAT,
    "message.downconversion.enable": _FORMAT,
    "log.message.timestamp.difference.max.ms": (
        "set log.message.timestamp.before.max.ms and log.message.timestamp.after.max.ms"
    ),
    "message.timestamp.difference.max.ms": "set message.timestamp.before.max.ms and message.timestamp.after.max.ms",
    "log.flush.scheduler.interval.ms": "each log has its own timer: set log.flush.interval.ms",
    "log.flush.start.offset.checkpoint.interval.ms": "set log.flush.offset.checkpoint.interval.ms, which is for both",
    "replica.high.watermark.checkpoint.interval.ms": "high watermarks are not stored: leave it out",
    "transaction.state.log.min.isr": _INTERNAL,
    "offsets.commit.required.acks": _INTERNAL,
    "offsets.topic.compression.codec": "internal topics are not compressed: leave it out",
    "transaction.partition.verification.enable": "transactions are always verified: leave it out",
    "quota.producer.default": _DEFAULT,
    "quota.consumer.default": _DEFAULT,
    "create.topic.policy.class.name": _POLICY,
    "alter.config.policy.class.name": _POLICY,
}

PREFIXES: Final = {
    "ssl.": _TLS,
    "sasl.": _SECURITY,  # those that there are have been found before
    "security.": _SECURITY,
    "authorizer.": _SECURITY,
    "principal.builder.": _SECURITY,
    "delegation.token.": _SECURITY,
    "listener.name.": "it cannot change while the broker runs: set ssl.keystore.location, and restart the broker",
    "zookeeper.": _CLUSTER,
    "controller.quorum.": _CLUSTER,
    "metadata.log.": _CLUSTER,
    "metadata.max.": _CLUSTER,
    "remote.": _REMOTE,
    "group.consumer.": _GROUPS,
    "group.share.": _GROUPS,
    "group.streams.": _GROUPS,
    "share.coordinator.": _GROUPS,
    "client.quota.": _CALLBACK,
    "replication.quota.window.": _REPLICAS,
    "alter.log.dirs.replication.quota.": _REPLICAS,
    "metric.": _METRICS,
    "metrics.": _METRICS,
    "kafka.metrics.": _METRICS,
    "telemetry.": _METRICS,
    "log.cleaner.io.": _CLEANER,
    "socket.": _BUFFERS,
    "replica.socket.": _BUFFERS,
}
PURGATORY: Final = ".purgatory.purge.interval.requests"


def instead(name: str) -> str | None:
    """The advice for a setting of Kafka that is not here; None: the name is unknown."""
    if name in NAMES:
        return NAMES[name]
    if name.endswith(PURGATORY):
        return _WAITING
    return next((why for prefix, why in PREFIXES.items() if name.startswith(prefix)), None)
