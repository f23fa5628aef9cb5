// The message browser: records and markers of a partition, with the outcome of each transaction.

import { facts as ask, watch } from "./api.js";
import { address, el, fill, link } from "./dom.js";
import { below, bytes, earlier, hexOf, minus, number, textOf, time, unpacked, visible } from "./format.js";
import { laidOut } from "./json_layout.js";
import { action, badge } from "./parts.js";

const PAGE = 100;

export function recordsPage(root, parameters, trouble) {
  const topic = parameters.get("topic");
  const partition = Number(parameters.get("partition") ?? 0);
  const from = parameters.get("from") ?? "";
  const contains = parameters.get("contains") ?? "";
  const go = (changed) => {
    location.hash = address("records", { topic, partition, from, contains, ...changed });
  };
  const partitions = el("select", { "aria-label": "Partition", onchange: () => go({ partition: partitions.value, from: "" }) }, el("option", { value: partition }, String(partition)));
  const start = el("input", { value: from, placeholder: "last 100", size: "18", title: "earliest, latest, an offset, a time such as 2026-11-22T08:00, -1h, or -500 for the last 500" });
  const needle = el("input", { value: contains, type: "search", size: "14" });
  const committed = el("input", { type: "checkbox", onchange: () => latest && show(latest) });
  const form = el("select", { onchange: () => latest && show(latest) }, ["text", "JSON", "hex"].map((each) => el("option", { value: each }, each)));
  const live = el("button", { type: "button", "aria-pressed": "false", onclick: () => tail() }, "Live tail");
  const body = el("div", { class: "live" });
  let latest = null;
  let stop = null;
  let opened = new Set();
  const query = el("form", { class: "row", onsubmit: (event) => {
    event.preventDefault();
    go({ from: start.value.trim(), contains: needle.value });
  } }, el("label", {}, "Partition", partitions), el("label", {}, "From", start), el("label", {}, "Contains", needle), el("button", {}, "Show"),
  el("label", {}, "Values as", form), el("label", {}, committed, "only what read_committed gets"), live);
  const produce = action("Write a record", {
    title: `Write a record to ${topic}, partition ${partition}`, name: "produce-record",
    explain: "It is written at once, outside of transactions. An empty key is null; an empty value is null, too, which deletes the key in a compacted topic.",
    fields: [["key", "Key"], ["value", "Value"]], body: (given) => ({ topic, partition, key: given.key || null, value: given.value || null }),
  });
  fill(root, el("div", { class: "row spread" }, el("h1", {}, link(topic, "topic", { name: topic }), ` – partition ${partition}`), produce), el("div", { class: "card" }, query), body);

  const show = (found) => {
    latest = found;
    const rows = found.records.filter((each) => !committed.checked || (!each.marker && (each.outcome === "plain" || each.outcome === "committed") && below(each.offset, found.last_stable_offset)));
    const held = minus(found.high_watermark, found.last_stable_offset);
    fill(body,
      el("div", { class: "row spread" },
        el("p", { class: "dim" }, `Offsets ${number(found.log_start_offset)} to ${number(found.high_watermark)}; last stable offset ${number(found.last_stable_offset)}`, held ? `: ${number(held)} offsets are held back from read_committed consumers` : "", ". ", link("Timeline", "timeline", { topic, partition })),
        el("div", { class: "row" }, exportLink("jsonl", "JSON lines"), exportLink("csv", "CSV"),
          el("button", { type: "button", "data-key": "older", disabled: !below(found.log_start_offset, found.from_offset), onclick: () => go({ from: earlier(found.from_offset, PAGE, found.log_start_offset) }) }, "← Older"),
          el("button", { type: "button", "data-key": "newer", disabled: !below(found.next_offset, found.high_watermark), onclick: () => go({ from: found.next_offset }) }, "Newer →"))),
      el("div", { class: "card" }, rows.length ? el("div", { class: "scroll", "data-scroll": "records", tabindex: "0", role: "region", "aria-label": "Records" }, el("table", {},
        el("thead", {}, el("tr", {}, ["offset", "time", "outcome", "key", "value", ""].map((each) => el("th", { scope: "col", class: each === "offset" && "number" }, each)))),
        el("tbody", {}, rows.map((each) => shownRow(each))))) : el("p", { class: "dim" }, contains ? `No record between offsets ${number(found.from_offset)} and ${number(found.next_offset)} contains the text.` : "No records here.")));
  };

  const exportLink = (format, text) => el("a", { class: "button", download: true, "data-key": format, title: "The records from here on, at most 10,000, as a file",
    href: `/api/export?${new URLSearchParams({ topic, partition, format, from: from || String(latest.from_offset), ...(contains ? { contains } : {}), ...(committed.checked ? { committed: 1 } : {}) })}` }, text);

  const shownRow = (row) => {
    if (row.marker) {
      return el("tr", { class: "marker" }, el("td", { class: "number" }, number(row.offset)), el("td", {}, time(row.timestamp, true)), el("td", {}, badge(row.outcome)),
        el("td", { colspan: "3" }, `${row.outcome === "committed" ? "commit" : "abort"} marker of ${row.transactional_id ?? `producer ${row.producer_id}`}, epoch ${row.producer_epoch}`));
    }
    const isOpen = opened.has(row.offset);
    const button = el("button", { type: "button", class: "quiet", "data-key": `row:${row.offset}`, "aria-expanded": String(isOpen), "aria-label": `Details of offset ${row.offset}`, onclick: () => {
      if (!opened.delete(row.offset)) opened.add(row.offset);
      show(latest);
    } }, isOpen ? "▾" : "▸");
    const line = el("tr", { class: [row.outcome, isOpen && "opened"].filter(Boolean).join(" ") },
      el("td", { class: "number" }, number(row.offset)), el("td", {}, time(row.timestamp, true)), el("td", {}, badge(row.outcome)),
      el("td", { class: "data" }, short(row.key, row.key_size, form.value, row.key_decoded)), el("td", { class: "data" }, short(row.value, row.value_size, form.value, row.value_decoded)), el("td", {}, button));
    return isOpen ? [line, el("tr", {}, el("td", { colspan: "6" }, details(row)))] : line;
  };

  const details = (row) => el("div", {},
    el("p", { class: "dim" }, row.outcome === "plain" ? "Written outside of transactions" : ["Written in a transaction of ", row.transactional_id ? link(row.transactional_id, "transaction", { id: row.transactional_id }) : `producer ${row.producer_id}`, ` (producer ${row.producer_id}, epoch ${row.producer_epoch}): ${row.outcome}`],
      row.outcome !== "plain" ? "" : row.producer_id >= 0 ? `, by idempotent producer ${row.producer_id}, epoch ${row.producer_epoch}` : "",
      `. Key ${row.key_size < 0 ? "null" : bytes(row.key_size)}, value ${row.value_size < 0 ? "null" : bytes(row.value_size)}. `, el("button", { type: "button", onclick: async () => whole(row.offset) }, "Load it whole")),
    row.headers.length ? el("dl", { class: "sentences" }, row.headers.map(([name, value]) => [el("dt", {}, visible(name)), el("dd", { class: "mono" }, value === null ? "null" : short(value, 0, "text"))])) : null,
    row.not_decoded ? el("p", { class: "dim" }, `Not decoded: ${row.not_decoded}`) : null,
    el("h2", {}, row.key_decoded ? "Key, decoded from Avro" : "Key"), el("pre", {}, long(row.key, row.key_size, form.value, row.key_decoded)),
    el("h2", {}, row.value_decoded ? "Value, decoded from Avro" : "Value"), el("pre", {}, long(row.value, row.value_size, form.value, row.value_decoded)));

  const whole = async (offset) => {
    try {
      const found = await ask("records", { topic, partition, from: offset, limit: 1 });
      const at = latest.records.findIndex((each) => each.offset === offset);
      if (found.records[0]?.offset === offset) latest.records[at] = found.records[0];
      show(latest);
    } catch (problem) {
      trouble(problem);
    }
  };

  const tail = () => {
    const isOn = live.getAttribute("aria-pressed") === "true";
    live.setAttribute("aria-pressed", String(!isOn));
    stop?.();
    stop = null;
    if (!isOn) stop = watch("records", { topic, partition, from: `-${PAGE}`, limit: PAGE }, (found) => show({ ...found, records: [...found.records].reverse() }), trouble);
  };

  const load = async () => {
    try {
      const wanted = { topic, partition, limit: PAGE, ...(from ? { from } : {}), ...(contains ? { contains, from: from || "earliest" } : {}) };
      const [found, described] = await Promise.all([ask("records", wanted), ask("topic", { topic })]);
      fill(partitions, described.partitions.map((each) => el("option", { value: each.partition, selected: each.partition === partition }, String(each.partition))));
      show(found);
    } catch (problem) {
      trouble(problem);
    }
  };
  load();
  return () => stop?.();
}

function decoded(data, size, form, avro) {
  if (data === null) return "null";
  const raw = unpacked(data);
  if (form === "hex") return null;
  const text = avro ?? textOf(raw, size > raw.length);
  if (text === null) return null;
  return (form === "JSON" ? laidOut(text) : null) ?? text;
}

function short(data, size, form, avro = null) {
  const text = decoded(data, size, form === "JSON" ? "text" : form, avro);
  if (text === null) return [...unpacked(data).subarray(0, 40)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  return visible(text.slice(0, 240).replaceAll("\n", "⏎"));
}

function long(data, size, form, avro = null) {
  const text = decoded(data, size, avro ? (form === "hex" ? "hex" : "JSON") : form, avro);
  const shown = text === null ? hexOf(unpacked(data)) : visible(text);
  const cut = data !== null && size > unpacked(data).length;
  return cut ? `${shown}\n… the first ${bytes(unpacked(data).length)} of ${bytes(size)}` : shown;
}
