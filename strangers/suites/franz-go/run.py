"""EDGE: runs franz-go's own tests, from its module, with fewer than 500,000 records for groups and transactions."""

from __future__ import annotations

from strangers import gomod, script

MODULE = "github.com/twmb/franz-go"
RECORDS = {1: "50000", 3: "20000"}
"""By broker count: three share a machine, and the tests give up a request after ten seconds."""


def main() -> None:
    source = gomod.source(MODULE, script.pin(MODULE), script.work() / "source")
    variables = {
        "KGO_SEEDS": script.bootstrap(),
        "KGO_TEST_RF": str(script.replicas()),
        "KGO_TEST_RECORDS": RECORDS[script.brokers()],
        "KGO_LOG_LEVEL": "none",
    }
    if script.brokers() == 1:
        variables["KGO_TEST_SCRAM_SEEDS"] = script.listener("SASL_PLAINTEXT")
        variables["KGO_TEST_SCRAM"] = "franz:franz-secret:512"
    script.report_all(gomod.test(source, script.scratch() / "go.json", ["./..."], variables, timeout_s=2000))


script.run(main)
