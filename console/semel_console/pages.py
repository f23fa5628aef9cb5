"""The facts that pages may ask for, by name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from semel import Admin

from semel_console.facts.access import access
from semel_console.facts.cluster import broker_settings, knock, overview
from semel_console.facts.export import MEDIA_TYPES, Export
from semel_console.facts.groups import group, groups, readers
from semel_console.facts.records import records
from semel_console.facts.rights import NEEDS, rights
from semel_console.facts.search import search
from semel_console.facts.sinks import sinks
from semel_console.facts.timeline import ends, timeline
from semel_console.facts.topics import topic, topics
from semel_console.facts.transactions import transaction, transactions
from semel_console.query import QueryParameters

Facts = Callable[[Admin, QueryParameters, int], Awaitable[dict[str, Any]]]
"""Gets the parameters of the request and the time in ms."""

__all__ = ["FACTS", "MEDIA_TYPES", "NEEDS", "Export", "Facts", "knock"]
FACTS: Mapping[str, Facts] = {
    "access": access,
    "broker": broker_settings,
    "ends": ends,
    "group": group,
    "groups": groups,
    "overview": overview,
    "readers": readers,
    "records": records,
    "rights": rights,
    "search": search,
    "sinks": sinks,
    "timeline": timeline,
    "topic": topic,
    "topics": topics,
    "transaction": transaction,
    "transactions": transactions,
}
