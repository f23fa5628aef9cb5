"""Each house rule finds its faults: a rule that cannot fail proves nothing."""

import pytest
from tidy import rules
from tidy.rules import FILE_LINES_HINT, FUNCTION_LINES_MAX, RULES, Rule, SourceFile, long_files

LONG_FUNCTION = "def f():\n" + "    x = 1\n" * FUNCTION_LINES_MAX
SHORT_FUNCTION = "def f():\n" + "    x = 1\n" * (FUNCTION_LINES_MAX - 1)

BAD: list[tuple[Rule, str]] = [
    (rules.texts_are_plain, '"""Who waits for records."""\n'),
    (rules.texts_are_plain, 'def f():\n    """Wakes readers. Nobody polls."""\n'),
    (rules.texts_are_plain, 'X = 1\n"""Whoever asks gets this."""\n'),
    (rules.texts_are_plain, '"""A batch that was turned away comes again."""\n'),
    (rules.texts_are_plain, '"""Raises PRODUCER_FENCED (90)."""\n'),
    (rules.texts_are_plain, '"""The client gets error 70."""\n'),
    (rules.texts_are_plain, '"""The request that nobody waits for."""\n'),
    (rules.texts_are_plain, "x = 1  # Who may write.\n"),
    (rules.texts_are_plain, "assert x, 'nobody was fenced'\n"),
    (rules.names_are_plain, "class House:\n    pass\n"),
    (rules.names_are_plain, "class Outer:\n    class Ear:\n        pass\n"),
    (rules.names_are_plain, "def test_who_fenced_whom():\n    pass\n"),
    (rules.names_are_plain, "async def test_a_missing_topic_is_told():\n    pass\n"),
    (rules.docstrings_of_functions_are_imperative, 'async def f():\n    """Returns the offsets."""\n'),
    (rules.log_events_are_snake_case, 'log.info("broker-started", port=1)\n'),
    (rules.functions_are_short, LONG_FUNCTION),
    (rules.functions_are_short, "async " + LONG_FUNCTION),
    (rules.functions_are_short, "class C:\n" + "".join(f"    {line}\n" for line in LONG_FUNCTION.splitlines())),
    (rules.files_say_what_they_are, "x = 1\n"),
    (rules.files_say_what_they_are, '"""EDGE:"""\n'),
    (rules.only_edge_imports_the_outside, "import time\n"),
    (rules.only_edge_imports_the_outside, "import asyncio, os.path\n"),
    (rules.only_edge_imports_the_outside, "from os import path\n"),
    (rules.only_edge_imports_the_outside, "def f():\n    import uvloop\n"),
    (rules.only_edge_imports_the_outside, "from random import randint\n"),
    (rules.only_edge_imports_the_outside, "from uuid import uuid4\n"),
    (rules.only_edge_imports_the_outside, "from concurrent.futures import ThreadPoolExecutor\n"),
    (rules.only_edge_imports_the_outside, "from pathlib import Path\n"),
    (rules.only_edge_imports_the_outside, "import threading as t\n"),
    (rules.only_edge_calls_the_outside, "open('file')\n"),
    (rules.only_edge_calls_the_outside, "import random\nrandom.choice([1])\n"),
    (rules.only_edge_calls_the_outside, "import random\nrandom.Random()\n"),
    (rules.only_edge_calls_the_outside, "import uuid\nuuid.uuid4()\n"),
    (rules.only_edge_calls_the_outside, "import datetime\ndatetime.datetime.now()\n"),
    (rules.only_edge_calls_the_outside, "from datetime import datetime\ndatetime.now(UTC)\n"),
    (rules.only_edge_calls_the_outside, "from datetime import date\ndate.today()\n"),
    (rules.only_edge_calls_the_outside, "loop.run_in_executor(None, f)\n"),
    (rules.only_edge_calls_the_outside, "import asyncio\nasyncio.to_thread(f)\n"),
    (rules.sets_are_never_iterated, "for x in {1, 2}:\n    pass\n"),
    (rules.sets_are_never_iterated, "[x for x in set(y)]\n"),
    (rules.sets_are_never_iterated, "list({x for x in y})\n"),
    (rules.sets_are_never_iterated, "for i, x in enumerate(frozenset(y)):\n    pass\n"),
    (rules.sets_are_never_iterated, "first = next(iter(set(y)))\n"),
    (rules.sets_are_never_iterated, "f(*set(y))\n"),
    (rules.sets_are_never_iterated, "','.join({'a', 'b'})\n"),
    (rules.sets_are_never_iterated, "for x in set(a) - set(b):\n    pass\n"),
    (rules.sets_are_never_iterated, "def f():\n    seen = set()\n    for x in seen:\n        pass\n"),
    (rules.sets_are_never_iterated, "def f(seen: set[int]):\n    return [x for x in seen]\n"),
    (rules.sets_are_never_iterated, "def f(seen: frozenset[int], b):\n    return tuple(seen | b)\n"),
    (rules.sets_are_never_iterated, "NAMES = frozenset(['a'])\ndef f():\n    return [x for x in NAMES]\n"),
    (
        rules.sets_are_never_iterated,
        "class C:\n    def __init__(self):\n        self.x = set()\n    def f(self):\n        return list(self.x)\n",
    ),
    (rules.sets_are_never_iterated, "class C:\n    x: set[int]\n    def f(self):\n        return list(self.x)\n"),
    (rules.nothing_depends_on_the_garbage_collector, "class C:\n    def __del__(self):\n        pass\n"),
    (rules.nothing_depends_on_the_garbage_collector, "from weakref import WeakSet\n"),
    (rules.nothing_is_ordered_by_id_or_hash, "sorted(x, key=id)\n"),
    (rules.nothing_is_ordered_by_id_or_hash, "x.sort(key=hash)\n"),
    (rules.only_the_command_line_prints, "print('hello')\n"),
    (rules.only_the_command_line_prints, "print('hello', file=sys.stderr)\n"),
    (rules.only_the_command_line_prints, '"""EDGE: the terminal."""\nprint("hello")\n'),
    (rules.exceptions_are_not_swallowed, "try:\n    f()\nexcept:\n    raise\n"),
    (rules.exceptions_are_not_swallowed, "try:\n    f()\nexcept Exception:\n    pass\n"),
    (rules.exceptions_are_not_swallowed, "try:\n    f()\nexcept (ValueError, BaseException):\n    ...\n"),
    (
        rules.exceptions_are_not_swallowed,
        "for x in y:\n    try:\n        f()\n    except Exception:\n        continue\n",
    ),
    (rules.exceptions_are_not_swallowed, "with contextlib.suppress(Exception):\n    f()\n"),
    (rules.nothing_is_left_for_later, "# TO" + "DO: later\n"),
    (rules.nothing_is_left_for_later, "x = 1  # FIX" + "ME\n"),
    (rules.nothing_is_left_for_later, "def f():\n    raise NotImplementedError\n"),
    (rules.nothing_is_left_for_later, "def f():\n    raise NotImplementedError('soon')\n"),
    (rules.api_numbers_stand_in_api_key, "PRODUCE = 0\n"),
    (rules.api_numbers_stand_in_api_key, "_API_VERSIONS: Final = 18\n"),
    (rules.api_numbers_stand_in_api_key, "FETCH, VERSION = 1, 15\n"),
    (rules.api_numbers_stand_in_api_key, "if header.api_key == 18:\n    pass\n"),
    (rules.api_numbers_stand_in_api_key, "if call.api.key in (0, 1):\n    pass\n"),
    (rules.api_numbers_stand_in_api_key, "handler = HANDLERS[3]\n"),
    (rules.api_numbers_stand_in_api_key, "hold(api_key=26)\n"),
    (rules.versions_of_ids_come_from_the_schema, "FETCH_IDS_SINCE = 13\n"),
    (rules.versions_of_ids_come_from_the_schema, "BY_ID_VERSION: Final = 10\n"),
]

GOOD: list[tuple[Rule, str]] = [
    (
        rules.api_numbers_stand_in_api_key,
        "PRODUCE = ApiKey.PRODUCE.value\nFETCH = 'fetch'\nFETCH, VERSION = ApiKey.FETCH, 15\n",
    ),
    (rules.api_numbers_stand_in_api_key, "if api_key == PRODUCE:\n    x = HANDLERS[key], rows[3]\n"),
    (rules.versions_of_ids_come_from_the_schema, "BY_ID_FROM = first_version(Topic, 'topic_id')\n"),
    (rules.functions_are_short, SHORT_FUNCTION),
    (rules.files_say_what_they_are, '"""What this is."""\n'),
    (rules.texts_are_plain, '"""`whom`: 1 for all brokers."""\nx = 1  # the next owner reads it again\n'),
    (rules.names_are_plain, "class Housekeeping:\n    pass\n\n\ndef test_the_whole_group_continues():\n    pass\n"),
    (rules.only_edge_imports_the_outside, '"""EDGE: the clock."""\nimport time\n'),
    (rules.only_edge_imports_the_outside, "import random\nfrom uuid import UUID\nfrom .time import x\n"),
    (rules.only_edge_imports_the_outside, "import osmosis, timeit_of_ours\n"),
    (rules.only_edge_calls_the_outside, '"""EDGE: files."""\nopen("file")\n'),
    (rules.only_edge_calls_the_outside, "disk.open('file')\nrng.choice([1])\nrandom.Random(7)\nclock.now()\n"),
    (rules.sets_are_never_iterated, "for x in sorted({1, 2}):\n    pass\n"),
    (rules.sets_are_never_iterated, "def f(seen: set[int]):\n    return sorted(x for x in seen)\n"),
    (rules.sets_are_never_iterated, "def f(seen: set[int]):\n    return any(x > 1 for x in seen), {x for x in seen}\n"),
    (rules.sets_are_never_iterated, "def f():\n    seen = set()\ndef g(seen):\n    return list(seen)\n"),
    (rules.sets_are_never_iterated, "for x in {1: 2}:\n    pass\n"),
    (rules.only_the_command_line_prints, "log.print('hello')\n"),
    (rules.only_the_command_line_prints, '"""EDGE: the process."""\nprint("bye", file=sys.stderr)\n'),
    (rules.exceptions_are_not_swallowed, "try:\n    f()\nexcept ValueError:\n    pass\n"),
    (rules.exceptions_are_not_swallowed, "try:\n    f()\nexcept Exception as error:\n    log(error)\n"),
    (rules.nothing_is_left_for_later, "todo_list = 'methodology'\n"),
]


@pytest.mark.parametrize(("rule", "text"), BAD)
def test_rule_finds_the_bad_sample(rule: Rule, text: str) -> None:
    (place,) = list(rule(SourceFile("broker/bad.py", text)))[:1]
    assert place.startswith("broker/bad.py")


@pytest.mark.parametrize(("rule", "text"), GOOD)
def test_rule_leaves_the_good_sample_alone(rule: Rule, text: str) -> None:
    assert list(rule(SourceFile("broker/good.py", text))) == []


def test_every_rule_has_a_bad_sample() -> None:
    tried = [rule for rule, _ in BAD]
    assert [rule.__name__ for rule in RULES if rule not in tried] == []


def test_the_command_line_may_print() -> None:
    assert list(rules.only_the_command_line_prints(SourceFile("client/semel/cli/main.py", "print('hello')\n"))) == []


def test_a_long_file_is_a_hint() -> None:
    sources = [
        SourceFile("long.py", "x = 1\n" * (FILE_LINES_HINT + 1)),
        SourceFile("short.py", "x = 1\n" * FILE_LINES_HINT),
    ]
    assert list(long_files(sources)) == [f"long.py: {FILE_LINES_HINT + 1} lines; does it hold one noun?"]
