// Parts that pages share: badges, tables that sort, sparklines, questions before a change.

import { change, mayWrite, rightsNotes } from "./api.js";
import { breakable, el, svg } from "./dom.js";
import { number } from "./format.js";

const GOOD = ["ok", "healthy", "Stable", "CompleteCommit", "committed", "moving", "at end", "Empty", "empty"];
const BAD = ["offline", "hanging", "aborted", "Dead", "beyond the end", "below the start", "leader does not answer", "refuses acks=all"];
const INFO = ["plain", "CompleteAbort", "ongoing", "Ongoing"];

export function badge(text, kind) {
  const found = kind ?? (GOOD.includes(text) ? "good" : BAD.includes(text) ? "bad" : INFO.includes(text) ? "info" : "warn");
  return el("span", { class: `badge ${found}` }, text);
}

const order = new Map();

/** A table. columns: { label, value(row), show(row), number, name, minor }. Its heads sort it; `key` remembers how.
 *
 * On a phone each row is a block of labels and values, without the columns that are `minor`.
 */
export function table(key, columns, rows, { caption, empty = "None.", limit = 500, rowClass } = {}) {
  if (!rows.length) return [caption && el("h2", {}, caption), el("p", { class: "dim" }, empty)];
  const holder = el("div", { class: "scroll", "data-scroll": key, tabindex: "0", role: "region", "aria-label": caption ?? key });
  const draw = () => {
    const by = order.get(key);
    const sorted = by === undefined ? rows : [...rows].sort((a, b) => by.sign * compared(columns[by.column].value(a), columns[by.column].value(b)));
    const held = holder.contains(document.activeElement) ? document.activeElement.dataset.key : undefined;
    holder.replaceChildren(el("table", { class: "folds" },
      caption && el("caption", {}, caption),
      el("thead", {}, el("tr", {}, columns.map((column, index) => el("th",
        { class: classOf(column), scope: "col", "aria-sort": by?.column === index ? (by.sign > 0 ? "ascending" : "descending") : null },
        column.value ? el("button", { type: "button", "data-key": `${key}:${column.label}`, onclick: () => sort(index) },
          column.label, by?.column === index ? (by.sign > 0 ? " ▲" : " ▼") : "") : column.label)))),
      el("tbody", {}, sorted.slice(0, limit).map((row) => el("tr", { class: rowClass?.(row) }, columns.map((column) => {
        const shown = column.show ? column.show(row) : column.value(row);
        return el("td", { class: classOf(column), "data-label": column.label },
          typeof shown === "number" || (column.number && /^-?\d+$/.test(shown)) ? number(shown) : typeof shown === "string" && column.name ? breakable(shown) : shown ?? "–");
      }))))));
    if (rows.length > limit) holder.append(el("p", { class: "dim" }, `and ${(rows.length - limit).toLocaleString("en-US")} more: narrow the filter`));
    if (held) [...holder.querySelectorAll("[data-key]")].find((each) => each.dataset.key === held)?.focus();
  };
  const sort = (column) => {
    const by = order.get(key);
    order.set(key, { column, sign: by?.column === column ? -by.sign : 1 });
    draw();
  };
  draw();
  return holder;
}

const classOf = (column) => [column.number && "number", column.name && "name", column.minor && "minor"].filter(Boolean).join(" ") || null;

function compared(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1;
  if (b === null || b === undefined) return -1;
  return typeof a === "string" || typeof b === "string" ? String(a).localeCompare(String(b), "en", { numeric: true }) : a - b;
}

/** Says what a page leaves out because the principal lacks rights; empty when there is no authorizer. */
export function rightsNote() {
  const made = el("p", { class: "dim", "data-rights": true, hidden: true });
  rightsNotes((notes) => {
    made.textContent = notes.join(" ");
    made.hidden = !notes.length;
  });
  return made;
}

/** A line of values over time. label: what it shows, for those who do not see it. */
export function sparkline(values, label) {
  const top = Math.max(1, ...values);
  const points = values.map((value, index) => `${(index / Math.max(1, values.length - 1)) * 100},${38 - (value / top) * 34}`);
  const picture = svg("svg", { class: "spark", viewBox: "0 0 100 40", preserveAspectRatio: "none", role: "img", "aria-label": label });
  if (values.length > 1) picture.append(svg("polygon", { points: `0,40 ${points.join(" ")} 100,40` }), svg("polyline", { points: points.join(" ") }));
  return picture;
}

/** Pairs of a caption and a sentence; a pair without a caption is a command. */
export function sentences(pairs) {
  return el("dl", { class: "sentences" }, pairs.map(([caption, text]) => [
    el("dt", {}, caption || "command"),
    el("dd", {}, text.startsWith("semel ") ? el("code", {}, text) : text),
  ]));
}

/** A button that changes something; without `--write` there is none. ask: fields as [name, label, value]. */
export function action(text, { title, explain, fields = [], danger = false, body, name, done }) {
  if (!mayWrite()) return null;
  return el("button", { type: "button", class: danger && "danger", onclick: () => question(text, { title, explain, fields, danger, body, name, done }) }, text);
}

function question(text, { title, explain, fields, danger, body, name, done }) {
  const inputs = new Map(fields.map(([field, , value]) => [field, el("input", { value: value ?? "", name: field })]));
  const outcome = el("p", { role: "status" });
  const go = el("button", { class: danger && "danger", type: "submit" }, text);
  const form = el("form", { method: "dialog" },
    el("h2", { id: "question" }, title), explain && el("p", { class: "dim" }, explain),
    fields.map(([field, label]) => el("label", {}, label, inputs.get(field))), outcome,
    el("div", { class: "row" }, go, el("button", { type: "button", onclick: () => dialog.close() }, "Close")));
  const dialog = el("dialog", { "aria-labelledby": "question" }, form);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    go.disabled = true;
    try {
      const given = Object.fromEntries([...inputs].map(([field, input]) => [field, input.value.trim()]));
      const answer = await change(name, body(given));
      outcome.textContent = answer.text ?? done?.(answer) ?? "Done.";
    } catch (problem) {
      outcome.textContent = [problem.message, ...(problem.notes ?? [])].join(" ");
    }
    go.disabled = false;
  });
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}
