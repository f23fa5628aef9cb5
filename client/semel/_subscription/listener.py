"""The rebalance listener that an application may give to `subscribe`, and how it is called."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Collection, Iterable

from semel.structs import TopicPartition


class ConsumerRebalanceListener:
    """Override the methods that you need; each may be plain or `async`.

    Revoked (or lost) is always called before assigned. While a method runs, heartbeats continue, and no record of these
    partitions is handed out. The next getone or getmany raises an exception of the listener.
    """

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> Awaitable[None] | None:
        """These partitions will be revoked. They are still owned, so offsets may be committed here.

        Auto-commit, when on, has just committed them. With a cooperative strategy or group_protocol="consumer" only
        partitions that move are listed.
        """
        return None

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> Awaitable[None] | None:
        """These partitions are assigned; none of their records is fetched yet. The place to seek.

        With a cooperative strategy or group_protocol="consumer" only new partitions are listed. Also called with an
        empty list when there are none.
        """
        return None

    def on_partitions_lost(self, lost: list[TopicPartition]) -> Awaitable[None] | None:
        """These partitions were lost (session expired, member fenced). Other members may own them already.

        Commits would be refused. By default the same as revoked (KIP-429).
        """
        return self.on_partitions_revoked(lost)


def checked_listener(listener: ConsumerRebalanceListener | None) -> ConsumerRebalanceListener | None:
    """The listener of `subscribe`. Raises TypeError for an object without the methods of a listener."""
    methods = ("on_partitions_revoked", "on_partitions_assigned")
    if listener is not None and not all(callable(getattr(listener, name, None)) for name in methods):
        raise TypeError(f"listener {listener!r} lacks {' or '.join(methods)}: derive it from ConsumerRebalanceListener")
    return listener


async def notify_listener(
    listener: ConsumerRebalanceListener | None,
    method: str,
    partitions: Iterable[TopicPartition],
    collect: Callable[[Iterable[TopicPartition]], Collection[TopicPartition]] = sorted,
) -> None:
    """Call one method of the listener with the collected partitions, and await it if it is `async`.

    A listener written for aiokafka has no on_partitions_lost: on_partitions_revoked is called instead.
    """
    if listener is None:
        return
    call = getattr(listener, method, None) or listener.on_partitions_revoked
    outcome = call(collect(partitions))  # type: ignore[arg-type]  # aiokafka's listeners get sets
    if inspect.isawaitable(outcome):
        await outcome
