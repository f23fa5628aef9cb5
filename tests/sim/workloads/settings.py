"""Draws settings of clients: sometimes the defaults, often so small that a run reaches the limits."""

from __future__ import annotations

from random import Random
from typing import Any

BROKER: dict[str, Any] = {"auto.create.topics.enable": False, "group.min.session.timeout.ms": 1_000}
"""Settings that every workload needs on brokers."""


def any_client(rng: Random) -> dict[str, Any]:
    return {
        "request_timeout_ms": rng.choice((700, 2_000, 5_000, 30_000)),
        "max_block_ms": rng.choice((1_000, 5_000, 20_000)),
        "metadata_max_age_ms": rng.choice((2_000, 300_000)),
        "retry_backoff_ms": rng.choice((20, 100)),
        "bootstrap_timeout_ms": rng.choice((500, 10_000)),
    }


def producer(rng: Random) -> dict[str, Any]:
    settings = any_client(rng)
    linger_ms = rng.choice((0, 0, 0, 3, 50))
    return {
        **settings,
        "linger_ms": linger_ms,
        "delivery_timeout_ms": settings["request_timeout_ms"] + linger_ms + rng.choice((0, 0, 3_000, 60_000)),
        "max_batch_size": rng.choice((1, 200, 16_384)),
        "max_in_flight_requests_per_connection": rng.choice((1, 2, 5, 5)),
        "compression_type": rng.choice((None, None, None, "gzip", "lz4", "snappy", "zstd")),
        "pad_bytes": rng.choice((0, 0, 0, 700, 2_000)),
    }


def consumer(rng: Random) -> dict[str, Any]:
    return {
        **any_client(rng),
        "fetch_max_wait_ms": rng.choice((20, 100, 500)),
        "max_poll_records": rng.choice((1, 3, 20, 500)),
        "max_partition_fetch_bytes": rng.choice((200, 1_048_576)),
        "fetch_max_bytes": rng.choice((500, 52_428_800)),
        "default_api_timeout_ms": rng.choice((1_000, 5_000, 20_000)),
    }


def member(rng: Random) -> dict[str, Any]:
    """Settings of a consumer in a group."""
    session_timeout_ms = rng.choice((1_500, 3_000, 10_000))
    return {
        **consumer(rng),
        "session_timeout_ms": session_timeout_ms,
        "heartbeat_interval_ms": session_timeout_ms // 3,
        "max_poll_interval_ms": rng.choice((3_000, 20_000)),
        "enable_auto_commit": False,
        "auto_commit_interval_ms": rng.choice((100, 1_000)),
    }


def transactional(rng: Random) -> dict[str, Any]:
    return {**producer(rng), "transaction_timeout_ms": rng.choice((1_000, 3_000, 10_000))}


def consumer_protocol(rng: Random) -> dict[str, Any]:
    """Times that all members of a group of the consumer protocol have in common. The group waits for a revocation at
    least as long as a session lasts."""
    session_timeout_ms = rng.choice((1_500, 3_000, 6_000))
    return {
        "session_timeout_ms": session_timeout_ms,
        "heartbeat_ms": session_timeout_ms // rng.choice((4, 10)),
        "rebalance_timeout_ms": session_timeout_ms * rng.choice((1, 2, 4)),
    }


def consumer_protocol_broker(timing: dict[str, Any]) -> dict[str, Any]:
    """The same times in the settings of brokers."""
    return {
        "group.consumer.session.timeout.ms": timing["session_timeout_ms"],
        "group.consumer.min.session.timeout.ms": 1_000,
        "group.consumer.heartbeat.interval.ms": timing["heartbeat_ms"],
        "group.consumer.min.heartbeat.interval.ms": 100,
    }


def consumer_protocol_member(rng: Random, timing: dict[str, Any]) -> dict[str, Any]:
    """Settings of a consumer of semel in such a group, which reads committed records."""
    return {
        **consumer(rng),
        "group_protocol": "consumer",
        "group_remote_assignor": rng.choice((None, None, "uniform", "range")),
        "isolation_level": "read_committed",
        "rebalance_timeout_ms": timing["rebalance_timeout_ms"],
        "max_poll_interval_ms": rng.choice((3_000, 20_000)),
        "enable_auto_commit": False,
    }


def subscriber(rng: Random, timing: dict[str, Any]) -> dict[str, Any]:
    """Settings of one member (`epoch_member.Settings`)."""
    return {
        **timing,
        "request_timeout_ms": rng.choice((700, 2_000, 5_000)),
        "revoke_ms": rng.choice((0, 300, timing["session_timeout_ms"], 2 * timing["rebalance_timeout_ms"])),
        "commits_on_revocation": rng.random() < 0.5,
        "assignor": rng.choice((None, None, "uniform", "range")),
        "partition_max_bytes": rng.choice((200, 1_048_576)),
        "max_poll_records": rng.choice((1, 3, 500)),
        "watches_clock": rng.random() < 0.5,
        "keeps_beating": rng.random() < 0.6,
        "leaves": rng.random() < 0.6,
    }
