"""The conditions of the message browser: what a JSON path selects, and what a wrong one says."""

from __future__ import annotations

import pytest
from semel_console.facts.filters import RecordFilter, filter_of, path_conditions
from semel_console.query import QueryParameters
from semel_protocol.records import Record

ORDER = (
    b'{"order":{"id":4345,"price":1.10,"paid":true,"note":null},"lines":[{"n":1},{"n":5}],"a b":{"c\\"d":"x"},'
    b'"big":12345678901234567890123,"far":1e400,"text":"tea and milk","1":{"\xd0\xba":"\xd0\xb7"},"a-b":0}'
)


@pytest.mark.parametrize(
    ("path", "holds"),
    [
        ("$.order.id == 4345", True),
        ("$.order.id==4345.0", True),
        ("  $.order.id  ==  4345  ", True),
        ("$.order.id == '4345'", False),
        ("$.order.id != 4345", False),
        ("$.order.id != 'x'", True),
        ("$.order.missing != 1", False),
        ("$.order.price == 1.1", True),
        ("$.order.price < 1.2 and $.order.price >= 1.10", True),
        ("$.order.price < 1.2 && $.order.id > 9999", False),
        ("$.order.paid == true", True),
        ("$.order.paid == 1", False),
        ("$.order.note == null", True),
        ("$.order.note", True),
        ("$.order.nothing", False),
        ("$.lines[0].n == 1", True),
        ("$.lines[-1].n == 5", True),
        ("$.lines[2].n", False),
        ("$.lines[*].n > 4", True),
        ("$.lines.*.n > 5", False),
        ("""$['a b']["c\\"d"] == 'x'""", True),
        ("$.big == 12345678901234567890123", True),
        ("$.big == 12345678901234567890124", False),
        ("$.far > 1e399", True),
        ("$.text contains 'and'", True),
        ('$.text == "tea and milk" and $.order', True),
        ("$.text contains 'coffee'", False),
        ("$.order.id contains '4'", False),
        ("$['1'].к == 'з'", True),
        ("$.a-b == 0", True),
        ("$", True),
        ("$.order.id.deeper == 1", False),
    ],
)
def test_what_a_path_selects(path: str, holds: bool) -> None:
    assert RecordFilter(path=path_conditions(path)).matches_json(ORDER) is holds


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("order.id == 1", "wrong at 'order.id == 1', character 1: expected a path that begins with $"),
        ("$.order.id = 1", "wrong at '= 1', character 12: expected an operator"),
        ("$.order.id ==", "wrong at its end, character 14: expected a number, a text in quotes"),
        ("$.order.id == abc", "wrong at 'abc', character 15: expected a number, a text in quotes"),
        ("$..id == 1", "expected a step: .name, ['a name'], [0] or [*]"),
        ("$.lines[1:2]", "expected a step"),
        ("$.a == 1 or $.b == 2", "wrong at 'or $.b == 2'"),
        ("$.a == 1 and", "expected a path"),
        ("$.a < true", "expected a number or a text in quotes after <"),
        ("$.a contains 4", "expected a text in quotes after `contains`"),
        ("$.a == 1e99999999999999999999", "expected a number or a text"),
        (" and ".join(["$.a"] * 17), "more than 16 conditions"),
        ("$" + ".a" * 4_000, "the most are 4096"),
    ],
)
def test_a_wrong_path_says_where_and_what_it_should_be(path: str, said: str) -> None:
    with pytest.raises(ValueError, match="the JSON path") as caught:
        path_conditions(path)
    assert said in str(caught.value)


@pytest.mark.parametrize("value", [b"", b"no json", b"[" * 100_000, b"\xff", b"1e99999999999999999999", None])
def test_a_value_that_is_no_json_satisfies_no_path(value: bytes | None) -> None:
    assert not RecordFilter(path=path_conditions("$")).matches_json(value)


def test_parameters_make_a_filter() -> None:
    def matches(record: Record, **given: str) -> bool:
        wanted = filter_of(QueryParameters(given))
        assert wanted is not None
        return wanted.matches_bytes(record)

    record = Record(0, 0, b"key-1", b"value", (("trace", b"a=b"), ("none", None)))
    assert filter_of(QueryParameters({"contains": "", "from": "0"})) is None
    assert matches(record, key="key-1")
    assert not matches(record, key="key")
    assert not matches(Record(0, 0, None, b""), key="key")
    assert matches(record, header="trace")
    assert matches(record, header="trace=a=b")
    assert not matches(record, header="trace=a")
    assert not matches(record, header="tra")
    assert not matches(record, header="none=")
    assert matches(record, contains="y-1")
    assert matches(record, contains="a=b")
    assert matches(record, contains="value", key="key-1", header="none")
    with pytest.raises(ValueError, match="NAME=VALUE"):
        filter_of(QueryParameters({"header": "=x"}))
