"""Whom clients are told of while brokers come and go."""

from __future__ import annotations

from typing import cast

import pytest
from broker.cluster.images import Sketch
from semel_broker.cluster.feed import Feed
from semel_broker.cluster.image import Touched
from semel_broker.cluster.store import Store
from semel_broker.topics.advertised_brokers import LINGERS_S, Contacts
from semel_broker.world import Logger


class Scene:
    """Three live brokers, and the contacts of one of them."""

    def __init__(self) -> None:
        self.sketch = Sketch()
        for node_id in (1, 2, 3):
            self.sketch.lives(node_id)
        self.now = 100.0
        self.feed = Feed(cast(Store, None), self.sketch.image, cast(Logger, None))
        self.contacts = Contacts(self.feed, lambda: self.now)

    def goes(self, node_id: int) -> None:
        self.sketch.dies(node_id)
        self.feed._tell(Touched(brokers={node_id: None}))

    def named(self) -> list[int]:
        return [contact.node_id for contact in self.contacts.named()]


def test_who_has_just_gone_is_named_for_a_moment_so_that_new_leaders_are_heard_of_first() -> None:
    """librdkafka leaves the partitions of a broker that is not named any more without a leader, those whose new one the
    same answer names included, until it asks again."""
    scene = Scene()
    scene.goes(2)
    assert scene.named() == [1, 2, 3]
    assert [contact.node_id for contact in scene.contacts.live()] == [1, 3]
    scene.now += LINGERS_S / 2
    scene.goes(3)
    assert scene.named() == [1, 2, 3]
    scene.now += LINGERS_S / 2
    assert scene.named() == [1, 3]
    scene.now += LINGERS_S / 2
    assert scene.named() == [1]


@pytest.mark.parametrize("after_s", [0.0, 2 * LINGERS_S])
def test_who_comes_back_is_named_as_it_is_now(after_s: float) -> None:
    scene = Scene()
    scene.goes(2)
    scene.now += after_s
    scene.sketch.lives(2)
    assert scene.named() == [1, 2, 3]
    assert scene.contacts.named() == scene.contacts.live()


def test_nobody_is_named_when_all_have_gone_long_ago() -> None:
    scene = Scene()
    for node_id in (1, 2, 3):
        scene.goes(node_id)
    assert scene.named() == [1, 2, 3]
    scene.now += LINGERS_S
    assert scene.named() == []
