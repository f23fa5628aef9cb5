// One record: its row in a list, its details, its texts, and copies of them.

import { el, link } from "./dom.js";
import { bytes, hexOf, number, textOf, time, unpacked, visible } from "./format.js";
import { laidOut } from "./json_layout.js";
import { badge } from "./parts.js";

export const FORMS = ["JSON", "text", "hex"];

/** The name of a record in an address: `3:1042`. */
export const nameOf = (row) => `${row.partition}:${row.offset}`;

/** Whether the listing has cut the key or the value. */
export const isCut = (row) => [[row.key, row.key_size], [row.value, row.value_size]].some(([data, size]) => data !== null && size > unpacked(data).length);

const formKey = (topic) => `semel-view:${topic}`;

/** The form of values that was chosen for this topic the last time. */
export function rememberedForm(topic) {
  try {
    const kept = localStorage.getItem(formKey(topic));
    return FORMS.includes(kept) ? kept : FORMS[0];
  } catch {
    return FORMS[0]; // a browser without storage
  }
}

export function rememberForm(topic, form) {
  try {
    if (form === FORMS[0]) localStorage.removeItem(formKey(topic));
    else localStorage.setItem(formKey(topic), form);
  } catch { /* a browser without storage forgets */ }
}

/** A row of the list, with its details when it is open. shown: topic, form, hasPartition, isOpen, toggle(row), whole(row). */
export function recordRow(row, shown) {
  const place = [shown.hasPartition && el("td", { class: "number", "data-label": "partition" }, String(row.partition)), el("td", { class: "number", "data-label": "offset" }, number(row.offset)), el("td", {}, time(row.timestamp, true)), el("td", {}, badge(row.outcome))];
  if (row.marker) {
    return el("tr", { class: "marker" }, place,
      el("td", { colspan: "3" }, `${row.outcome === "committed" ? "commit" : "abort"} marker of ${row.transactional_id ?? `producer ${row.producer_id}`}, epoch ${row.producer_epoch}`));
  }
  const button = el("button", { type: "button", class: "quiet", "data-key": `row:${nameOf(row)}`, "aria-expanded": String(shown.isOpen), "aria-label": `Details of offset ${row.offset}${shown.hasPartition ? ` of partition ${row.partition}` : ""}`, onclick: () => shown.toggle(row) }, shown.isOpen ? "▾" : "▸");
  const line = el("tr", { class: [row.outcome, shown.isOpen && "opened"].filter(Boolean).join(" ") }, place,
    el("td", { class: "data" }, short(row.key, row.key_size, shown.form, row.key_decoded)), el("td", { class: "data" }, short(row.value, row.value_size, shown.form, row.value_decoded)), el("td", { class: "opener" }, button));
  return shown.isOpen ? [line, el("tr", { class: "details" }, el("td", { colspan: shown.hasPartition ? "7" : "6" }, recordDetails(row, shown)))] : line;
}

export function recordDetails(row, { topic, form, whole }) {
  const said = el("span", { role: "status", class: "dim", "data-said": nameOf(row) });
  const copying = (caption, label, made) => el("button", { type: "button", "data-key": `copy:${label}:${nameOf(row)}`, onclick: async () => {
    const loaded = isCut(row) ? await whole(row) : row;
    if (loaded === null) return;
    const text = (await copied(made(loaded))) ? `${label} copied` : "The browser did not copy it: select the text instead";
    const shown = said.isConnected ? said : [...document.querySelectorAll("[data-said]")].find((each) => each.dataset.said === nameOf(row));
    if (shown) shown.textContent = text; // the page may have been drawn anew
  } }, caption);
  return el("div", { class: "record" },
    el("p", { class: "dim" }, row.outcome === "plain" ? "Written outside of transactions" : ["Written in a transaction of ", row.transactional_id ? link(row.transactional_id, "transaction", { id: row.transactional_id }) : `producer ${row.producer_id}`, ` (producer ${row.producer_id}, epoch ${row.producer_epoch}): ${row.outcome}`],
      row.outcome !== "plain" ? "" : row.producer_id >= 0 ? `, by idempotent producer ${row.producer_id}, epoch ${row.producer_epoch}` : "",
      `. Key ${row.key_size < 0 ? "null" : bytes(row.key_size)}, value ${row.value_size < 0 ? "null" : bytes(row.value_size)}.`),
    el("div", { class: "row" },
      row.key === null ? null : copying("Copy key", "Key", (each) => textToCopy(each.key, each.key_decoded)),
      row.value === null ? null : copying("Copy value", "Value", (each) => textToCopy(each.value, each.value_decoded)),
      copying("Copy record", "Record", (each) => recordAsJson(topic, each)),
      isCut(row) ? el("button", { type: "button", "data-key": `whole:${nameOf(row)}`, onclick: () => whole(row) }, "Load it whole") : null,
      link("Its address", "records", { topic, partition: row.partition, open: nameOf(row) }), said),
    row.not_decoded ? el("p", { class: "dim" }, `Not decoded: ${row.not_decoded}`) : null,
    row.headers.length ? [el("h2", {}, "Headers"), el("dl", { class: "sentences" }, row.headers.map(([name, value]) => [el("dt", {}, visible(name)), el("dd", { class: "mono" }, value === null ? "null" : short(value, 0, "text"))]))] : null,
    el("h2", {}, "Key", schemaNote(row.key_schema)), el("pre", { tabindex: "0", role: "group", "aria-label": "Key" }, long(row.key, row.key_size, form, row.key_decoded)),
    el("h2", {}, "Value", schemaNote(row.value_schema)), el("pre", { tabindex: "0", role: "group", "aria-label": "Value" }, long(row.value, row.value_size, form, row.value_decoded)));
}

const schemaNote = (schema) => (schema ? el("span", { class: "caption" }, `, decoded: ${schema}`) : null);

/** Base64, where the bytes are no text. */
const textToCopy = (data, decodedText) => decodedText ?? textOf(unpacked(data), false) ?? data;

/** The record as JSON, in the form of an export. Numbers that JavaScript cannot hold keep their digits. */
export function recordAsJson(topic, row) {
  const parts = (name, data) => {
    const text = data === null ? null : textOf(unpacked(data), false);
    return { [name]: text, [`${name}_base64`]: text === null ? data : null };
  };
  const decodedParts = (name, text) => (text === null ? {} : { [`${name}_decoded`]: text });
  const made = JSON.stringify({
    topic, partition: row.partition, offset: row.offset, timestamp: row.timestamp, outcome: row.outcome, producer_id: row.producer_id, producer_epoch: row.producer_epoch,
    transactional_id: row.transactional_id, ...parts("key", row.key), ...decodedParts("key", row.key_decoded), ...parts("value", row.value), ...decodedParts("value", row.value_decoded),
    headers: row.headers.map(([name, value]) => ({ name, ...parts("value", value) })),
  });
  return laidOut(made) ?? made;
}

/** Whether the text is in the clipboard. Without a secure context browsers have only the old way. */
async function copied(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea", { "aria-hidden": "true", class: "skip" });
    area.value = text;
    const held = document.activeElement;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    held?.focus();
    return done;
  }
}

function decoded(data, size, form, text) {
  if (data === null) return "null";
  const raw = unpacked(data);
  if (form === "hex") return null;
  const found = text ?? textOf(raw, size > raw.length);
  if (found === null) return null;
  return (form === "JSON" ? laidOut(found) : null) ?? found;
}

function short(data, size, form, text = null) {
  const found = decoded(data, size, form === "JSON" ? "text" : form, text);
  if (found === null) return [...unpacked(data).subarray(0, 40)].map((byte) => byte.toString(16).padStart(2, "0")).join(" ");
  return visible(found.slice(0, 240).replaceAll("\n", "⏎"));
}

function long(data, size, form, text = null) {
  const found = decoded(data, size, form, text);
  const shown = found === null ? hexOf(unpacked(data)) : visible(found);
  const cut = data !== null && size > unpacked(data).length;
  return cut ? `${shown}\n… the first ${bytes(unpacked(data).length)} of ${bytes(size)}` : shown;
}
