"""PURE: reads the counters of authentication, authorization, quotas and the audit log."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from semel_broker.metrics.families import Section
from semel_broker.metrics.page import Page
from semel_broker.node import Node

SECTION: Final = Section("Security")
AUTHENTICATIONS = SECTION.counter(
    "authentications_total", "Clients that authenticated by SASL.", "listener", "mechanism"
)
AUTHENTICATION_FAILURES = SECTION.counter(
    "authentication_failures_total", "Clients that failed to authenticate by SASL.", "listener", "mechanism", "reason"
)
HANDSHAKE_FAILURES = SECTION.counter(
    "tls_handshake_failures_total", "TLS handshakes that failed.", "listener", "reason"
)
CERTIFICATE_ENDS = SECTION.gauge(
    "tls_certificate_expiry_timestamp_seconds", "End of the listener's certificate, in seconds since 1970.", "listener"
)
REFUSALS = SECTION.counter(
    "authorization_refusals_total", "Operations that the authorizer refused.", "operation", "resource"
)
THROTTLES = SECTION.counter("throttles_total", "Requests or connections that a quota delayed.", "quota")
THROTTLE_SECONDS = SECTION.counter("throttle_seconds_total", "Time of these delays.", "quota")
AUDIT_LOST = SECTION.counter("audit_lines_lost_total", "Lines of the audit log that could not be written.")
AUDIT_REFUSED = SECTION.counter(
    "audit_refused_requests_total", "Requests refused because the audit log could not be written (audit.log.required)."
)


def read(node: Node, page: Page) -> Iterator[None]:
    """Add all series of this section."""
    broker = node.broker
    counters = broker.counters.security
    for listener_and_mechanism, count in sorted(counters.authenticated.items()):
        page.add(AUTHENTICATIONS, count, *listener_and_mechanism)
    for failure, count in sorted(counters.failed.items()):
        page.add(AUTHENTICATION_FAILURES, count, *failure)
    for listener_and_reason, count in sorted(broker.counters.connections.failed_handshakes.items()):
        page.add(HANDSHAKE_FAILURES, count, *listener_and_reason)
    for listener, ends_at_s in sorted(node.server.certificate_ends().items()):
        page.add(CERTIFICATE_ENDS, ends_at_s, listener)
    for refusal, count in sorted(counters.refused.items()):
        page.add(REFUSALS, count, *refusal)
    for quota, throttled in sorted(broker.quotas.quotas.throttled.items()):
        page.add(THROTTLES, throttled.count, quota)
        page.add(THROTTLE_SECONDS, round(throttled.seconds, 6), quota)
    page.add(AUDIT_LOST, broker.world.audit_lost())
    page.add(AUDIT_REFUSED, counters.refused_for_audit)
    yield
