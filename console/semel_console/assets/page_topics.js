// Topics: the list, and one topic.

import { facts as ask, watch } from "./api.js";
import { address, breakable, el, fill, link } from "./dom.js";
import { bytes, minus, number, plural } from "./format.js";
import { managed } from "./manage.js";
import { badge, rightsNote, table } from "./parts.js";

export function topicsPage(root, parameters, trouble) {
  let latest = null;
  const filter = el("input", { type: "search", placeholder: "orders", oninput: () => latest && show(latest) });
  const internal = el("input", { type: "checkbox", onchange: () => latest && show(latest) });
  const body = el("div", { class: "card live" });
  const create = managed("Create a topic", {
    title: "Create a topic", name: "create-topic", explain: "Empty fields take the broker's defaults.",
    fields: [["name", "Name"], ["partitions", "Partitions"], ["replication_factor", "Replicas of each partition"], ["settings", "Settings", "", { placeholder: "retention.ms=86400000 cleanup.policy=compact" }]],
    body: (given) => ({
      name: given.name, partitions: given.partitions ? Number(given.partitions) : null,
      replication_factor: given.replication_factor ? Number(given.replication_factor) : null,
      settings: settingsIn(given.settings),
    }),
  });
  fill(root, el("div", { class: "row spread" }, el("h1", {}, "Topics"),
    el("div", { class: "row" }, el("label", {}, "Filter", filter), el("label", {}, internal, "internal topics"), create)), rightsNote(), body);
  const show = (facts) => {
    latest = facts;
    const rows = facts.topics.filter((each) => (internal.checked || !each.internal) && each.topic.includes(filter.value));
    fill(body, table("topics", [
      { label: "topic", value: (row) => row.topic, show: (row) => link(row.topic, "topic", { name: row.topic }), name: true },
      { label: "state", value: (row) => row.state, show: (row) => badge(row.state) },
      { label: "partitions", value: (row) => row.partitions, number: true }, { label: "replicas", value: (row) => row.replicas, number: true, minor: true },
      { label: "offsets held", value: (row) => row.offsets_held, number: true },
      { label: "size", value: (row) => row.size_bytes, number: true, show: (row) => (row.size_bytes === null ? "–" : bytes(row.size_bytes)) },
      { label: "held back", value: (row) => row.held_back, number: true, show: (row) => (row.held_back ? badge(number(row.held_back), "warn") : "0") },
      { label: "", show: (row) => el("span", { class: "row" }, link("records", "records", { topic: row.topic }), link("timeline", "timeline", { topic: row.topic, partition: 0 })) },
    ], rows, { empty: facts.topics.length ? "No topic fits the filter." : "There is no topic yet." }), facts.sizes_problem && el("p", { class: "dim" }, facts.sizes_problem));
  };
  return watch("topics", {}, show, trouble);
}

export function topicPage(root, parameters, trouble) {
  const name = parameters.get("name") ?? "";
  const body = el("div", { class: "live" });
  const all = el("input", { type: "checkbox", onchange: () => latest && show(latest) });
  let latest = null;
  const readers = el("section", { class: "card" }, el("h2", {}, "Groups that read it"), el("p", { class: "dim" }, "Asking the cluster …"));
  fill(root, el("div", { class: "row spread" }, el("h1", {}, breakable(name)), el("div", { class: "row" }, buttonsOf(name))), body);
  const showReaders = readersOf(name, readers);
  const show = (facts) => {
    latest = facts;
    showReaders();
    const settings = facts.settings.filter((each) => all.checked || !each.is_default);
    fill(body,
      el("p", { class: "dim" }, plural(facts.partitions.length, "partition"), facts.internal ? ", internal" : ""),
      el("section", { class: "card" }, table("partitions", [
        { label: "partition", value: (row) => row.partition, number: true }, { label: "state", value: (row) => row.state, show: (row) => badge(row.state) },
        { label: "leader", value: (row) => row.leader, number: true, show: (row) => row.leader ?? "none" }, { label: "epoch", value: (row) => row.leader_epoch, number: true, minor: true },
        { label: "replicas", value: (row) => row.replicas.join(", "), minor: true }, { label: "in sync", value: (row) => row.in_sync.join(", ") },
        { label: "start", value: (row) => row.start_offset, number: true }, { label: "last stable", value: (row) => row.last_stable_offset, number: true },
        { label: "high watermark", value: (row) => row.high_watermark, number: true },
        { label: "size", value: (row) => row.size_bytes, number: true, show: (row) => sizeOf(row) },
        { label: "held back", value: heldBack, number: true, show: (row) => (heldBack(row) ? badge(number(heldBack(row)), "warn") : "0") },
        { label: "", show: (row) => el("span", { class: "row" }, link("records", "records", { topic: name, partition: row.partition }), link("timeline", "timeline", { topic: name, partition: row.partition })) },
      ], facts.partitions, { caption: "Partitions" }), facts.sizes_problem && el("p", { class: "dim" }, facts.sizes_problem)),
      readers,
      el("section", { class: "card" }, el("div", { class: "row spread" }, el("h2", {}, "Settings"), el("label", {}, all, "defaults too")),
        facts.settings_problem ? el("p", { class: "dim" }, facts.settings_problem) : settingsTable("topic-settings", settings)));
  };
  return watch("topic", { topic: name }, show, trouble);
}

/** Changes of a topic, each in two steps. */
const buttonsOf = (name) => [
  managed("Settings", {
    title: `Change the settings of ${name}`, name: "alter-topic", does: "Change these settings",
    explain: "One or more settings as NAME=VALUE. Names alone get their defaults again. The broker checks them first.",
    fields: [["set", "Set", "", { placeholder: "retention.ms=86400000 cleanup.policy=compact" }], ["unset", "Back to the default", "", { placeholder: "segment.bytes" }]],
    body: (given) => ({ topic: name, settings: settingsIn(given.set), unset: given.unset.split(/[\s,]+/).filter(Boolean) }),
  }),
  managed("Add partitions", {
    title: `Add partitions to ${name}`, name: "add-partitions", explain: "Partitions can only be added.",
    fields: [["total", "Partitions after the change"]], body: (given) => ({ topic: name, total: Number(given.total) }),
  }),
  managed("Purge", {
    title: `Delete records of ${name}`, name: "purge-topic", danger: true, typed: name, does: "Delete these records",
    explain: "Deletes the oldest records: all of them, or those before an offset, a time such as 2026-11-22T08:00, or one before now such as -7d.",
    fields: [["before", "Before", "all"], ["partitions", "Partitions", "", { placeholder: "all" }]],
    body: (given) => ({ topic: name, before: given.before, partitions: given.partitions.split(/[\s,]+/).filter(Boolean).map(Number) }),
  }),
  managed("Delete", {
    title: `Delete the topic ${name}`, name: "delete-topic", danger: true, typed: name, does: `Delete ${name}`,
    explain: "Its records, settings and committed offsets are deleted on all brokers.",
    body: () => ({ topic: name }), left: () => { location.hash = address("topics"); },
  }),
];

/** `retention.ms=1 cleanup.policy=compact,delete` by name. */
const settingsIn = (text) => Object.fromEntries(text.split(/\s+/).filter(Boolean).map((each) => [each.split("=")[0], each.split("=").slice(1).join("=")]));

const READERS_EVERY_MS = 10_000;

/** Fills the section of the groups that read the topic; at most once in ten seconds, because it asks for all groups. */
function readersOf(name, section) {
  let askedAt = 0;
  return async () => {
    if (Date.now() - askedAt < READERS_EVERY_MS) return;
    askedAt = Date.now();
    try {
      const found = await ask("readers", { topic: name });
      fill(section, el("h2", {}, "Groups that read it"), table("readers", [
        { label: "group", value: (row) => row.group, name: true, show: (row) => link(row.group, "group", { name: row.group }) },
        { label: "state", value: (row) => row.state, show: (row) => badge(row.state) },
        { label: "members here", value: (row) => row.members, number: true },
        { label: "committed in", value: (row) => row.committed, number: true },
        { label: "lag in offsets", value: (row) => row.lag, number: true },
      ], found.groups, { empty: "No group has committed offsets or members here." }));
    } catch (problem) {
      fill(section, el("h2", {}, "Groups that read it"), el("p", { class: "dim" }, problem.message));
    }
  };
}

/** The offsets that open transactions hold back; null when the leader does not answer. */
const heldBack = (row) => (row.high_watermark === null || row.last_stable_offset === null ? null : minus(row.high_watermark, row.last_stable_offset));

/** The size of the leader's replica; those of the others where they differ. */
function sizeOf(row) {
  if (row.size_bytes === null) return "–";
  const others = Object.entries(row.sizes).filter(([, size]) => size !== row.size_bytes);
  return el("span", {}, bytes(row.size_bytes), others.map(([broker, size]) => el("div", { class: "caption" }, `broker ${broker}: ${bytes(size)}`)));
}

export const settingsTable = (key, settings) => table(key, [
  { label: "setting", value: (row) => row.name, name: true, show: (row) => el("span", {}, el("span", { class: "mono" }, row.name), row.documentation ? el("div", { class: "caption" }, row.documentation) : null) },
  { label: "value", value: (row) => row.value, name: true, show: (row) => (row.is_sensitive ? "(secret)" : el("span", { class: "mono" }, row.value ?? "–")) },
  { label: "source", value: (row) => row.source, minor: true },
], settings, { empty: "Each setting has its default." });
