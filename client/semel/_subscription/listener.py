"""The application's ear on rebalances."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Iterable

from semel.structs import TopicPartition


class ConsumerRebalanceListener:
    """Override what you need; each method may be plain or `async`.

    The order is always revoked (or lost), then assigned. While a method runs, the consumer goes on heartbeating, and
    hands out no record of the partitions concerned. What a method raises comes out of the next getone/getmany.
    """

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are about to be taken away: still owned, so offsets may be committed here.

        Auto-commit, when on, has just committed them. With a cooperative strategy only what moves is listed.
        """
        return None

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> Awaitable[None] | None:
        """These partitions were given, before their first record is fetched: the place to seek.

        With a cooperative strategy only the new ones are listed. Also called, with an empty list, when there are none.
        """
        return None

    def on_partitions_lost(self, lost: list[TopicPartition]) -> Awaitable[None] | None:
        """These partitions were taken without notice (session expired, fenced): others may own them already.

        Commits would be refused. Unless overridden, the same as revoked (KIP-429).
        """
        return self.on_partitions_revoked(lost)


async def notify_listener(
    listener: ConsumerRebalanceListener | None, method: str, partitions: Iterable[TopicPartition]
) -> None:
    """Calls one method of the listener, and waits for it if it is `async`.

    A listener written for aiokafka has no on_partitions_lost: it is told that they were revoked.
    """
    if listener is None:
        return
    call = getattr(listener, method, None) or listener.on_partitions_revoked
    outcome = call(sorted(partitions))
    if inspect.isawaitable(outcome):
        await outcome
