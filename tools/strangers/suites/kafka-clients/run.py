"""EDGE: compiles Java programs against each release line of kafka-clients, and runs them."""

from __future__ import annotations

from tools.strangers import script

FIRST_WITH_TRANSACTION_CALLS = 3
FIRST_WITH_NEW_GROUPS = 4
RUN_TIMEOUT_S = 900
NEW_GROUPS = ["NewGroups", "NewSubscriptions", "NewCommits", "NewTransactions", "Migrations", "NewKills"]
"""The programs of the consumer protocol."""
NEW_GROUPS_PARTS = ["Feed", "GroupMember", "Reading"]


def main() -> None:
    for version in script.pins("kafka-clients"):
        lib = script.jars(script.folder() / "pom.xml", f"lib-{version}", kafka_version=version)
        line = int(version.partition(".")[0])
        names, parts = ["Clients"], ["Common"]
        names += ["TransactionCalls"] * (line >= FIRST_WITH_TRANSACTION_CALLS)
        if line >= FIRST_WITH_NEW_GROUPS:
            names += [*NEW_GROUPS, "ShareGroups"]
            parts += NEW_GROUPS_PARTS
        sources = [script.folder() / f"{name}.java" for name in [*parts, *names]]
        class_path = script.classes(lib, f"classes-{version}", sources)
        options = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=error"]
        for name in names:
            script.java(class_path, name, version, timeout_s=RUN_TIMEOUT_S, options=options)


script.run(main)
