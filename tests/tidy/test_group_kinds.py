"""Groups have kinds: a kind is a folder, and the rest of the broker hardly knows which kinds there are."""

from __future__ import annotations

import ast
from pathlib import Path

BROKER = Path(__file__).parents[2] / "broker/semel_broker"
GROUPS = BROKER / "groups"
PARAMETERS_MAX = 6
KIND = "groups/consumer/"
KNOWN_TO = {
    "groups/context.py": "the topics that its members may read",
    "groups/replay.py": "its records",
    "groups/shard.py": "the table of kinds",
    "handlers/k68_consumer_group_heartbeat.py": "its API",
    "handlers/k69_consumer_group_describe.py": "its API",
}


def test_only_these_files_outside_its_folder_know_the_consumer_kind() -> None:
    """Another kind of group would be a folder, its handlers, and a line or two in the first three of these."""
    files = {str(path.relative_to(BROKER)): path.read_text() for path in BROKER.rglob("*.py")}
    knowing = {name for name, text in files.items() if "semel_broker.groups.consumer" in text}
    assert {name for name in knowing if not name.startswith(KIND)} == set(KNOWN_TO)


def test_constructors_of_groups_have_few_parameters() -> None:
    for path in GROUPS.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name == "__init__":
                count = len(node.args.args) + len(node.args.kwonlyargs) - 1
                assert count <= PARAMETERS_MAX, f"{path}: {count} parameters"


def test_no_file_of_groups_has_a_parser_of_bytes() -> None:
    """Messages are declared once (`semel_protocol`, `internal_topics`)."""
    assert [str(path) for path in GROUPS.rglob("*.py") if "import struct\n" in path.read_text()] == []
