"""PURE: reads the counters of authentication, authorization, quotas and the audit log."""

from __future__ import annotations

from collections.abc import Iterator

from semel_broker.metrics import families
from semel_broker.metrics.page import Page
from semel_broker.node import Node


def read(node: Node, page: Page) -> Iterator[None]:
    """Add all series of this section."""
    broker = node.broker
    counters = broker.counters.security
    for listener_and_mechanism, count in sorted(counters.authenticated.items()):
        page.add(families.AUTHENTICATIONS, count, *listener_and_mechanism)
    for failure, count in sorted(counters.failed.items()):
        page.add(families.AUTHENTICATION_FAILURES, count, *failure)
    for listener_and_reason, count in sorted(broker.counters.connections.failed_handshakes.items()):
        page.add(families.HANDSHAKE_FAILURES, count, *listener_and_reason)
    for refusal, count in sorted(counters.refused.items()):
        page.add(families.REFUSALS, count, *refusal)
    for quota, throttled in sorted(broker.quotas.quotas.throttled.items()):
        page.add(families.THROTTLES, throttled.count, quota)
        page.add(families.THROTTLE_SECONDS, round(throttled.seconds, 6), quota)
    page.add(families.AUDIT_LOST, broker.world.audit_lost())
    page.add(families.AUDIT_REFUSED, counters.refused_for_audit)
    page.add(families.LOG_LOST, broker.world.log_lost())
    yield
