"""`semel topic stuck`: explains why read_committed consumers do not reach the end of a topic."""

from __future__ import annotations

import click

from semel._command_line.client_settings import ClientSettings, client_options
from semel._command_line.common import FOUND_TROUBLE, json_option, run, say_json, tell, texts
from semel._edge import Edge
from semel._texts import plural
from semel.diagnose import TopicFindings, diagnose_topic, topic_findings_facts, topic_lines


@click.command("stuck")
@client_options()
@click.argument("place", metavar="TOPIC[:PARTITION]")
@json_option
def stuck_topic(client: ClientSettings, place: str, as_json: bool) -> None:
    """Explain why read_committed consumers do not reach the end of TOPIC.

    Shows the partitions whose last stable offset is below their high watermark, with the open transactions that are the
    reason: producer, start, expected end, and the safe action. Exit status 0: every partition can be read to its end.
    3: consumers are held back in some. 1: the command failed.
    """

    async def work() -> TopicFindings:
        async with client.admin() as admin:
            return await diagnose_topic(admin, place)

    found = run(work())
    count = plural(len(found.ends), "partition")
    if as_json:
        say_json(topic_findings_facts(found))
    elif not found.held:
        tell(f"{place} is not stuck: all of {count} can be read to the end.")
    else:
        tell(f"{place}: read_committed consumers are held back in {len(found.held)} of {count}.")
        tell(*texts(topic_lines(found, Edge().now_ms())))
    if found.held:
        raise SystemExit(FOUND_TROUBLE)
