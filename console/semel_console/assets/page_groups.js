// Consumer groups: the list, and one group with its lag and why it is stuck.

import { watch } from "./api.js";
import { address, breakable, el, fill, link } from "./dom.js";
import { managed } from "./manage.js";
import { number, plural } from "./format.js";
import { badge, rightsNote, table } from "./parts.js";

export function groupsPage(root, parameters, trouble) {
  const body = el("div", { class: "card live" });
  fill(root, el("h1", {}, "Consumer groups"), rightsNote(), body);
  return watch("groups", {}, (facts) => fill(body, table("groups", [
    { label: "group", value: (row) => row.group, show: (row) => link(row.group, "group", { name: row.group }), name: true },
    { label: "state", value: (row) => row.state, show: (row) => badge(row.state) },
    { label: "members", value: (row) => row.members, number: true }, { label: "lag in offsets", value: (row) => row.lag, number: true },
    { label: "topics", value: (row) => row.topics.join(", "), name: true }, { label: "assignor", value: (row) => row.assignor, minor: true },
    { label: "coordinator", value: (row) => row.coordinator, number: true, minor: true },
  ], facts.groups, { empty: "There is no group yet." })), trouble);
}

const REASONS = 3;
const reason = (line) => el("div", { class: "lines" }, line);

/** The committed offset, which is the next record of the group, as a link to the record. */
const atOffset = (row) => (row.committed === null ? "–" : link(number(row.committed), "records", {
  topic: row.topic, partition: row.partition,
  ...(row.committed < row.end_offset ? { open: `${row.partition}:${row.committed}` } : { from: row.committed }),
}));

export function groupPage(root, parameters, trouble) {
  const name = parameters.get("name") ?? "";
  const body = el("div", { class: "live" });
  const reset = managed("Set offsets", {
    title: `Set the offsets of ${name}`, name: "reset-offsets", does: "Set these offsets", only: "Only show the changes",
    explain: "The group must have no members. To: earliest, latest, an offset, a time such as 2026-11-22T08:00, or -1h. Topics: names or TOPIC:PARTITION; none stands for all committed ones.",
    fields: [["to", "To", "latest"], ["names", "Topics", "", { placeholder: "orders payments:0" }]],
    body: (given) => ({ group: name, to: given.to, names: given.names.split(/[\s,]+/).filter(Boolean) }),
  });
  const remove = managed("Delete", {
    title: `Delete the group ${name}`, name: "delete-group", danger: true, typed: name, does: `Delete ${name}`,
    explain: "The group must have no members. Its committed offsets are deleted.",
    body: () => ({ group: name }), left: () => { location.hash = address("groups"); },
  });
  fill(root, el("div", { class: "row spread" }, el("h1", {}, breakable(name)), el("div", { class: "row" }, reset, remove)), body);
  return watch("group", { group: name }, (facts) => fill(body,
    el("div", { class: `card verdict ${facts.stuck ? "warn" : "good"}` }, el("div", { class: "row" }, badge(facts.stuck ? "does not move" : "fine", facts.stuck ? "warn" : "good"), badge(facts.state), el("span", {}, `${plural(facts.members, "member")}, coordinator ${facts.coordinator}`)),
      facts.reasons.slice(0, REASONS).map(reason), facts.reasons.length > REASONS
        ? el("details", {}, el("summary", { "data-key": "reasons" }, plural(facts.reasons.length - REASONS, "more line")), facts.reasons.slice(REASONS).map(reason)) : null),
    el("section", { class: "card" }, table("group-partitions", [
      { label: "partition", value: (row) => `${row.topic}-${row.partition}`, name: true, show: (row) => link(`${row.topic}-${row.partition}`, "topic", { name: row.topic }) },
      { label: "progress", value: (row) => row.progress, show: (row) => (row.progress ? badge(row.progress) : "–") },
      { label: "committed", value: (row) => row.committed, number: true, show: (row) => atOffset(row) },
      { label: "last stable", value: (row) => row.last_stable_offset, number: true },
      { label: "end", value: (row) => row.end_offset, number: true }, { label: "lag in offsets", value: (row) => row.lag, number: true },
      { label: "readable records", value: (row) => row.records_ahead, number: true },
      { label: "member", value: (row) => row.owner, name: true, show: (row) => (row.owner ? `${row.owner}${row.host ? ` (${row.host})` : ""}` : "–") },
    ], facts.partitions, { caption: "Partitions" }),
    el("p", { class: "caption" }, "A committed offset leads to the next record of the group. Readable records: those that a read_committed consumer gets now, without markers, aborted records and open transactions. – stands for more than 20,000 offsets ahead.")),
    el("section", { class: "card" }, table("members", [
      { label: "member", value: (row) => row.member, name: true }, { label: "client id", value: (row) => row.client_id, name: true }, { label: "host", value: (row) => row.host },
      { label: "partitions", value: (row) => row.partitions.length, name: true, show: (row) => row.partitions.join(", ") || "none" },
    ], facts.list, { caption: "Members", empty: "The group has no members." }))), trouble);
}
