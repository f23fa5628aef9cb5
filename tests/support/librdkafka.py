"""Calls of librdkafka's transactional producer whose outcome may be unknown at first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException


def insist(call: Callable[[], Any]) -> None:
    """Repeat a call until its outcome is known."""
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
