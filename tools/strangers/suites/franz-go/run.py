"""EDGE: runs franz-go's own tests, from its module, with fewer than 500,000 records for groups and transactions."""

from __future__ import annotations

from collections import Counter

from tools.strangers import gomod, script

MODULE = "github.com/twmb/franz-go"
RECORDS = {1: "50000", 3: "20000"}
"""By broker count: three share a machine, and the tests give up a request after ten seconds."""

TESTS_OF_848 = 10
"""Two of them need no broker."""


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
    results = gomod.test(source, script.scratch() / "go.json", ["./..."], variables, timeout_s=2000)
    script.report_all(results)
    # where a broker has no ConsumerGroupHeartbeat v1, the suite skips them
    with script.test("KIP-848: all tests of the consumer protocol ran"):
        outcomes = Counter(each.outcome for each in results if "848" in each.test)
        assert outcomes.total() == TESTS_OF_848, f"there are {outcomes.total()}"
        assert not outcomes["skipped"], f"{outcomes['skipped']} are skipped"


script.run(main)
