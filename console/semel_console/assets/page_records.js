// The message browser: records and markers of a topic in the order of time, each with the outcome of its transaction.

import { facts as ask } from "./api.js";
import { address, el, fill, link } from "./dom.js";
import { below, bytes, minus, number, plural, time } from "./format.js";
import { action } from "./parts.js";
import { FORMS, nameOf, recordDetails, recordRow, rememberForm, rememberedForm } from "./record_view.js";

const PAGE = 100;
/** Live, older rows leave the page. */
const LIVE_ROWS_MAX = 500;
const LIVE_EVERY_MS = 1000;
const FILTERS = ["key", "contains", "path", "header"];
const ORDERS = ["newest", "oldest"];

export function recordsPage(root, parameters, trouble) {
  const topic = parameters.get("topic");
  const partition = parameters.get("partition");
  const opening = parameters.get("open");
  const filters = Object.fromEntries(FILTERS.map((name) => [name, parameters.get(name) ?? ""]).filter(([, value]) => value));
  const isFiltered = Object.keys(filters).length > 0;
  const [openPartition, openOffset] = opening?.split(":") ?? [];
  // The address of a record in a partition lists the partition from there on.
  const from = parameters.get("from") ?? (openPartition === partition && !parameters.has("cursor") && !isFiltered && openOffset) ?? "";
  const order = parameters.get("order") ?? (from ? "oldest" : "newest");
  const given = { topic, partition, order: parameters.get("order"), from: parameters.get("from"), ...filters };
  const go = (changed) => {
    location.hash = address("records", { ...given, ...changed });
  };

  const state = { rows: [], ends: new Map(), opened: new Set(opening ? [opening] : []), alone: null, looked: 0, bytes: 0, reached: null, done: false, running: false, live: false, older: null, newer: null, hasOlder: false, hasNewer: false, notes: [] };
  let run = 0;
  let timer = null;

  const body = el("div", { class: "live" });
  const partitions = el("select", { "aria-label": "Partition", onchange: () => go({ partition: partitions.value, from: /^-?\d+$/.test(from) ? "" : parameters.get("from") }) }, el("option", { value: partition ?? "" }, partition ?? "all"));
  const direction = el("select", { "aria-label": "Order" }, ORDERS.map((each) => el("option", { value: each, selected: each === order }, `${each} first`)));
  const start = el("input", { value: parameters.get("from") ?? "", placeholder: order === "newest" ? "latest" : "earliest", size: "16", title: "earliest, latest, a time such as 2026-11-22T08:00 or -1h; in one partition also an offset, or -500 for the last 500" });
  const inputs = Object.fromEntries([
    ["key", "customer-7", "The whole key"], ["contains", "", "A text in key, value or headers"],
    ["path", "$.order.id == 4345", "A condition on the value as JSON: $.a.b[0] == 1, with ==, !=, <, <=, >, >=, contains, and"],
    ["header", "trace=7f3a", "The name of a header, or NAME=VALUE"],
  ].map(([name, placeholder, title]) => [name, el("input", { type: "search", value: filters[name] ?? "", placeholder, title, size: name === "path" ? "22" : "13" })]));
  const form = el("select", { onchange: () => {
    rememberForm(topic, form.value);
    show();
  } }, FORMS.map((each) => el("option", { value: each, selected: each === rememberedForm(topic) }, each)));
  const committed = el("input", { type: "checkbox", onchange: () => show() });
  const live = el("button", { type: "button", "aria-pressed": "false", onclick: () => tail() }, "Live tail");
  const query = el("form", { onsubmit: (event) => {
    event.preventDefault();
    const wanted = { order: direction.value === (start.value.trim() ? "oldest" : "newest") ? null : direction.value, from: start.value.trim(), partition: partitions.value, ...Object.fromEntries(FILTERS.map((name) => [name, inputs[name].value])) };
    if (address("records", { ...given, ...wanted }) === location.hash) begin();
    else go(wanted);
  } },
  el("div", { class: "row" }, el("label", {}, "Partition", partitions), el("label", {}, "Order", direction), el("label", {}, "From", start), el("label", {}, "Values as", form), el("label", {}, committed, "only what read_committed gets"), live),
  el("div", { class: "row filters" }, el("label", {}, "Key", inputs.key), el("label", {}, "Contains", inputs.contains), el("label", {}, "JSON path", inputs.path), el("label", {}, "Header", inputs.header), el("button", {}, "Show")));
  const produce = action("Write a record", {
    title: `Write a record to ${topic}${partition === null ? "" : `, partition ${partition}`}`, name: "produce-record",
    explain: `It is written at once, outside of transactions.${partition === null ? " Its key chooses the partition." : ""} An empty key is null; an empty value is null, too, which deletes the key in a compacted topic.`,
    fields: [["key", "Key"], ["value", "Value"]], body: (written) => ({ topic, partition: partition === null ? null : Number(partition), key: written.key || null, value: written.value || null }),
  });
  fill(root, el("div", { class: "row spread" }, el("h1", {}, link(topic, "topic", { name: topic }), partition === null ? " – all partitions" : ` – partition ${partition}`), produce), el("div", { class: "card" }, query), body);

  const shownAs = (row) => ({ topic, form: form.value, hasPartition: partition === null, isOpen: state.opened.has(nameOf(row)), toggle, whole });

  const toggle = (row) => {
    const name = nameOf(row);
    if (!state.opened.delete(name)) state.opened.add(name);
    const kept = new URLSearchParams(location.hash.split("?")[1]);
    const last = [...state.opened].at(-1);
    history.replaceState(history.state, "", address("records", { ...Object.fromEntries(kept), open: last }));
    show();
  };

  /** The record with all its bytes, in the place of the cut one; null when it cannot be had. */
  const whole = async (row) => {
    try {
      const found = await ask("records", { topic, partition: row.partition, from: row.offset, limit: 1 });
      if (found.records[0]?.offset !== row.offset) throw new Error(`Offset ${row.offset} of partition ${row.partition} is not there any more.`);
      const at = state.rows.findIndex((each) => nameOf(each) === nameOf(row));
      if (at >= 0) state.rows[at] = found.records[0];
      if (state.alone?.row && nameOf(state.alone.row) === nameOf(row)) state.alone = { row: found.records[0] };
      show();
      return found.records[0];
    } catch (problem) {
      trouble(problem);
      return null;
    }
  };

  const isCommitted = (row) => !row.marker && (row.outcome === "plain" || row.outcome === "committed") && below(row.offset, state.ends.get(row.partition)?.[2] ?? 0);

  const show = () => {
    if (!state.ends.size && !state.notes.length) return; // there is no answer yet
    const rows = committed.checked ? state.rows.filter(isCommitted) : state.rows;
    fill(body, state.alone === null ? null : aloneCard(),
      el("div", { class: "row spread" }, el("p", { class: "dim" }, summary()),
        el("div", { class: "row" }, partition === null ? null : [exportLink("jsonl", "JSON lines"), exportLink("csv", "CSV")],
          el("button", { type: "button", "data-key": "older", disabled: !state.hasOlder, onclick: () => go({ cursor: state.older, open: null }) }, "← Older"),
          el("button", { type: "button", "data-key": "newer", disabled: !state.hasNewer, onclick: () => go({ cursor: state.newer, open: null }) }, "Newer →"))),
      progress(), state.notes.map((note) => el("p", { class: "dim" }, note)),
      el("div", { class: "card" }, rows.length ? el("div", { class: "scroll", "data-scroll": "records", tabindex: "0", role: "region", "aria-label": "Records" }, el("table", { class: "records" },
        el("thead", {}, el("tr", {}, [partition === null && "partition", "offset", "time", "outcome", "key", "value", ""].filter((each) => each !== false).map((each) => el("th", { scope: "col", class: (each === "offset" || each === "partition") && "number" }, each)))),
        el("tbody", {}, rows.map((each) => recordRow(each, shownAs(each)))))) : el("p", { class: "dim" }, state.running ? "Searching …" : isFiltered ? "No record here fits the filter." : "No records here.")));
  };

  const summary = () => {
    const ends = [...state.ends.values()];
    const held = String(ends.reduce((sum, [, , stable, high]) => sum + BigInt(minus(high, stable)), 0n));
    const heldBack = held === "0" ? "" : `: ${number(held)} offsets are held back from read_committed consumers`;
    if (partition === null) return [`${plural(ends.length, "partition")}${heldBack}. `, link("Timeline", "timeline", { topic })];
    const [, first, stable, high] = ends[0] ?? [0, 0, 0, 0];
    return [`Offsets ${number(first)} to ${number(high)}; last stable offset ${number(stable)}${heldBack}. `, link("Timeline", "timeline", { topic, partition })];
  };

  const progress = () => {
    if (!isFiltered && !state.running && (state.done || state.rows.length)) return null;
    const reached = state.done ? "to the end" : state.reached === null ? "" : `${order === "newest" ? "back" : "up"} to ${time(state.reached)}`;
    const isPageFull = state.rows.length >= PAGE;
    return el("div", { class: "row progress" }, el("p", { role: "status", class: "dim" }, `Looked at ${plural(state.looked, "record")}, ${bytes(state.bytes)}${reached && `, ${reached}`}${isFiltered ? `; ${number(state.rows.length)} found` : ""}.`),
      state.live ? null : state.running ? el("button", { type: "button", "data-key": "go-on", onclick: stop }, "Stop")
        : state.done || isPageFull ? null : el("button", { type: "button", "data-key": "go-on", onclick: () => search() }, "Continue"));
  };

  const aloneCard = () => el("section", { class: "card", "aria-label": "The record of this address" },
    el("h2", {}, `Partition ${openPartition}, offset ${number(openOffset)}`),
    state.alone.row ? [el("p", { class: "dim" }, time(state.alone.row.timestamp, true)), recordDetails(state.alone.row, shownAs(state.alone.row))] : el("p", {}, state.alone.text));

  const exportLink = (format, text) => {
    const first = state.rows.reduce((least, row) => (least === null || below(row.offset, least) ? row.offset : least), null);
    return el("a", { class: "button", download: true, "data-key": format, title: "The records from the first shown one on, at most 10,000, as a file",
      href: `/api/export?${new URLSearchParams({ topic, partition, format, from: String(first ?? (from || "earliest")), ...filters, ...(committed.checked ? { committed: 1 } : {}) })}` }, text);
  };

  /** Takes the rows of an answer, which reads on in its own order. */
  const take = (found) => {
    for (const each of found.partitions) state.ends.set(each[0], each);
    const isForward = found.order === "oldest";
    const rows = found.order === order ? found.records : [...found.records].reverse();
    const atEnd = (isForward ? "oldest" : "newest") === order;
    state.rows = atEnd ? [...state.rows, ...rows] : [...rows, ...state.rows];
    for (const marker of [...found.ended, ...found.records.filter((each) => each.marker)]) {
      for (const row of state.rows) {
        if (row.outcome === "open" && row.partition === marker.partition && row.producer_id === marker.producer_id && below(row.offset, marker.offset)) row.outcome = marker.outcome;
      }
    }
    state.looked += found.looked;
    state.bytes += found.bytes;
    state.reached = found.reached_ms;
    state.notes = [...found.left_out.length ? [`${found.left_out.length === 1 ? "Partition" : "Partitions"} ${found.left_out.join(", ")} left out: no leader answers.`] : [], ...found.problems];
    if (isForward) [state.newer, state.hasNewer] = [found.cursor, !found.done];
    else [state.older, state.hasOlder] = [found.cursor, !found.done];
    if (isForward && state.older === null) [state.older, state.hasOlder] = [found.back, !found.begins];
    if (!isForward && state.newer === null) [state.newer, state.hasNewer] = [found.back, !found.begins];
    state.done = found.done;
  };

  const asked = (limit, cursor, place) => ask("search", { topic, limit, ...(partition === null ? {} : { partition }), ...filters, ...(cursor === null ? place : { cursor }) });

  /** Reads until the page is full, the topic ends, or it is stopped. */
  const search = async () => {
    run += 1;
    const mine = run;
    let cursor = parameters.get("cursor");
    if (state.ends.size) cursor = (cursor ?? order).startsWith("newest") ? state.older : state.newer;
    state.running = true;
    show();
    try {
      do {
        const found = await asked(PAGE - state.rows.length, cursor, { order, ...(from ? { from } : {}) });
        if (mine !== run) return;
        take(found);
        cursor = found.cursor;
        state.running = !state.done && state.rows.length < PAGE;
        trouble(null);
        show();
      } while (state.running);
    } catch (problem) {
      if (mine !== run) return;
      state.running = false;
      show();
      trouble(problem);
    }
  };

  const stop = () => {
    run += 1;
    state.running = false;
    show();
  };

  /** The record of the address, if the list does not have it. */
  const findAlone = async () => {
    if (!opening || state.rows.some((row) => !row.marker && nameOf(row) === opening)) return;
    try {
      const found = await ask("records", { topic, partition: openPartition, from: openOffset, limit: 1 });
      const row = found.records[0];
      const isThere = row !== undefined && String(row.offset) === openOffset;
      const missing = below(openOffset, found.log_start_offset) ? `It was deleted: the partition begins at offset ${number(found.log_start_offset)}.`
        : !below(openOffset, found.high_watermark) ? `It is not written yet: the partition ends at offset ${number(found.high_watermark)}.`
          : isThere ? "A marker of a transaction has this offset." : "No record has this offset: it was compacted away.";
      state.alone = isThere && !row.marker ? { row } : { text: missing };
    } catch (problem) {
      state.alone = { text: problem.message };
    }
    show();
  };

  const tail = () => {
    state.live = !state.live;
    live.setAttribute("aria-pressed", String(state.live));
    clearTimeout(timer);
    run += 1;
    state.running = false;
    if (!state.live) return show();
    Object.assign(state, { rows: [], older: null, newer: null, looked: 0, bytes: 0, alone: null });
    follow(run, null);
  };

  /** Shows the newest records, then those that are new. */
  const follow = async (mine, cursor) => {
    let next = cursor;
    let isBehind = false;
    try {
      if (!document.hidden || cursor === null) {
        const found = await asked(PAGE, cursor, { order: "newest" });
        if (mine !== run) return;
        take(found);
        next = cursor === null ? found.back : found.cursor;
        isBehind = cursor !== null && !found.done;
        if (state.rows.length > LIVE_ROWS_MAX) {
          state.rows = order === "newest" ? state.rows.slice(0, LIVE_ROWS_MAX) : state.rows.slice(-LIVE_ROWS_MAX);
          state.hasOlder = false; // the cursor is of the rows that are gone
        }
        state.hasNewer = false;
        trouble(null);
        show();
      }
    } catch (problem) {
      if (mine !== run) return;
      trouble(problem);
    }
    timer = setTimeout(() => follow(mine, next), isBehind ? 0 : LIVE_EVERY_MS);
  };

  const begin = async () => {
    Object.assign(state, { rows: [], older: null, newer: null, looked: 0, bytes: 0 });
    state.ends.clear();
    await search();
    await findAlone();
  };

  const choices = async () => {
    try {
      const described = await ask("topic", { topic });
      fill(partitions, el("option", { value: "" }, "all"), described.partitions.map((each) => el("option", { value: each.partition, selected: String(each.partition) === partition }, String(each.partition))));
    } catch (problem) {
      trouble(problem);
    }
  };
  choices();
  begin();
  return () => {
    run += 1;
    clearTimeout(timer);
  };
}
