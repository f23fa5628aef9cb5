"""The house rules as functions: each takes a source file and yields the places that break the rule.

A rule sees one file. Only a file whose docstring starts with `EDGE:` may use clock, chance, files, sockets and threads.
All other files get them as arguments, so that a simulator can replace them.
"""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from semel_protocol.api_key import ApiKey

FILE_LINES_HINT = 400
"""A longer file is named at the end of `make check`: it may hold two nouns. A class is never cut for this."""
FUNCTION_LINES_MAX = 70

OUTSIDE_MODULES = {
    "concurrent.futures",
    "fcntl",
    "multiprocessing",
    "os",
    "secrets",
    "select",
    "selectors",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "uvloop",
}
"""Modules that give access to the machine outside of the process."""
OUTSIDE_NAMES = {
    "pathlib.Path",
    "random.SystemRandom",
    "random.choice",
    "random.choices",
    "random.getrandbits",
    "random.randbytes",
    "random.randint",
    "random.random",
    "random.randrange",
    "random.sample",
    "random.seed",
    "random.shuffle",
    "random.uniform",
    "uuid.uuid1",
    "uuid.uuid4",
    "asyncio.to_thread",
}
"""Names of modules that are otherwise harmless: `random.Random` is a type, `uuid.UUID` a value."""
OUTSIDE_METHODS = {"now", "utcnow", "today"}
"""Methods of datetime and date that read the hidden clock."""
FORBIDDEN_WORDS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
CHATTY_FOLDERS = ("/cli/",)
RIDDLES = re.compile(
    r"(?:^|(?<=[.!:;] ))(Who|Whom|Whoever|Whose|Nobody|Everybody|Somebody|Anybody|Whatever)\b(?![^.:;]*\?)"
)
"""A sentence that begins with one of these has no subject: name the thing."""
PERSONS = re.compile(r"\b(whom|whoever|nobody|somebody|everybody|anybody)\b", re.IGNORECASE)
"""A sentence about these hides the thing that acts: the producer, the leader, the caller, the request."""
METAPHORS = re.compile(
    r"\b(errands?|offices?|lookouts?|turned away|was heard|(is|are|was|were) told|patience|nobody's business"
    r"|looks? away)\b",
    re.IGNORECASE,
)
NUMBERED_ERRORS = re.compile(r"\b[A-Z]{3,}(_[A-Z]+)+ \(\d+\)|\berror(?: code)? \d+\b", re.IGNORECASE)
RIDDLE_CLASSES = {
    "Believer",
    "Deed",
    "Desk",
    "Ear",
    "Elsewhere",
    "Eye",
    "Gone",
    "Ground",
    "House",
    "Liar",
    "Life",
    "Minima",
    "Moment",
    "Others",
    "Place",
    "Play",
    "Rig",
    "Rot",
    "Said",
    "Scene",
    "Seat",
    "Seats",
    "Shown",
    "Special",
    "Tank",
    "Tenure",
    "Thing",
    "Truth",
    "Unreadable",
    "What",
    "Whole",
}
"""Names of former classes that did not describe their objects. A name says what the object is, in the field's terms."""
RIDDLE_TESTS = re.compile(
    r"(?:^|_)(who|whom|whoever|nobody|somebody|everybody|anybody|anything_goes|(?:is|are|was|were)_told"
    r"|(?:hears?|heard)_of|lets?_go|goes_on|go_on|turned_away)(?=_|$)"
)
"""Words in the name of a test that hide the thing that acts, or are not the field's terms."""
LOG_METHODS = {"debug", "info", "warning", "error", "exception"}
ORDER_KEEPERS = {"list", "tuple", "iter", "enumerate", "map", "filter", "zip", "dict", "deque"}
"""Callables whose result keeps the order of their argument."""


@dataclass(frozen=True)
class SourceFile:
    """One file of a package."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, self.path)

    @property
    def docstring(self) -> str:
        return ast.get_docstring(self.tree) or ""

    @property
    def is_edge(self) -> bool:
        return self.docstring.startswith("EDGE:")


Rule = Callable[[SourceFile], Iterator[str]]
THIRD_PERSON = re.compile(
    r"(Aborts|Adds|Appends|Applies|Asks|Asserts|Begins|Calls|Cancels|Checks|Closes|Commits|Computes|Connects|Continues"
    r"|Converts|Copies|Creates|Decides|Decodes|Deletes|Describes|Drops|Encodes|Ends|Fails|Fetches|Finds|Forgets|Formats"
    r"|Gives|Hands|Initialises|Joins|Keeps|Kills|Leaves|Loads|Makes|Measures|Moves|Notices|Opens|Parses|Pauses|Prints"
    r"|Puts|Raises|Reads|Releases|Removes|Repeats|Replaces|Reserves|Resumes|Returns|Runs|Sends|Sets|Shows|Sorts|Starts"
    r"|Stops|Stores|Subscribes|Switches|Syncs|Takes|Tells|Turns|Updates|Waits|Wakes|Warns|Writes|Yields)\b"
)
"""The first words of docstrings of functions are in the imperative, or name the result."""
RULES: list[Rule] = []


def rule(function: Rule) -> Rule:
    RULES.append(function)
    return function


def dotted(node: ast.AST) -> str:
    """`a.b.c` of a chain of names, "" of anything else."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        owner = dotted(node.value)
        return f"{owner}.{node.attr}" if owner else ""
    return ""


def at(source: SourceFile, node: ast.AST, what: str) -> str:
    return f"{source.path}:{getattr(node, 'lineno', 1)}: {what}"


def long_files(sources: Iterable[SourceFile]) -> Iterator[str]:
    """A hint, not a rule."""
    for source in sources:
        lines = source.text.count("\n")
        if lines > FILE_LINES_HINT:
            yield f"{source.path}: {lines} lines; does it hold one noun?"


@rule
def functions_are_short(source: SourceFile) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES_MAX:
                yield at(source, node, f"{node.name} has {lines} lines, at most {FUNCTION_LINES_MAX}")


@rule
def files_say_what_they_are(source: SourceFile) -> Iterator[str]:
    if not source.docstring.removeprefix("EDGE:").strip():
        yield f"{source.path}: no module docstring"


def imported(node: ast.AST) -> Iterator[str]:
    """The modules, and the names of modules, that an import statement brings in."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name
    elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
        yield node.module
        for alias in node.names:
            yield f"{node.module}.{alias.name}"


def is_outside_module(name: str) -> bool:
    return any(name == module or name.startswith(module + ".") for module in OUTSIDE_MODULES)


@rule
def only_edge_imports_the_outside(source: SourceFile) -> Iterator[str]:
    if source.is_edge:
        return
    for node in ast.walk(source.tree):
        for name in imported(node):
            if is_outside_module(name) or name in OUTSIDE_NAMES:
                yield at(source, node, f"imports {name}; only files marked EDGE do")
                break


@rule
def only_edge_calls_the_outside(source: SourceFile) -> Iterator[str]:
    if source.is_edge:
        return
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call):
            continue
        name = dotted(node.func)
        last = name.rpartition(".")[2]
        if name in ("open", "input") or name in OUTSIDE_NAMES:
            yield at(source, node, f"calls {name}(); only files marked EDGE do")
        elif last in OUTSIDE_METHODS and any(part in ("datetime", "date") for part in name.split(".")):
            yield at(source, node, f"calls {name}(); time is an argument")
        elif last == "Random" and not node.args:
            yield at(source, node, f"calls {name}() without a seed; chance is an argument")
        elif isinstance(node.func, ast.Attribute) and node.func.attr == "run_in_executor":
            yield at(source, node, "uses a thread; only files marked EDGE do")


def is_set(node: ast.AST | None, names: frozenset[str]) -> bool:
    """Whether the expression is a set for sure: by its form, or by the name of something that holds one."""
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Call):
        return dotted(node.func) in ("set", "frozenset")
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitAnd | ast.BitOr | ast.Sub | ast.BitXor):
        return is_set(node.left, names) or is_set(node.right, names)
    return node is not None and dotted(node) in names


def is_set_type(node: ast.AST) -> bool:
    owner = node.value if isinstance(node, ast.Subscript) else node
    return dotted(owner) in ("set", "frozenset", "Set", "AbstractSet", "MutableSet")


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """Everything inside a scope but the bodies of the functions in it."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            yield from own_nodes(node)


def set_names(nodes: Iterator[ast.AST]) -> frozenset[str]:
    """Names (`seen`) and attributes (`self.members`) that these nodes declare to be sets, or bind to one."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.arg) and node.annotation and is_set_type(node.annotation):
            found.add(node.arg)
        elif isinstance(node, ast.AnnAssign) and is_set_type(node.annotation):
            found.add(dotted(node.target))
        elif isinstance(node, ast.Assign) and is_set(node.value, frozenset()):
            found.update(dotted(target) for target in node.targets)
    return frozenset(found - {""})


def iterated(node: ast.AST) -> list[ast.expr]:
    """The expressions whose order this node passes on."""
    match node:
        case ast.For() | ast.AsyncFor():
            return [node.iter]
        case ast.ListComp() | ast.DictComp() | ast.GeneratorExp():
            return [generator.iter for generator in node.generators]
        case ast.Starred():
            return [node.value]
        case ast.Call(func=ast.Attribute(attr="join" | "extend")):
            return node.args
        case ast.Call() if dotted(node.func).rpartition(".")[2] in ORDER_KEEPERS:
            return node.args
    return []


ORDER_LOSERS = {"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"}


def unordered_uses(scope: ast.AST, names: frozenset[str]) -> Iterator[ast.AST]:
    """Places in a scope that depend on the order of a set; `sorted(x for x in seen)` does not."""
    harmless: list[ast.AST] = []
    for node in own_nodes(scope):
        if isinstance(node, ast.Call) and dotted(node.func) in ORDER_LOSERS:
            harmless += node.args
        if node not in harmless and any(is_set(each, names) for each in iterated(node)):
            yield node


@rule
def sets_are_never_iterated(source: SourceFile) -> Iterator[str]:
    functions = [n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]
    everywhere = set_names(own_nodes(source.tree))
    attributes = frozenset(name for scope in functions for name in set_names(own_nodes(scope)) if "." in name)
    fields = frozenset(f"self.{name}" for name in everywhere)
    for scope in [source.tree, *functions]:
        names = everywhere | fields | attributes | set_names(own_nodes(scope))
        for node in unordered_uses(scope, names):
            yield at(source, node, "iterates over a set; use a dict, or sort it")


@rule
def nothing_depends_on_the_garbage_collector(source: SourceFile) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.FunctionDef) and node.name == "__del__" and not source.is_edge:
            yield at(source, node, "__del__ runs whenever it likes; close from an ordered list")
        elif "weakref" in imported(node):
            yield at(source, node, "weak references vanish whenever they like")


@rule
def nothing_is_ordered_by_id_or_hash(source: SourceFile) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.keyword) and node.arg == "key" and dotted(node.value) in ("id", "hash"):
            yield at(
                node=node.value, source=source, what=f"orders by {dotted(node.value)}(), which differs in every run"
            )


@rule
def only_the_command_line_prints(source: SourceFile) -> Iterator[str]:
    if any(folder in source.path for folder in CHATTY_FOLDERS):
        return
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Call) and dotted(node.func) == "print":
            to = [dotted(each.value) for each in node.keywords if each.arg == "file"]
            if not (source.is_edge and to == ["sys.stderr"]):
                yield at(source, node, "prints; log instead (an EDGE file may say its last words on stderr)")


def catches_everything(handler: ast.ExceptHandler) -> bool:
    caught = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(each is not None and dotted(each) in ("Exception", "BaseException") for each in caught)


def does_nothing(body: list[ast.stmt]) -> bool:
    return all(
        isinstance(each, ast.Pass | ast.Continue)
        or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
        for each in body
    )


def suppresses_everything(call: ast.Call) -> bool:
    named = dotted(call.func).rpartition(".")[2] == "suppress"
    return named and any(dotted(each) in ("Exception", "BaseException") for each in call.args)


@rule
def exceptions_are_not_swallowed(source: SourceFile) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ExceptHandler) and node.type is None:
            yield at(source, node, "bare except: name what is expected")
        elif isinstance(node, ast.ExceptHandler) and catches_everything(node) and does_nothing(node.body):
            yield at(source, node, "swallows every exception")
        elif isinstance(node, ast.Call) and suppresses_everything(node):
            yield at(source, node, "suppresses every exception")


@rule
def nothing_is_left_for_later(source: SourceFile) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), 1):
        if found := FORBIDDEN_WORDS.search(line):
            yield f"{source.path}:{number}: {found.group()}: do it, or write it into an issue"
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Raise) and node.exc is not None:
            raised = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
            if dotted(raised) == "NotImplementedError":
                yield at(
                    source, node, "a stub; an abstract method is marked with @abstractmethod and says what it gives"
                )


def docstrings(source: SourceFile) -> Iterator[tuple[ast.AST, str]]:
    """The docstrings of the module, of its classes and functions, and those below names."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node, " ".join(node.value.value.split())


CODE = re.compile(r"`[^`]*`")


def words_of(source: SourceFile) -> Iterator[tuple[int, str]]:
    """The line and the text of each docstring, comment and assertion text, without the code in backticks."""
    for node, text in docstrings(source):
        yield getattr(node, "lineno", 1), CODE.sub("``", text)
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Assert) and node.msg is not None:
            for part in ast.walk(node.msg):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield node.lineno, part.value
    for token in tokenize.generate_tokens(io.StringIO(source.text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.removeprefix("#").strip()


@rule
def texts_are_plain(source: SourceFile) -> Iterator[str]:
    """The rules of language that a machine can check; docs/glossary.md has the terms to use."""
    for line, text in words_of(source):
        for pattern, what in (
            (RIDDLES, "name the subject of the sentence"),
            (PERSONS, "name the thing that acts"),
            (METAPHORS, "use the field's term"),
            (NUMBERED_ERRORS, "write errors by name"),
        ):
            for found in pattern.finditer(text):
                yield f"{source.path}:{line}: {what}: {text[max(0, found.start() - 20) : found.end() + 30]!r}"


@rule
def names_are_plain(source: SourceFile) -> Iterator[str]:
    """A class has no name of `RIDDLE_CLASSES`, and the name of a test has no word of `RIDDLE_TESTS`."""
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ClassDef) and node.name in RIDDLE_CLASSES:
            yield at(source, node, f"class {node.name}: a name says what the object is")
        is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if is_function and node.name.startswith("test_") and (found := RIDDLE_TESTS.search(node.name[4:])):
            yield at(source, node, f"{node.name}: name the thing instead of {found[1]!r}")


@rule
def docstrings_of_functions_are_imperative(source: SourceFile) -> Iterator[str]:
    """A docstring begins with a verb in the imperative, or with a noun phrase for the result."""
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if word := THIRD_PERSON.match(ast.get_docstring(node) or ""):
            yield at(source, node, f"the docstring begins with {word[0]}: use the imperative")


@rule
def log_events_are_snake_case(source: SourceFile) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute) or not node.args:
            continue
        event = node.args[0]
        if node.func.attr not in LOG_METHODS or not isinstance(event, ast.Constant) or not isinstance(event.value, str):
            continue
        if re.fullmatch(r"\w+(-\w+)+", event.value):
            yield at(source, node, f"log event {event.value!r}: write it in snake_case")


API_TABLES = {"APIS", "AUDITS", "HANDLERS", "NEEDS", "PEER_VERSIONS"}
"""Tables by API key."""


@rule
def api_numbers_stand_in_api_key(source: SourceFile) -> Iterator[str]:
    """Every other file names an API as a member of ApiKey."""
    if source.path.endswith("semel_protocol/api_key.py"):
        return
    for node in ast.walk(source.tree):
        if any(number_of_api(name, value) for name, value in bound_to_numbers(node)):
            yield at(source, node, "gives a number to an API; use ApiKey")


def bound_to_numbers(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Names, each with the expression that it is set to, compared with or looked up by."""
    if isinstance(node, ast.Assign):
        for target in node.targets:
            if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                yield from ((dotted(name), value) for name, value in zip(target.elts, node.value.elts, strict=False))
            yield dotted(target), node.value
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        if dotted(node.target) != "api_key":  # the field of a message and its default
            yield dotted(node.target), node.value
    elif isinstance(node, ast.Compare):
        yield from ((dotted(node.left), each) for each in node.comparators)
    elif isinstance(node, ast.Subscript):
        yield dotted(node.value), node.slice
    elif isinstance(node, ast.keyword) and node.arg:
        yield node.arg, node.value


def number_of_api(name: str, value: ast.AST) -> bool:
    last = name.rpartition(".")[2].lstrip("_")
    if not last or (isinstance(value, ast.Constant) and not isinstance(value.value, int)):
        return False
    numbers = [each.value for each in getattr(value, "elts", [value]) if isinstance(each, ast.Constant)]
    if last in ApiKey.__members__:
        return numbers == [ApiKey[last].value]
    return bool(numbers) and (last == "api_key" or name.endswith("api.key") or last in API_TABLES)


@rule
def versions_of_ids_come_from_the_schema(source: SourceFile) -> Iterator[str]:
    """The version from which a row names a topic by its id is declared with the field: `first_version`, `has_field`."""
    for number, line in enumerate(source.text.splitlines(), 1):
        if re.search(r"_(IDS|ID)_(SINCE|VERSION)(: \w+)? =", line):
            yield f"{source.path}:{number}: repeats the version of a field; use semel_protocol.fields.first_version"
