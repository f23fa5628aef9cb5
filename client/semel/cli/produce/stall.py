"""Says why records that were sent are not stored: too few in-sync replicas, no leader, no connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from semel import Admin, ConfigResource, ConfigResourceType
from semel._command_line.client_settings import ClientSettings
from semel._command_line.client_start import UnreachableError
from semel._command_line.common import say
from semel.errors import KafkaError
from semel.structs import PartitionMetadata

STALL_S = 2.0
AGAIN_S = 5.0
IN_SYNC_SETTING = "min.insync.replicas"


async def say_stalls(
    client: ClientSettings,
    topic: str,
    counts: Callable[[], tuple[int, int]],
    *,
    all_acks: bool,
    is_connected: Callable[[], bool] = lambda: True,
) -> None:
    """Print one line when no record was stored for two seconds, and another one when the reason changes. Never ends.

    counts: the number of records sent, and that of those with an outcome. is_connected: False while a broker is not
    reached, which another line says.
    """
    said = ""
    before = counts()[1]
    while True:
        await asyncio.sleep(AGAIN_S if said else STALL_S)
        sent, done = counts()
        if sent == done or done != before or not is_connected():
            said = ""
        else:
            why = await _reason(client, topic, all_acks)
            if why != said and counts()[1] == done:
                say(f"waiting: {why}", err=True)
            said = why
        before = done


async def _reason(client: ClientSettings, topic: str, all_acks: bool) -> str:
    try:
        async with client.admin(quiet=True) as admin:
            (found,) = await admin.describe_topics([topic])
            in_sync_min = await _in_sync_min(admin, topic) if all_acks else 0
    except UnreachableError as e:
        return e.reason
    except KafkaError as e:
        return e.message
    return reason(found.partitions, in_sync_min)


async def _in_sync_min(admin: Admin, topic: str) -> int:
    (found,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic, [IN_SYNC_SETTING])])
    entry = found.configs.get(IN_SYNC_SETTING)
    return int(entry.value) if entry is not None and entry.value else 0


def reason(partitions: tuple[PartitionMetadata, ...], in_sync_min: int) -> str:
    """PURE. Why these partitions do not take records."""
    offline = [each for each in partitions if each.leader < 0]
    short = [each for each in partitions if len(each.isr) < _needed(each, in_sync_min)]
    if offline:
        return f"{_names(offline)} no leader"
    if short:
        needed = _needed(short[0], in_sync_min)
        return f"{_names(short)} {len(short[0].isr)} of {needed} in-sync replicas (min.insync.replicas)"
    return "the brokers have not confirmed a record for some seconds"


def _needed(partition: PartitionMetadata, in_sync_min: int) -> int:
    """A partition with fewer replicas needs all of them."""
    return min(in_sync_min, len(partition.replicas))


def _names(partitions: list[PartitionMetadata]) -> str:
    """The subject of a sentence: `flights-0 has`, `flights-0 and 3 more partitions have`."""
    first = f"{partitions[0].topic}-{partitions[0].partition}"
    more = len(partitions) - 1
    return f"{first} and {more} more partition{'s' if more > 1 else ''} have" if more else f"{first} has"
