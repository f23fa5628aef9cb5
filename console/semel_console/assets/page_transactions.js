// Transactions: the list, the open ones that hold readers back, and the life of one.

import { watch } from "./api.js";
import { el, fill, link } from "./dom.js";
import { duration, time } from "./format.js";
import { action, badge, rightsNote, sentences, table } from "./parts.js";

/** One card for each open transaction that holds readers back, hanging ones first. */
export function holderCards(holders) {
  const sorted = [...holders].sort((a, b) => Number(b.verdict === "hanging") - Number(a.verdict === "hanging"));
  return sorted.slice(0, 20).map((each) => {
    const at = each.partitions[0];
    const name = each.transactional_id ?? (each.producer_id === null ? "transactions that are not shown" : `producer ${each.producer_id}`);
    return el("div", { class: `card holder ${each.verdict}` },
      el("div", { class: "row spread" },
        el("div", { class: "row" }, badge(each.verdict), each.transactional_id ? link(name, "transaction", { id: each.transactional_id }) : name,
          el("span", { class: "dim" }, each.partitions.slice(0, 5).map((place) => `${place.topic}-${place.partition}${place.first_offset === null ? "" : ` from ${place.first_offset}`}`).join(", "), each.partitions.length > 5 ? " …" : "")),
        el("div", { class: "row" }, link("timeline", "timeline", { topic: at.topic, partition: at.partition }), abortButton(each))),
      sentences(each.sentences.filter(([caption]) => caption !== "held by")));
  });
}

function abortButton(each) {
  if (each.verdict === "hanging") {
    const at = each.partitions[0];
    return action("Abort", {
      title: `Abort the transaction of producer ${each.producer_id} in ${at.topic}-${at.partition}`, danger: true, name: "abort-hanging",
      explain: "The leader writes the abort marker that is missing. The records never become visible.",
      body: () => ({ topic: at.topic, partition: at.partition, producer_id: each.producer_id }),
    });
  }
  if (each.verdict !== "ongoing") return null;
  return abortKnown(each.transactional_id);
}

const abortKnown = (id) => action("Abort", {
  title: `Abort the transaction of ${id}`, danger: true, name: "abort-transaction",
  explain: "The coordinator aborts it and fences its producer. Its records never become visible.",
  fields: [["reason", "Reason, for the fence ledger", "semel console"]], body: (given) => ({ transactional_id: id, reason: given.reason }),
});

export function transactionsPage(root, parameters, trouble) {
  let latest = null;
  const filter = el("input", { type: "search", oninput: () => latest && show(latest) });
  const only = el("input", { type: "checkbox", onchange: () => latest && show(latest) });
  const body = el("div", { class: "live" });
  fill(root, el("div", { class: "row spread" }, el("h1", {}, "Transactions"),
    el("div", { class: "row" }, el("label", {}, "Filter", filter), el("label", {}, only, "only open ones"))), rightsNote(), body);
  const show = (facts) => {
    latest = facts;
    const rows = facts.transactions.filter((each) => each.transactional_id.includes(filter.value) && (!only.checked || each.state === "Ongoing" || each.state.startsWith("Prepare")));
    fill(body,
      facts.holders.length ? el("section", {}, el("h2", {}, "Open transactions that hold readers back"), holderCards(facts.holders))
        : el("div", { class: "card verdict good" }, "No open transaction holds a reader back, and none hangs."),
      el("section", { class: "card" }, table("transactions", [
        { label: "transactional id", value: (row) => row.transactional_id, name: true, show: (row) => link(row.transactional_id, "transaction", { id: row.transactional_id }) },
        { label: "state", value: (row) => row.state, show: (row) => badge(row.state) },
        { label: "open for", value: (row) => (row.open_since_ms ? facts.now_ms - row.open_since_ms : null), number: true, show: (row) => (row.open_since_ms ? duration(facts.now_ms - row.open_since_ms) : "–") },
        { label: "producer", value: (row) => row.producer_id, number: true, minor: true, show: (row) => String(row.producer_id) },
        { label: "epoch", value: (row) => row.producer_epoch, number: true, minor: true, show: (row) => String(row.producer_epoch ?? "–") },
        { label: "partitions", value: (row) => row.partitions?.length, number: true }, { label: "fences", value: (row) => row.fences, number: true },
        { label: "last fence", value: (row) => row.last_fence?.at_ms, name: true, show: (row) => (row.last_fence ? `${row.last_fence.reason.replaceAll("_", " ")}${row.last_fence.by ? `, by ${row.last_fence.by}` : ""}` : "–") },
        { label: "last update", value: (row) => row.last_update_ms, show: (row) => time(row.last_update_ms ?? -1) },
      ], rows, { caption: `${facts.total.toLocaleString("en-US")} transactional ids`, empty: "No transactional id." })));
  };
  return watch("transactions", {}, show, trouble);
}

export function transactionPage(root, parameters, trouble) {
  const id = parameters.get("id") ?? "";
  const body = el("div", { class: "live" });
  fill(root, el("h1", {}, id), body);
  return watch("transaction", { id }, (facts) => {
    const life = [];
    if (facts.is_open && facts.open_since_ms) life.push(["open", facts.open_since_ms, `Transaction open, epoch ${facts.producer_epoch}. ${facts.text}`]);
    else if (facts.last_update_ms) life.push([facts.state === "CompleteAbort" ? "bad" : "good", facts.last_update_ms, `${facts.state}, epoch ${facts.producer_epoch}`]);
    for (const fence of facts.fences ?? []) life.push(["", fence.at_ms, `${fence.text}`]);
    life.sort((a, b) => b[1] - a[1]);
    fill(body,
      el("div", { class: `card verdict ${facts.is_open ? "warn" : "good"}` }, el("div", { class: "row spread" }, el("div", { class: "row" }, badge(facts.state), facts.text), facts.state === "Ongoing" ? abortKnown(id) : null),
        sentences([["producer", `id ${facts.producer_id}, epoch ${facts.producer_epoch}, coordinated by broker ${facts.coordinator}`],
          ["initialised by", facts.initialised_by ?? "not known"], ["timeout", duration(facts.timeout_ms)],
          ...(facts.advice ? [["advice", facts.advice]] : []), ...(facts.no_ledger ? [["fences", facts.no_ledger]] : [])])),
      facts.first_offsets.length ? el("section", { class: "card" }, table("where", [
        { label: "partition", value: (row) => `${row.topic}-${row.partition}`, name: true, show: (row) => link(`${row.topic}-${row.partition}`, "timeline", { topic: row.topic, partition: row.partition }) },
        { label: "first offset", value: (row) => row.first_offset, number: true },
      ], facts.first_offsets, { caption: "Open in these partitions" })) : null,
      el("section", { class: "card" }, el("h2", {}, "Its life, the latest first"),
        life.length ? el("ol", { class: "life" }, life.map(([kind, at, text]) => el("li", { class: kind }, el("div", { class: "caption" }, time(at, true)), text)))
          : el("p", { class: "dim" }, "It was never fenced, and has had no transaction."), facts.older_fences && el("p", { class: "dim" }, facts.older_fences)));
  }, trouble);
}
