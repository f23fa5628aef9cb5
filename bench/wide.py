"""Measures requests over 1,000 to 10,000 partitions: the broker's CPU time, and the longest wait of another client.

`python -m bench.wide` prints a table. A process of its own asks ApiVersions every few milliseconds meanwhile. Its
longest wait is about the longest turn of the broker's event loop, plus the delays of a machine in other use.
"""

from __future__ import annotations

import argparse
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Callable, Iterable
from multiprocessing.connection import Connection
from pathlib import Path

from semel_protocol.api import APIS
from semel_protocol.headers import encode_request_frame
from semel_protocol.messages import k00_produce as k00
from semel_protocol.messages import k01_fetch as k01
from semel_protocol.messages import k02_list_offsets as k02
from semel_protocol.messages import k03_metadata as k03
from semel_protocol.messages import k19_create_topics as k19
from semel_protocol.messages import k20_delete_topics as k20
from semel_protocol.messages import k21_delete_records as k21
from semel_protocol.messages.k18_api_versions import ApiVersionsRequest
from semel_protocol.records import Record, build_batch

from bench.many import RawClient
from bench.measure import broker, cpu_s

SIZES = (1_000, 3_000, 10_000)
PAUSE_S = 0.005
WAIT_MS = 1_000
TOPIC = "wide"
Do = Callable[[RawClient, int], None]


def bystander(port: int, pipe: Connection) -> None:
    """Asks ApiVersions; answers each message of the pipe with the longest wait since the last one, in seconds."""
    frame = b"".join(
        encode_request_frame(
            APIS[18], 3, 1, "bystander", ApiVersionsRequest(client_software_name="bench", client_software_version="1")
        )
    )
    longest_s = 0.0
    with socket.create_connection(("127.0.0.1", port), 120) as connection:
        while True:
            began = time.perf_counter()
            connection.sendall(frame)
            assert connection.recv(65536), "the broker closed the connection"
            longest_s = max(longest_s, time.perf_counter() - began)
            if pipe.poll(PAUSE_S):
                if pipe.recv() is None:
                    return
                pipe.send(longest_s)
                longest_s = 0.0


def create(client: RawClient, size: int) -> None:
    topic = k19.CreateTopicsRequestTopic(
        name=TOPIC, num_partitions=size, replication_factor=1, assignments=[], configs=[]
    )
    request = k19.CreateTopicsRequest(topics=[topic], validate_only=False)
    answer = client.request(19, 5, request, k19.CreateTopicsResponse)
    _check(each.error_code for each in answer.topics)


def produce(client: RawClient, size: int) -> None:
    records = build_batch([Record(offset=0, timestamp=1, key=None, value=b"v", headers=())])
    rows = [k00.ProduceRequestPartition(index=index, records=records) for index in range(size)]
    topics = [k00.ProduceRequestTopic(name=TOPIC, partition_data=rows)]
    request = k00.ProduceRequest(acks=1, timeout_ms=120_000, topic_data=topics)
    answer = client.request(0, 7, request, k00.ProduceResponse)
    _check(row.error_code for each in answer.responses for row in each.partition_responses)


def fetch_all(client: RawClient, size: int) -> None:
    _fetch(client, size, offset=0)


def fetch_and_wait(client: RawClient, size: int) -> None:
    """Waits at the end of each partition until the time is over."""
    _fetch(client, size, offset=1)


def _fetch(client: RawClient, size: int, offset: int) -> None:
    rows = [
        k01.FetchRequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index in range(size)
    ]
    topics = [k01.FetchRequestTopic(topic=TOPIC, partitions=rows)]
    request = k01.FetchRequest(max_wait_ms=WAIT_MS, min_bytes=1, isolation_level=0, topics=topics)
    answer = client.request(1, 11, request, k01.FetchResponse)
    _check(row.error_code for each in answer.responses for row in each.partitions)


def list_offsets(client: RawClient, size: int) -> None:
    rows = [k02.ListOffsetsRequestPartition(partition_index=index, timestamp=-1) for index in range(size)]
    request = k02.ListOffsetsRequest(replica_id=-1, topics=[k02.ListOffsetsRequestTopic(name=TOPIC, partitions=rows)])
    answer = client.request(2, 5, request, k02.ListOffsetsResponse)
    _check(row.error_code for each in answer.topics for row in each.partitions)


def metadata(client: RawClient, size: int) -> None:
    request = k03.MetadataRequest(topics=None)
    answer = client.request(3, 8, request, k03.MetadataResponse)
    assert sum(len(each.partitions) for each in answer.topics) >= size


def delete_records(client: RawClient, size: int) -> None:
    rows = [k21.DeleteRecordsRequestPartition(partition_index=index, offset=-1) for index in range(size)]
    request = k21.DeleteRecordsRequest(
        topics=[k21.DeleteRecordsRequestTopic(name=TOPIC, partitions=rows)], timeout_ms=600_000
    )
    answer = client.request(21, 1, request, k21.DeleteRecordsResponse)
    _check(row.error_code for each in answer.topics for row in each.partitions)


def delete_topic(client: RawClient, size: int) -> None:
    request = k20.DeleteTopicsRequest(topic_names=[TOPIC], timeout_ms=600_000)
    answer = client.request(20, 5, request, k20.DeleteTopicsResponse)
    _check(each.error_code for each in answer.responses)


def _check(codes: Iterable[int]) -> None:
    wrong = [code for code in codes if code]
    assert not wrong, f"{len(wrong)} rows have errors: {sorted(set(wrong))}"


ROWS: tuple[tuple[str, Do], ...] = (
    ("CreateTopics", create),
    ("Produce, first records", produce),
    ("Fetch, all have records", fetch_all),
    ("Fetch, waits at all ends", fetch_and_wait),
    ("ListOffsets", list_offsets),
    ("Metadata", metadata),
    ("DeleteRecords", delete_records),
    ("DeleteTopics", delete_topic),
)


def measure(directory: Path, size: int, rows: Iterable[tuple[str, Do]]) -> None:
    """Prints a line for each row."""
    with broker(directory, "os") as process:
        here, there = multiprocessing.Pipe()
        other = multiprocessing.get_context("spawn").Process(target=bystander, args=(process.port, there), daemon=True)
        other.start()
        client = RawClient(process)
        for name, do in rows:
            here.send(True)
            here.recv()
            began, cpu = time.perf_counter(), cpu_s(process)
            do(client, size)
            took, cpu = time.perf_counter() - began, cpu_s(process) - cpu
            here.send(True)
            print(f"{name:28} {size:7,} {took:8.2f} s {cpu:8.2f} s CPU {here.recv() * 1000:8.0f} ms", flush=True)
        here.send(None)
        other.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--without", nargs="*", default=(), metavar="WORD", help="leave out rows that begin so")
    given = parser.parse_args()
    rows = [(name, do) for name, do in ROWS if not name.startswith(tuple(given.without))]
    print(f"{'request':28} {'rows':>7} {'time':>10} {'broker':>14} {'longest wait':>11}")
    for size in given.sizes:
        with tempfile.TemporaryDirectory() as directory:
            measure(Path(directory) / "data", size, rows)


if __name__ == "__main__":
    main()
