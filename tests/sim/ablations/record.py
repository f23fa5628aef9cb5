"""EDGE: the findings of all ablations, kept beside this file for the tests and for the site of the documents."""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sim import audited, crowd, offline, quota_run, slow_disk
from sim.ablations.ablation import ABLATIONS, Ablation
from sim.ablations.search import AblationFinding
from sim.checkers import CHECKERS
from sim.plan import RunPlan

CAUGHT = Path(__file__).with_name("caught.jsonl")
"""Generated: a line for each safeguard; a plan in it is JSON, compressed, in base64."""
FAILURE = "failure"


class FindingLine(AblationFinding, kw_only=True, omit_defaults=True):
    """A finding as a line of the file."""

    packed_plan: str = ""


def load() -> dict[str, AblationFinding]:
    """The findings of the last search, by the name of the safeguard."""
    rows = msgspec.json.Decoder(FindingLine).decode_lines(CAUGHT.read_bytes()) if CAUGHT.exists() else []
    return {row.name: _unpacked(row) for row in rows}


def save(findings: Mapping[str, AblationFinding]) -> None:
    """Write the findings, in the order of the safeguards. Findings of removed safeguards are dropped."""
    rows = [_packed(findings[name]) for name in ABLATIONS if name in findings]
    CAUGHT.write_bytes(msgspec.json.Encoder().encode_lines(rows))


def _packed(finding: AblationFinding) -> FindingLine:
    fields = msgspec.structs.asdict(finding)
    plan = fields.pop("plan")
    packed = b"" if plan is None else b64encode(zlib.compress(msgspec.json.encode(plan), 9))
    return FindingLine(**fields, packed_plan=packed.decode())


def _unpacked(row: FindingLine) -> AblationFinding:
    fields = msgspec.structs.asdict(row)
    packed = fields.pop("packed_plan")
    if packed:
        fields["plan"] = msgspec.json.decode(zlib.decompress(b64decode(packed)), type=RunPlan)
    return AblationFinding(**fields)


def part() -> str:
    """The tables of docs/ablations.md."""
    findings = load()
    return _table(findings) + _needless() + _by_checker(findings)


def _table(findings: Mapping[str, AblationFinding]) -> str:
    rows = ["| safeguard | purpose | workloads | seed | runs | caught by |", "|---|---|---|---|---|---|"]
    caught, open_ones = 0, 0
    for name, ablation in ABLATIONS.items():
        if ablation.needless:
            continue
        kinds = _where(ablation)
        if name not in findings:
            open_ones += 1
            rows.append(f"| {name} | {ablation.protects} | {kinds} | | | not searched for yet |")
            continue
        finding = findings[name]
        caught += finding.is_caught
        seed, by = (str(finding.seed), ", ".join(finding.caught_by)) if finding.is_caught else ("-", "**no checker**")
        rows.append(f"| {name} | {ablation.protects} | {kinds} | {seed} | {finding.runs} | {by} |")
    count = len(rows) - 2 - open_ones
    later = f" {open_ones} more are defined and not searched for yet." if open_ones else ""
    return f"{caught} of {count} are caught.{later}\n\n" + "\n".join(rows) + "\n"


def _where(ablation: Ablation) -> str:
    if ablation.alone is not None:
        return f"{ablation.alone.about} alone" + (", three brokers" if ablation.brokers > 1 else "")
    kinds = ", ".join(ablation.kinds) or "all"
    return kinds if ablation.brokers == 1 else f"{kinds}; three brokers"


def _needless() -> str:
    rows = [f"| {name} | {each.protects} | {each.needless} |" for name, each in ABLATIONS.items() if each.needless]
    if not rows:
        return ""
    head = (
        "\n## Not missed\n\nWithout these safeguards no checker fires, for the reason given:\n\n"
        "| safeguard | purpose | why it is not missed |\n|---|---|---|\n"
    )
    return head + "\n".join(rows) + "\n"


def _by_checker(findings: Mapping[str, AblationFinding]) -> str:
    rows = ["", "## By checker", "", "| checker | trips without |", "|---|---|"]
    of_parts = (*crowd.CHECKERS, *slow_disk.CHECKERS, quota_run.QUOTA_EXCEEDED, audited.CHECKER, offline.CHECKER)
    for checker in dict.fromkeys((*CHECKERS, *of_parts, FAILURE)):
        names = [name for name in ABLATIONS if name in findings and checker in findings[name].caught_by]
        shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
        rows.append(f"| {checker if checker != FAILURE else 'an unexpected exception'} | {shown or '-'} |")
    return "\n".join(rows) + "\n"
