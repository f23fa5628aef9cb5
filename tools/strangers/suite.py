"""The content of a suite's `suite.toml`: program, versions, needed tools, and expected failures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

Against = Literal["semel", "kafka"]
Setting = str | int | bool
Protocol = Literal["SSL", "SASL_PLAINTEXT", "SASL_SSL"]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
KAFKA_RELEASE = "4.1.1"
"""Apache Kafka's version for comparison, unless a run names another."""


class SuiteError(ValueError):
    """An invalid suite.toml; the message names the suite and the mistake."""


class ExpectedFailure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Tests that are expected to fail, and the reason.

    `test`: the name of a test, where `*` stands for any text. `sometimes`: the outcome depends on timing, so a pass is
    accepted too; otherwise a pass fails the tier.
    """

    test: str
    reason: str
    on: tuple[Against, ...] = ("semel",)
    brokers: tuple[int, ...] = (1, 3)
    sometimes: bool = False

    def names(self, test: str) -> bool:
        """Whether the pattern matches that test. Brackets are literal, because pytest writes them into names."""
        first, *others = self.test.split("*")
        if not others:
            return test == first
        *middle, last = others
        if not test.startswith(first) or not test.endswith(last) or len(test) < len(first) + len(last):
            return False
        rest = test[len(first) : len(test) - len(last)]
        for part in middle:
            _, found, rest = rest.partition(part)
            if part and not found:
                return False
        return True


class User(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A user of brokers with security. `mechanisms`: those that the user has a password for; empty: all."""

    name: str
    password: str
    mechanisms: tuple[Mechanism, ...] = ()

    def has(self, mechanism: str) -> bool:
        """Whether the user has a password for this mechanism."""
        return not self.mechanisms or mechanism in self.mechanisms


class Security(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Brokers with listeners beside PLAINTEXT, users, and an authorizer.

    `super_users`: names of principals; those of PLAINTEXT are ANONYMOUS. `is_open`: what no ACL names is allowed.
    `oauth`: SASL_SSL takes tokens of the tier's issuer too.
    """

    listeners: tuple[Protocol, ...]
    users: tuple[User, ...] = ()
    super_users: tuple[str, ...] = ("ANONYMOUS",)
    is_open: bool = False
    oauth: bool = False


class Suite(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One third-party suite. `name`: the name of its folder.

    `pins`: package -> version or versions; `needs`: programs on the path; `checkout`: the folder below STRANGERS_SRC if
    `source` is "checkout"; `set`: settings of the brokers, `set_semel` and `set_kafka` those of one kind of broker;
    `security`: one broker has it, three do not; `timeout_s`: for the whole run, on a slow machine.
    """

    title: str
    language: str
    pins: dict[str, str | list[str]]
    needs: list[str] = []
    source: Literal["package", "checkout"] = "package"
    checkout: str = ""
    brokers: tuple[int, ...] = (1, 3)
    against: tuple[Against, ...] = ("semel", "kafka")
    timeout_s: int = 1200
    set: dict[str, Setting] = {}
    set_semel: dict[str, Setting] = {}
    set_kafka: dict[str, Setting] = {}
    security: Security | None = None
    expected_failure: list[ExpectedFailure] = []
    name: str = ""

    @property
    def versions(self) -> str:
        """The pinned versions, in one line."""
        return ", ".join(f"{name} {', '.join(listed(found))}" for name, found in self.pins.items())

    def settings(self, against: Against) -> dict[str, str]:
        """Return the settings of the brokers, as text."""
        of_kind = self.set_semel if against == "semel" else self.set_kafka
        return {key: text(value) for key, value in {**self.set, **of_kind}.items()}

    def expected(self, against: Against, brokers: int) -> list[ExpectedFailure]:
        """Return the expected failures of such a run."""
        return [each for each in self.expected_failure if against in each.on and brokers in each.brokers]

    def lacks(self, against: Against, brokers: int) -> str:
        """Return the reason if the suite does not support such a run, otherwise ""."""
        if against not in self.against:
            return f"it is not for {against}"
        return "" if brokers in self.brokers else f"it is not for {brokers} brokers"


def listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def text(value: Setting) -> str:
    """Format a setting for a broker's command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def parse(name: str, toml: str) -> Suite:
    """Parse the suite of the folder `name`. Raises SuiteError."""
    try:
        suite = msgspec.toml.decode(toml, type=Suite)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise SuiteError(f"{name}/suite.toml: {error}") from error
    suite.name = name
    if suite.source == "checkout" and not suite.checkout:
        raise SuiteError(f"{name}/suite.toml: source is a checkout, but `checkout` does not name its folder")
    if not suite.pins:
        raise SuiteError(f"{name}/suite.toml: nothing is pinned")
    return suite


def chosen(suites: Iterable[Suite], names: list[str]) -> list[Suite]:
    """Return the suites with these names, in this order, or all. Raises SuiteError for an unknown name."""
    by_name = {each.name: each for each in suites}
    if unknown := [name for name in names if name not in by_name]:
        raise SuiteError(f"there is no suite {', '.join(unknown)}; there are {', '.join(by_name)}")
    return [by_name[name] for name in names] if names else list(by_name.values())
