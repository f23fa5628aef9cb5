"""The language of scenarios (`*.txt` beside this file): one step a line, words in between blanks. PURE.

    # Comments. The first block of them says what the scenario shows.
    start broker transaction.version=1
    topic out 1
    client A id=tx timeout=2s
    A begin
    A send out 0 x y
    hold A EndTxn answer
    A commit &                      in the background, until `A wait`
    held A                          wait until the frame is held
    kill broker
    start broker
    A wait -> ok|timeout            how it went; without an arrow it must be ok
    expect committed out 0 x y

`VERBS` is the whole of it. `parse` checks everything that can be checked without running: verbs, numbers of words,
options, that a client was declared before it does something, that what runs in the background is waited for.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches

import msgspec
from semel_protocol.api import APIS

OUTCOMES = ("ok", "fenced", "timeout", "failed", "committed", "refused", "unavailable")
"""The outcomes of a client's step, in the words of scenarios.

fenced: a newer instance has the transactional id. timeout: the outcome is unknown, so ask again. failed: the
transaction can only be aborted. committed: an abort that found a commit. refused: any other answer of the broker.
unavailable: no broker.
"""


class ScenarioError(Exception):
    """A line that is not a valid step. The message names the line and the valid form."""


class Verb(msgspec.Struct, frozen=True):
    """The syntax after a verb: `words` by name (a last one with `*` takes any number), and `options` as key=value.

    `options` of ("*",) takes any. `by_client`: the line begins with a client's name.
    """

    words: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    by_client: bool = False

    @property
    def least(self) -> int:
        return len([word for word in self.words if not word.endswith("*")])

    @property
    def is_open(self) -> bool:
        return bool(self.words) and self.words[-1].endswith("*")


VERBS: dict[str, Verb] = {
    # The broker's process. `broker` may be a client where that makes sense.
    "start": Verb(("broker",), ("*",)),
    "kill": Verb(("whom",)),
    "terminate": Verb(("broker",)),
    "pause": Verb(("whom",)),
    "resume": Verb(("whom",)),
    "dies": Verb(("broker",), ("status",)),
    "refuses": Verb(("broker",), ("says",)),
    "offline": Verb(("broker",), ("says",)),
    # Its disk.
    "disk": Verb(("size",)),
    "fill": Verb(("disk",)),
    "free": Verb(("disk",)),
    "damage": Verb(("topic", "partition", "how", "file", "number*")),
    "forge": Verb(("transactional_id",), ("epoch",)),
    # The network between a client and the broker.
    "hold": Verb(("client", "api", "what")),
    "lose": Verb(("client", "api", "what")),
    "held": Verb(("client",)),
    "release": Verb(("client",)),
    "reset": Verb(("client",)),
    "part": Verb(("client",)),
    "join": Verb(("client",)),
    # Declarations.
    "topic": Verb(("topic", "partitions"), ("*",)),
    "drop": Verb(("topic",)),
    "client": Verb(("name",), ("id", "timeout", "library", "group", "topic", "patience")),
    "sleep": Verb(("time",)),
    # Steps of a client. `send` waits until all is stored, `put` does not.
    "begin": Verb(by_client=True),
    "send": Verb(("topic", "partition", "value", "value*"), ("size",), by_client=True),
    "put": Verb(("topic", "partition", "value", "value*"), ("size",), by_client=True),
    "read": Verb(("value", "value*"), by_client=True),
    "offsets": Verb(("group", "topic", "partition", "offset"), by_client=True),
    "positions": Verb(by_client=True),
    "commit": Verb(by_client=True),
    "abort": Verb(by_client=True),
    "close": Verb(by_client=True),
    "wait": Verb(by_client=True),
    # Expectations, to be met within a while. after=A:fenced: only if that is how the last step of A has ended.
    "expect": Verb(("what", "word*"), ("after",)),
}

EXPECTATIONS: dict[str, tuple[str, ...]] = {
    "committed": ("topic", "partition", "value*"),
    "all": ("topic", "partition", "value*"),
    "markers": ("topic", "partition", "end*"),
    "stable": ("topic", "partition"),
    "offset": ("group", "topic", "partition", "offset"),
    "state": ("transactional_id", "state"),
    "epoch": ("transactional_id", "least"),
}
"""The possible expectations: values below the last stable offset (`committed`) or all of them, in order; markers
(commit, abort) in order; no undecided transaction; a group's offset (or `none`); the state of a transactional id;
its least epoch.
"""

DAMAGES = ("delete", "truncate", "flip", "empty", "append", "cut")
FILES = ("log", "index", "timeindex", "txnindex", "snapshot", "leader-epoch-checkpoint", "recovery-point", "log-start")
DIRECTIONS = ("request", "answer")
API_NAMES = tuple(api.name for api in APIS.values())
LIBRARIES = ("semel", "confluent")
_NAME = re.compile(r"[A-Z][A-Za-z0-9]*")
_TIME = re.compile(r"(\d+(?:\.\d+)?)(ms|s)")
_SIZE = re.compile(r"(\d+)(KiB|MiB)")


class ScenarioLine(msgspec.Struct, frozen=True):
    """One line. `client`: the client that executes it, "" for all other lines."""

    line: int
    text: str
    verb: str
    words: tuple[str, ...] = ()
    options: dict[str, str] = {}
    client: str = ""
    background: bool = False
    outcomes: tuple[str, ...] = ("ok",)


class Scenario(msgspec.Struct, frozen=True):
    name: str
    about: str
    steps: tuple[ScenarioLine, ...]


def seconds(text: str) -> float:
    """`200ms` or `1.5s` in seconds. Raises ScenarioError."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ScenarioError(f"{text!r} is no time: write 200ms or 1.5s")
    return float(found[1]) / (1000 if found[2] == "ms" else 1)


def size_bytes(text: str) -> int:
    """`512KiB` or `4MiB` in bytes. Raises ScenarioError."""
    found = _SIZE.fullmatch(text)
    if found is None:
        raise ScenarioError(f"{text!r} is no size: write 512KiB or 4MiB")
    return int(found[1]) << (10 if found[2] == "KiB" else 20)


def parse(name: str, text: str) -> Scenario:
    """A scenario of its text. Raises ScenarioError that begins with `name:line:`."""
    about: list[str] = []
    steps: list[ScenarioLine] = []
    reader = _ScenarioReader()
    for number, raw in enumerate(text.splitlines(), 1):
        if raw.startswith("#") and not steps:
            about.append(raw[1:].strip())
        content = raw.partition("#")[0].strip()
        if not content:
            continue
        try:
            steps.append(reader.read(number, content))
        except ScenarioError as error:
            raise ScenarioError(f"{name}:{number}: {error}") from None
    for problem in reader.unfinished(bool(about)):
        raise ScenarioError(f"{name}: {problem}")
    return Scenario(name, " ".join(about).strip(), tuple(steps))


class _ScenarioReader:
    """Reads line after line. It knows the declared clients, and those with a step in the background."""

    def __init__(self) -> None:
        self._busy: dict[str, bool] = {}
        self._started = False

    def read(self, number: int, content: str) -> ScenarioLine:
        left, arrow, right = content.partition("->")
        outcomes = tuple(right.strip().split("|")) if arrow else ("ok",)
        for outcome in outcomes:
            _one_of("outcome", outcome, OUTCOMES)
        tokens = left.split()
        background = tokens[-1:] == ["&"]
        tokens = tokens[: len(tokens) - background]
        if not tokens:
            raise ScenarioError("a step begins with a verb, or with a client's name")
        client = tokens.pop(0) if _NAME.fullmatch(tokens[0]) else ""
        if not tokens:
            raise ScenarioError(f"what does {client} do?")
        name = tokens.pop(0)
        if name not in VERBS:
            near = get_close_matches(name, VERBS, 1)
            raise ScenarioError(f"there is no verb {name!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        verb = VERBS[name]
        options = dict(token.split("=", 1) for token in tokens if "=" in token)
        words = tuple(token for token in tokens if "=" not in token)
        step = ScenarioLine(number, content, name, words, options, client, background, outcomes)
        self._check(step, verb)
        return step

    def _check(self, step: ScenarioLine, verb: Verb) -> None:
        if verb.by_client != bool(step.client):
            raise ScenarioError(
                f"{step.verb!r} is done by a client: A {step.verb} ..."
                if verb.by_client
                else f"{step.verb!r} is done by nobody: leave {step.client} out"
            )
        if step.outcomes != ("ok",) and not verb.by_client:
            raise ScenarioError(f"{step.verb!r} has no outcome; only what a client does has one")
        if len(step.words) < verb.least or (len(step.words) > len(verb.words) and not verb.is_open):
            raise ScenarioError(f"{step.verb} takes: {' '.join(verb.words) or 'nothing'}")
        for key in step.options:
            if verb.options != ("*",):
                _one_of("option", key, verb.options)
        self._check_background(step)
        check = getattr(self, f"_check_{step.verb}", None)
        if check is not None:
            check(step)
        self._started = self._started or step.verb == "start"

    def _check_background(self, step: ScenarioLine) -> None:
        if step.client:
            self._known(step.client)
            if self._busy[step.client] != (step.verb == "wait"):
                raise ScenarioError(
                    f"{step.client} does nothing in the background"
                    if step.verb == "wait"
                    else f"{step.client} is busy: `{step.client} wait` first"
                )
            self._busy[step.client] = step.background
        elif step.background:
            raise ScenarioError("only what a client does can go on in the background")
        elif not self._started and step.verb not in ("start", "disk"):
            raise ScenarioError("the broker comes first: start broker")

    def _known(self, client: str) -> None:
        if client not in self._busy:
            raise ScenarioError(f"there is no client {client} yet: client {client} id=...")

    def _check_client(self, step: ScenarioLine) -> None:
        name = step.words[0]
        if not _NAME.fullmatch(name):
            raise ScenarioError(f"{name!r}: a client's name begins with a capital letter")
        _one_of("library", step.options.get("library", "semel"), LIBRARIES)
        for key in ("timeout", "patience"):
            seconds(step.options.get(key, "1s"))
        if ("group" in step.options) != ("topic" in step.options):
            raise ScenarioError("a client that reads has a group and a topic")
        self._busy[name] = False

    def _check_whom(self, step: ScenarioLine) -> None:
        if step.words[0] != "broker":
            self._known(step.words[0])
            if step.verb == "kill":
                self._busy[step.words[0]] = False

    _check_kill = _check_pause = _check_resume = _check_whom

    def _check_network(self, step: ScenarioLine) -> None:
        self._known(step.words[0])
        if len(step.words) == 3:
            _one_of("API", step.words[1], API_NAMES)
            _one_of("direction", step.words[2], DIRECTIONS)

    _check_hold = _check_lose = _check_held = _check_release = _check_reset = _check_part = _check_join = _check_network

    def _check_sleep(self, step: ScenarioLine) -> None:
        seconds(step.words[0])

    def _check_disk(self, step: ScenarioLine) -> None:
        size_bytes(step.words[0])
        if self._started:
            raise ScenarioError("the disk comes before the first start of the broker")

    def _check_damage(self, step: ScenarioLine) -> None:
        _whole("partition", step.words[1])
        _one_of("damage", step.words[2], DAMAGES)
        _one_of("file", step.words[3], FILES)
        for word in step.words[4:]:
            _whole("number", word)

    def _check_forge(self, step: ScenarioLine) -> None:
        _whole("epoch", step.options.get("epoch", ""))

    def _check_topic(self, step: ScenarioLine) -> None:
        _whole("partitions", step.words[1])

    def _check_send(self, step: ScenarioLine) -> None:
        _whole("partition", step.words[1])
        size_bytes(step.options.get("size", "0KiB"))

    _check_put = _check_send

    def _check_offsets(self, step: ScenarioLine) -> None:
        _whole("partition", step.words[2])
        _whole("offset", step.words[3])

    def _check_expect(self, step: ScenarioLine) -> None:
        what, *words = step.words
        _one_of("expectation", what, tuple(EXPECTATIONS))
        names = EXPECTATIONS[what]
        verb = Verb(names)
        if len(words) < verb.least or (len(words) > len(names) and not verb.is_open):
            raise ScenarioError(f"expect {what} takes: {' '.join(names)}")
        if "partition" in names:
            _whole("partition", words[names.index("partition")])
        if "after" in step.options:
            client, _, outcome = step.options["after"].partition(":")
            self._known(client)
            _one_of("outcome", outcome, OUTCOMES)

    def unfinished(self, has_about: bool) -> Iterator[str]:
        """The problem of a scenario that ends here; empty if there is none."""
        if not has_about:
            yield "begin with a comment that says what the scenario shows"
        if not self._started:
            yield "nothing starts the broker"
        for client, busy in self._busy.items():
            if busy:
                yield f"nobody waits for {client}: {client} wait -> ..."


def _one_of(what: str, word: str, allowed: tuple[str, ...]) -> None:
    if word not in allowed:
        raise ScenarioError(f"{word!r} is no {what}: one of {', '.join(allowed)}")


def _whole(what: str, word: str) -> None:
    if not word.isdigit():
        raise ScenarioError(f"{word!r} is no {what}: write a whole number")
