"""Looks at the topic before lines are written: whether it exists, and how large its batches may be."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from semel import Admin, ConfigResource, ConfigResourceType, Producer
from semel._command_line.common import failure, needing, say
from semel._texts import plural, similar
from semel.admin import Operation
from semel.errors import KafkaError, KafkaTimeoutError, UnknownTopicOrPartitionError

CREATION_S = 5.0
"""How long the broker may take to create a topic that a producer asks for."""
SIZE_SETTING = "max.message.bytes"


async def exists(admin: Admin, topic: str, *, may_create: bool) -> bool:
    """Raise ClickException for a missing topic unless `may_create`."""
    try:
        with needing(admin, Operation.WRITE, topic):
            await admin.describe_topics([topic])
    except UnknownTopicOrPartitionError:
        if not may_create:
            raise failure(
                f"There is no topic {topic!r}.{similar(topic, await admin.list_topics())} "
                "Create the topic, or leave out --no-create"
            ) from None
        return False
    return True


async def batch_bytes_max(admin: Admin, topic: str, default: int) -> int:
    """The topic's limit of a batch; `default` where it cannot be asked."""
    try:
        (found,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic, [SIZE_SETTING])])
        return int(found.configs[SIZE_SETTING].value or default)
    except (KafkaError, KeyError, ValueError):
        return default


async def create(producer: Producer, topic: str, known: Iterable[str], *, quiet: bool) -> None:
    """Let the broker create a missing topic, and say so. known: the topics that there are. Raises ClickException when
    the broker does not create it.
    """
    try:
        async with asyncio.timeout(CREATION_S):
            partitions = await producer.partitions_for(topic)
    except (TimeoutError, KafkaTimeoutError):
        raise failure(
            f"There is no topic {topic!r}, and the broker does not create it (auto.create.topics.enable)."
            f"{similar(topic, known)} Check the name with `semel topic list`, or create it: semel topic create {topic}"
        ) from None
    if not quiet:
        say(f"topic {topic} did not exist; the broker created it with {plural(len(partitions), 'partition')}", err=True)
