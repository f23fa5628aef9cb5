"""The site has a row for each request and for each type of resource."""

from __future__ import annotations

from semel_broker.handlers import NEEDS
from semel_protocol.acls import OPERATIONS_OF
from semel_protocol.api import APIS

from tools.website.made.authorization import operations, requests


def test_each_request_has_a_row() -> None:
    table = requests()
    for key in NEEDS:
        assert f"\n| {key} | {APIS[key].name} | " in table


def test_each_type_of_resource_has_a_row_with_its_operations() -> None:
    rows = operations().splitlines()[2:]
    assert len(rows) == len(OPERATIONS_OF)
    assert "| Topic | " in "\n".join(rows)
