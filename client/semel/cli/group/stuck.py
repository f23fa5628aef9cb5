"""`semel group stuck`: explains why a consumer group does not move."""

from __future__ import annotations

import click

from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import FOUND_TROUBLE, failure, json_option, run, say_json, tell, texts
from semel._edge import Edge
from semel.diagnose import GroupFindings, diagnose_group, group_findings_facts, group_lines, is_stuck

OTHERWISE = ", or wait longer with --wait"


@click.command("stuck")
@client_options()
@click.argument("name", metavar="GROUP")
@click.option(
    "-w", "--wait", "wait_s", type=click.FloatRange(min=0), default=1.0, show_default=True, metavar="SECONDS",
    help="Seconds between the two requests for committed offsets, which show whether the group moves.",
)  # fmt: skip
@json_option
def stuck_group(client: ClientSettings, name: str, wait_s: float, as_json: bool) -> None:
    """Explain why GROUP does not move: its state, an open transaction, its members, or no records left to read.

    For a group of the consumer protocol (KIP-848) also: which members hold partitions that other members wait for, and
    static members that are away.

    Exit status 0: each partition moves or has nothing left to read. 3: the group rebalances, or a partition has records
    left and does not move, or no member has a partition of a topic that the group subscribes to, or a committed offset
    is outside of the log. 1: the command failed.
    """

    async def work() -> GroupFindings:
        async with client.admin() as admin:
            return await diagnose_group(admin, name, wait_s)

    found = run(work())
    if found.group.state == "Dead" and not found.pending:
        raise failure(f"{name}: there is no such group; `semel group list` names the groups.")
    if as_json:
        say_json(group_findings_facts(found))
    else:
        tell(*texts(group_lines(found, Edge().now_ms(), OTHERWISE)))
    if is_stuck(found):
        raise SystemExit(FOUND_TROUBLE)
