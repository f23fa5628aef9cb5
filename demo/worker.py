"""A worker of the demo: reads `flights`, adds the airline's name, writes `flights-by-airline`, one transaction per
batch.

Output and input offsets are committed together, so a kill leaves each batch done or not done. A worker that is fenced
by another producer with its transactional id exits with status 3 and reports the error.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from pathlib import Path

from semel import Consumer, Producer, TopicPartition
from semel.errors import CommitFailedError, KafkaError, ProducerFenced

from demo.client_settings import of_semel
from demo.flights import SOURCE, TARGET, airlines, enriched

BATCH_RECORDS = 2_000
FENCED = 3


async def work(bootstrap: str, group: str, transactional_id: str) -> int:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    names = airlines()
    consumer = Consumer(
        SOURCE,
        **of_semel(bootstrap),
        group_id=group,
        isolation_level="read_committed",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=6_000,
        heartbeat_interval_ms=500,
    )
    producer = Producer(
        **of_semel(bootstrap), transactional_id=transactional_id, transaction_timeout_ms=10_000, linger_ms=5
    )
    done = 0
    try:
        async with producer, consumer:
            say(started=transactional_id)
            while not stop.is_set():
                batches = await consumer.getmany(timeout_ms=200, max_records=BATCH_RECORDS)
                if not batches:
                    continue
                try:
                    done += await transform(producer, consumer, names, batches)
                    say(done=done)
                except ProducerFenced:
                    raise
                except (CommitFailedError, KafkaError) as e:
                    say(aborted=f"{type(e).__name__}: {e}")
                    await consumer.seek_to_committed()  # the transaction is aborted, so its input is read again
    except ProducerFenced as e:
        say(fenced=str(e))
        return FENCED
    return 0


async def transform(producer: Producer, consumer: Consumer, names: dict[str, str], batches: object) -> int:
    assert isinstance(batches, dict)
    count = 0
    async with producer.transaction():
        offsets: dict[TopicPartition, int] = {}
        for tp, records in batches.items():
            for record in records:
                value = enriched(record.value, names[record.key.decode()])
                await producer.send(TARGET, value, record.key, partition=tp.partition)
            offsets[tp] = records[-1].offset + 1
            count += len(records)
        await producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
    return count


def say(**facts: object) -> None:
    print(json.dumps(facts), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="One worker of the demo.")
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--group", required=True)
    parser.add_argument("--transactional-id", required=True)
    parser.add_argument("--log", type=Path, required=True)
    arguments = parser.parse_args()
    logging.basicConfig(filename=arguments.log, format="%(asctime)s %(process)d %(message)s")
    sys.exit(asyncio.run(work(arguments.bootstrap, arguments.group, arguments.transactional_id)))


if __name__ == "__main__":
    main()
