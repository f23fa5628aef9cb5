"""The brokers that Metadata names while brokers stop and start."""

from __future__ import annotations

from typing import cast

import pytest
from broker.cluster.images import ImageBuilder
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import ImageDelta
from semel_broker.cluster.store import Store
from semel_broker.topics.advertised_brokers import LINGERS_S, AdvertisedBrokers
from semel_broker.world import Logger


class AdvertisedBrokersSetup:
    """Three live brokers, and the list that one of them advertises."""

    def __init__(self) -> None:
        self.sketch = ImageBuilder()
        for node_id in (1, 2, 3):
            self.sketch.lives(node_id)
        self.now = 100.0
        self.feed = Feed(cast(Store, None), self.sketch.image, cast(Logger, None))
        self.advertised = AdvertisedBrokers(self.feed, lambda: self.now)

    def goes(self, node_id: int) -> None:
        self.sketch.dies(node_id)
        self.feed._notify(ImageDelta(brokers={node_id: None}))

    def named(self) -> list[int]:
        return [broker.node_id for broker in self.advertised.with_recent("PLAINTEXT")]


def test_a_broker_that_has_just_stopped_stays_listed_until_clients_know_the_new_leaders() -> None:
    """librdkafka leaves the partitions of a broker that is no longer named without a leader until it asks again.

    It does so even if the same answer names their new leaders.
    """
    topic_broker = AdvertisedBrokersSetup()
    topic_broker.goes(2)
    assert topic_broker.named() == [1, 2, 3]
    assert [broker.node_id for broker in topic_broker.advertised.live("PLAINTEXT")] == [1, 3]
    topic_broker.now += LINGERS_S / 2
    topic_broker.goes(3)
    assert topic_broker.named() == [1, 2, 3]
    topic_broker.now += LINGERS_S / 2
    assert topic_broker.named() == [1, 3]
    topic_broker.now += LINGERS_S / 2
    assert topic_broker.named() == [1]


@pytest.mark.parametrize("after_s", [0.0, 2 * LINGERS_S])
def test_a_broker_that_starts_again_is_listed_at_its_new_address(after_s: float) -> None:
    topic_broker = AdvertisedBrokersSetup()
    topic_broker.goes(2)
    topic_broker.now += after_s
    topic_broker.sketch.lives(2)
    assert topic_broker.named() == [1, 2, 3]
    assert topic_broker.advertised.with_recent("PLAINTEXT") == topic_broker.advertised.live("PLAINTEXT")


def test_the_list_is_empty_when_all_brokers_stopped_long_ago() -> None:
    topic_broker = AdvertisedBrokersSetup()
    for node_id in (1, 2, 3):
        topic_broker.goes(node_id)
    assert topic_broker.named() == [1, 2, 3]
    topic_broker.now += LINGERS_S
    assert topic_broker.named() == []
