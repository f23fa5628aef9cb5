"""Fixtures: a broker with the settings of the pytest plugin, and a factory for brokers with others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from broker.troubles.single_topic_broker import SingleTopicBroker

MakeScene = Callable[..., SingleTopicBroker]


@pytest.fixture
def make_scene() -> Iterator[MakeScene]:
    """`make_scene(durability="fsync")`; all scenes are closed after the test."""
    made: list[SingleTopicBroker] = []

    def make(**settings: object) -> SingleTopicBroker:
        made.append(SingleTopicBroker(**settings))
        return made[-1]

    yield make
    for topic_broker in made:
        topic_broker.broker.kill()


@pytest.fixture
def topic_broker(make_scene: MakeScene) -> SingleTopicBroker:
    return make_scene()
