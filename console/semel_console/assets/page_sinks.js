// Transaction groups and Spark's sinks: driver, committed step, members.

import { watch } from "./api.js";
import { el, fill, link } from "./dom.js";
import { duration, time } from "./format.js";
import { badge, rightsNote, sentences, table } from "./parts.js";

export function sinksPage(root, parameters, trouble) {
  const body = el("div", { class: "live" });
  fill(root, el("h1", {}, "Transaction groups and Spark's sinks"), rightsNote(), body);
  return watch("sinks", {}, (facts) => fill(body,
    facts.problem ? el("div", { class: "card" }, facts.problem) : null,
    !facts.problem && !facts.groups.length ? el("div", { class: "card" }, el("p", {}, "There is no transaction group yet."),
      el("p", { class: "dim" }, "A transaction group commits the transactions of several producers together, exactly once. Spark's sink begins one for each streaming query, and other programs can use the class TransactionGroup. This page then shows its driver, its committed step and its members. Clusters without such programs do not need it.")) : null,
    facts.groups.map((group) => el("section", { class: "card" },
      el("div", { class: "row" }, el("h2", {}, group.transaction_group), badge(group.state, group.state === "Committed" ? "good" : "info")),
      sentences([
        ["committed", group.committed_token === null ? "no step yet" : `step ${group.committed_step}, token ${group.committed_token}`],
        ["step", `${group.step}${group.began_ms ? `, begun ${time(group.began_ms)}, ${duration(facts.now_ms - group.began_ms)} ago` : ""}`],
        ["driver", [group.owner, group.client].filter(Boolean).join(", ") || "not known"],
        ["coordinator", `broker ${group.coordinator}`],
        ...(group.note ? [["note", group.note]] : []),
      ]),
      table(`members:${group.transaction_group}`, [
        { label: "member", value: (row) => row.transactional_id, name: true, show: (row) => link(row.transactional_id, "transaction", { id: row.transactional_id }) },
        { label: "state", value: (row) => row.state, show: (row) => badge(row.state) },
        { label: "step", value: (row) => row.step, number: true },
        { label: "producer", value: (row) => row.producer_id, number: true, show: (row) => `${row.producer_id}, epoch ${row.producer_epoch}` },
        { label: "open for", value: (row) => row.open_since_ms, number: true, show: (row) => (row.open_since_ms ? duration(facts.now_ms - row.open_since_ms) : "–") },
      ], group.members, { caption: "Members", empty: "The step has no members." })))), trouble);
}
