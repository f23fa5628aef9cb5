"""Fixtures of scenes: one with the settings of the pytest plugin, and a factory for others."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from broker.troubles.scene import Scene

MakeScene = Callable[..., Scene]


@pytest.fixture
def make_scene() -> Iterator[MakeScene]:
    """`make_scene(durability="fsync")`; all scenes are closed after the test."""
    made: list[Scene] = []

    def make(**settings: object) -> Scene:
        made.append(Scene(**settings))
        return made[-1]

    yield make
    for scene in made:
        scene.broker.kill()


@pytest.fixture
def scene(make_scene: MakeScene) -> Scene:
    return make_scene()
