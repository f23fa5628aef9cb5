// The overview: health in one sentence, what needs attention, brokers, rates.

import { watch } from "./api.js";
import { el, fill, link } from "./dom.js";
import { bytes, number, plural, time } from "./format.js";
import { badge, rightsNote, sparkline, table } from "./parts.js";
import { holderCards } from "./page_transactions.js";

const KEPT = 60;

export function overviewPage(root, parameters, trouble) {
  const body = el("div", { class: "live" });
  fill(root, el("h1", {}, "Overview"), rightsNote(), body);
  const rates = [];
  let last = null;

  let latest = null;
  let silent = {};
  /** The facts of an overview take longer while a broker is away; a knock at each broker does not. */
  const show = (facts) => {
    latest = facts;
    count(facts);
    draw();
  };
  const count = (facts) => {
    const total = Object.values(facts.end_offsets).reduce((sum, each) => sum + each, 0);
    if (last !== null && facts.now_ms > last.at) {
      rates.push(Math.max(0, ((total - last.total) * 1000) / (facts.now_ms - last.at)));
      if (rates.length > KEPT) rates.shift();
    }
    last = { at: facts.now_ms, total };
  };
  const draw = () => {
    const facts = latest;
    const health = withKnocks(facts, silent);
    const kind = { healthy: "good", degraded: "warn", offline: "bad" }[health.verdict];
    fill(body,
      el("div", { class: `card verdict ${kind}` }, el("div", { class: "row" }, badge(health.verdict, kind), health.text)),
      el("div", { class: "grid" },
        figure("Brokers", number(health.brokers.filter((each) => each.answers).length), `controller ${health.controller < 0 ? "none" : health.controller}`),
        figure("Topics", number(Object.keys(facts.end_offsets).length), plural(health.partitions, "partition")),
        el("div", { class: "card" }, el("div", { class: "caption" }, "Offsets written a second"),
          el("div", { class: "figure" }, rates.length ? number(Math.round(rates.at(-1))) : "–"),
          sparkline(rates, `Offsets written a second, the last ${rates.length} values`)),
        figure("Held back from read_committed", number(facts.held_back.reduce((sum, each) => sum + each.offsets_held_back, 0)),
          facts.held_back.length ? `offsets in ${plural(facts.held_back.length, "partition")}` : "nothing waits for a transaction")),
      facts.holders.length ? el("section", {}, el("h2", {}, "Needs attention: open transactions that hold readers back"), holderCards(facts.holders)) : null,
      el("section", { class: "card" }, table("brokers", [
        { label: "broker", value: (row) => row.id, show: (row) => link(`broker ${row.id}`, "broker", { id: row.id }) },
        { label: "state", value: (row) => Number(row.answers), show: (row) => (row.answers ? badge("answers", "good") : el("span", {}, badge(row.address ? "does not answer" : "offline", "bad"), " ", row.error ?? "")) },
        { label: "role", value: (row) => Number(row.id === health.controller), show: (row) => (row.id === health.controller ? "controller" : "") },
        { label: "address", value: (row) => row.address, name: true }, { label: "rack", value: (row) => row.rack, minor: true },
        { label: "leads", value: (row) => row.leads, number: true }, { label: "preferred", value: (row) => row.preferred, number: true, minor: true },
        { label: "replicas", value: (row) => row.replicas, number: true }, { label: "in sync", value: (row) => row.in_sync, number: true },
        { label: "on disk", value: (row) => facts.broker_bytes[row.id], number: true, show: (row) => (row.id in facts.broker_bytes ? bytes(facts.broker_bytes[row.id]) : "–") },
      ], health.brokers, { caption: `Cluster ${health.cluster_id ?? ""}` }), facts.sizes_problem && el("p", { class: "dim" }, facts.sizes_problem)),
      health.troubled.length ? el("section", { class: "card" }, table("troubled", [
        { label: "partition", value: (row) => `${row.topic}-${row.partition}`, show: (row) => link(`${row.topic}-${row.partition}`, "topic", { name: row.topic }), name: true },
        { label: "state", value: (row) => row.state, show: (row) => badge(row.state) },
        { label: "leader", value: (row) => row.leader, number: true },
        { label: "replicas", value: (row) => row.replicas.join(", ") }, { label: "in sync", value: (row) => row.in_sync.join(", ") },
      ], health.troubled, { caption: "Partitions with problems" })) : null);
  };
  return watch("overview", {}, show, trouble, (found) => {
    silent = found;
    if (latest !== null) draw();
  });
}

/** The health with the brokers that died after it was found. */
function withKnocks(facts, silent) {
  const health = facts.health;
  const dead = health.brokers.filter((each) => each.answers && each.id in silent);
  if (!dead.length) return health;
  const brokers = health.brokers.map((each) => (dead.includes(each) ? { ...each, answers: false, error: silent[each.id] } : each));
  const all = brokers.every((each) => !each.answers);
  const names = dead.length === 1 ? `broker ${dead[0].id} does not answer` : `brokers ${dead.map((each) => each.id).join(", ")} do not answer`;
  return { ...health, brokers, verdict: all || health.verdict === "offline" ? "offline" : "degraded",
    text: `${all ? "Offline" : "Degraded"}: ${names} (${silent[dead[0].id]}). The rest of this page is of ${time(facts.now_ms)}.` };
}

const figure = (caption, value, note) => el("div", { class: "card" },
  el("div", { class: "caption" }, caption), el("div", { class: "figure" }, value), el("div", { class: "caption" }, note));
