"""A class name stands for one thing: the names that exist twice are listed here, and the list only gets shorter."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = (
    "bench",
    "broker",
    "client",
    "cluster",
    "console",
    "demo",
    "examples",
    "pipeline",
    "protocol",
    "storage",
    "strangers",
    "tests",
    "website",
)
TWICE_MAX = 25
"""Lower it with each name that goes from `TWICE`. It never rises."""
TWICE = {
    "Assignment": "of the protocol, and of aiokafka",
    "ConfigResource": "of semel's Admin, and of aiokafka's",
    "ConfigSource": "of the broker, and of the public Admin",
    "Connection": "of a listener, and of a client",
    "Consumer": "public, and with OpenTelemetry",
    "ConsumerGroup": "of the coordinator, and of a member",
    "DeleteTopicsResponse": "of the protocol, and of aiokafka",
    "DescribeGroupsResponse": "of the protocol, and of aiokafka",
    "Durability": "of a partition, and of its log",
    "FenceRecord": "of the ledger, and of the public Admin",
    "FetchSession": "of the three peers of a session: leader, follower and consumer",
    "Fetcher": "of a follower, and of a consumer",
    "FrameBuffer": "of a listener, and of a client",
    "KafkaError": "of the protocol, and public",
    "Kind": "of a field, and of a request before authentication",
    "NewTopic": "of a plan, and of the public Admin",
    "Producer": "public, and with OpenTelemetry",
    "ProducerState": "of a log, and of the public Admin",
    "Rule": "of a setting of clients, and of an error code",
    "State": "of five tables of transitions of the client, each in a file with its table",
    "Step": "of a change in the store, and of an authentication",
    "Subscription": "of the protocol, and of a consumer",
    "TransactionCoordinator": "of the broker, and of a producer",
    "TransactionGroup": "of the coordinator, and public",
    "TransactionState": "of the coordinator, and of a producer",
}
"""Name -> the things that have it. Mostly both ends of the protocol, or a public class and its origin."""


@cache
def class_names() -> dict[str, list[str]]:
    """Name -> the files that define a class of this name, nested classes included."""
    found: dict[str, list[str]] = defaultdict(list)
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(path.relative_to(ROOT).as_posix())
    return found


def test_no_other_class_name_exists_twice() -> None:
    twice = {name: files for name, files in class_names().items() if len(files) > 1}
    assert {name: files for name, files in twice.items() if name not in TWICE} == {}, "give one of them another name"
    assert [name for name in TWICE if name not in twice] == [], "remove the name from the list, and lower TWICE_MAX"
    assert len(TWICE) <= TWICE_MAX


def test_no_class_name_has_two_meanings_within_a_journey() -> None:
    """A journey is a paragraph of ARCHITECTURE.md: a reader meets the files of one after the other."""
    document = (ROOT / "ARCHITECTURE.md").read_text()
    journeys = document[document.index("## Journeys") : document.index("## Rules that hold")]
    paragraphs = journeys.split("\n\n")
    twice = {name: class_names()[name] for name in TWICE}
    assert len(paragraphs) > 5
    for paragraph in paragraphs:
        files = re.findall(r"`([a-z_]+(?:/[a-z0-9_]+)+)`", paragraph)
        for name, places in twice.items():
            met = [place for place in places if any(place.endswith(f"/{file}.py") for file in files)]
            assert len(met) < 2, f"{name} is in {met}, which one journey enters"
