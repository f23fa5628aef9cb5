"""The language of scenarios: valid steps, and the errors of invalid lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from scenarios.language import Scenario, ScenarioError, parse, seconds, size_bytes

HEAD = "# about\nstart broker\nclient A id=tx\n"


def one(line: str) -> Scenario:
    return parse("x", HEAD + line)


def test_a_step_is_a_verb_with_words_and_options() -> None:
    scenario = parse("x", "# What it\n# shows.\nstart broker a.b=1 # why\n\ntopic out 2 cleanup.policy=compact\n")
    assert scenario.about == "What it shows."
    start, topic = scenario.steps
    assert (start.line, start.verb, start.words, start.options) == (3, "start", ("broker",), {"a.b": "1"})
    assert (topic.line, topic.words, topic.options) == (5, ("out", "2"), {"cleanup.policy": "compact"})


def test_a_step_of_a_client_has_outcomes_and_may_continue_in_the_background() -> None:
    commit, wait = one("A commit &\nA wait -> ok|timeout").steps[-2:]
    assert (commit.client, commit.background) == ("A", True)
    assert (wait.client, wait.outcomes) == ("A", ("ok", "timeout"))
    assert one("A begin").steps[-1].outcomes == ("ok",)


def test_a_killed_client_needs_no_wait() -> None:
    assert one("A commit &\nkill A").steps[-1].verb == "kill"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("A comit", "x:4: there is no verb 'comit'; did you mean 'commit'?"),
        ("A", "x:4: what does A do?"),
        ("&", "x:4: a step begins with a verb"),
        ("commit", "x:4: 'commit' is done by a client: A commit ..."),
        ("A sleep 2s", "x:4: 'sleep' is done by nobody: leave A out"),
        ("B begin", "x:4: there is no client B yet"),
        ("kill B", "x:4: there is no client B yet"),
        ("A send out", "x:4: send takes: topic partition value value*"),
        ("A begin now", "x:4: begin takes: nothing"),
        ("A send out zero x", "x:4: 'zero' is no partition: write a whole number"),
        ("A commit -> fine", "x:4: 'fine' is no outcome: one of ok, fenced"),
        ("sleep 2s -> ok|fenced", "x:4: 'sleep' has no outcome"),
        ("sleep 2", "x:4: '2' is no time: write 200ms or 1.5s"),
        ("sleep 2s &", "x:4: only what a client does can go on in the background"),
        ("A wait", "x:4: A does nothing in the background"),
        ("A commit &\nA abort", "x:5: A is busy: `A wait` first"),
        ("A commit &", "x: nobody waits for A"),
        ("client b id=tx", "x:4: 'b': a client's name begins with a capital letter"),
        ("client B name=tx", "x:4: 'name' is no option: one of id, timeout"),
        ("client B library=java", "x:4: 'java' is no library: one of semel, confluent"),
        ("client B group=g", "x:4: a client that reads has a group and a topic"),
        ("disk 4MiB", "x:4: the disk comes before the first start of the broker"),
        ("hold A EndTxn reply", "x:4: 'reply' is no direction: one of request, answer"),
        ("damage t 0 burn index", "x:4: 'burn' is no damage: one of delete"),
        ("damage t 0 flip heart", "x:4: 'heart' is no file: one of log"),
        ("forge tx", "x:4: '' is no epoch"),
        ("expect miracles", "x:4: 'miracles' is no expectation: one of committed"),
        ("expect offset g t 0", "x:4: expect offset takes: group topic partition offset"),
        ("expect stable t 0 after=B:ok", "x:4: there is no client B yet"),
        ("expect stable t 0 after=A:well", "x:4: 'well' is no outcome"),
        ("expect committed t zero", "x:4: 'zero' is no partition"),
    ],
)
def test_a_line_that_is_no_step_is_named_and_told_what_would_be(line: str, says: str) -> None:
    with pytest.raises(ScenarioError) as error:
        one(line)
    assert str(error.value).startswith(says)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("start broker", "x: begin with a comment"),
        ("# about", "x: nothing starts the broker"),
        ("# about\ntopic t 1", "x:2: the broker comes first"),
        ("# about\ndisk 4", "x:2: '4' is no size: write 512KiB or 4MiB"),
    ],
)
def test_a_scenario_says_what_it_shows_and_starts_a_broker(text: str, says: str) -> None:
    with pytest.raises(ScenarioError) as error:
        parse("x", text)
    assert str(error.value).startswith(says)


def test_times_and_sizes() -> None:
    assert (seconds("250ms"), seconds("1.5s")) == (0.25, 1.5)
    assert (size_bytes("512KiB"), size_bytes("4MiB")) == (512 << 10, 4 << 20)


def test_every_scenario_of_this_folder_is_one() -> None:
    for path in sorted(Path(__file__).parent.glob("*.txt")):
        assert parse(path.name, path.read_text()).about, path.name
