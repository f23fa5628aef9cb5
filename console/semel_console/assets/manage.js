// Changes in two steps: a dialog shows what would change, and a second button makes it so.

import { change, mayWrite } from "./api.js";
import { el, fill } from "./dom.js";

/** A button that opens such a dialog; without `--write` there is none.
 *
 * fields: [name, label, value, { type, choices, placeholder }]. body(given): the body of the request. typed: a name that has
 * to be typed for a deletion; a text, or a function of the given values. does: the text of the second button. left: called
 * when the dialog closes after a change. only: the label of a checkbox, ticked at first; without the tick the first button
 * makes the changes at once.
 */
export function managed(text, { title, explain, fields = [], danger = false, name, body, typed = null, does = text, left = null, key = null, only = null }) {
  if (!mayWrite()) return null;
  return el("button", { type: "button", class: danger && "danger", "data-key": key ?? name, onclick: () =>
    dialogOf({ title, explain, fields, danger, name, body, typed, does, left, only }) }, text);
}

function inputOf([name, , value, { type = "text", choices = null, placeholder = null } = {}]) {
  if (choices !== null) return el("select", { name }, choices.map((each) => el("option", { value: each, selected: each === value }, each)));
  if (type === "checkbox") return el("input", { type, name, checked: value === true });
  return el("input", { type, name, value: value ?? "", placeholder, autocomplete: type === "password" ? "new-password" : "off" });
}

const given = (inputs) => Object.fromEntries([...inputs].map(([name, input]) => [name, input.type === "checkbox" ? input.checked : input.type === "password" ? input.value : input.value.trim()]));

function dialogOf({ title, explain, fields, danger, name, body, typed, does, left, only }) {
  const inputs = new Map(fields.map((field) => [field[0], inputOf(field)]));
  const outcome = el("div", { role: "status", class: "outcome" });
  const next = el("div", { class: "confirm" });
  const plan = el("button", { type: "submit" }, "Show the changes");
  const close = el("button", { type: "button", onclick: () => dialog.close() }, "Close");
  const dry = el("input", { type: "checkbox", name: "dry_run", checked: true, onchange: () => {
    forget();
    fill(outcome);
    plan.textContent = dry.checked ? "Show the changes" : does;
  } });
  const labelled = ([field, label]) => el("label", { class: inputs.get(field).type === "checkbox" && "check" },
    inputs.get(field).type === "checkbox" ? [inputs.get(field), label] : [label, inputs.get(field)]);
  const form = el("form", { method: "dialog" }, el("h2", { id: "managed" }, title), explain && el("p", { class: "dim" }, explain),
    fields.map(labelled), only && el("label", { class: "check" }, dry, only), outcome, next, el("div", { class: "row" }, plan, close));
  const dialog = el("dialog", { "aria-labelledby": "managed" }, form);
  let isDone = false;
  let confirm = null;

  const send = async (more) => {
    plan.disabled = true;
    try {
      return await change(name, { ...body(given(inputs)), ...more });
    } catch (problem) {
      fill(outcome, el("p", { class: "wrong" }, [problem.message, ...(problem.notes ?? [])].join(" ")));
      return null;
    } finally {
      plan.disabled = isDone;
    }
  };

  const showPlan = async () => {
    forget();
    const found = await send({ dry_run: true });
    if (found === null) return;
    fill(outcome, found.changes.length ? el("ul", {}, found.changes.map((each) => el("li", {}, each))) : el("p", {}, "Nothing would change."),
      found.notes.map((each) => el("p", { class: "dim" }, each)));
    if (found.changes.length) offer(found.exact ?? {});
  };

  /** The second step. It repeats what was shown, so it ends when a field changes. */
  const offer = (exact) => {
    const wanted = typeof typed === "function" ? typed(given(inputs)) : typed;
    const repeat = wanted === null ? null : el("input", { name: "typed", autocomplete: "off", spellcheck: "false", oninput: () => { go.disabled = repeat.value !== wanted; } });
    const go = el("button", { type: "submit", class: danger && "danger", disabled: wanted !== null }, does);
    confirm = async () => {
      go.disabled = true;
      const found = await send({ ...exact, dry_run: false, ...(wanted === null ? {} : { typed: repeat.value }) });
      if (found === null) return forget();
      isDone = true;
      forget();
      fill(outcome, el("p", { class: "done" }, found.text ?? "Done."));
      for (const input of inputs.values()) input.disabled = true;
      plan.remove();
      dry.disabled = true;
      close.focus();
    };
    fill(next, wanted === null ? null : el("label", {}, el("span", {}, "Type ", el("code", {}, wanted), " to confirm"), repeat), el("div", { class: "row" }, go));
    plan.type = "button";
    (repeat ?? go).focus();
  };

  const forget = () => {
    confirm = null;
    plan.type = "submit";
    fill(next);
  };

  plan.addEventListener("click", (event) => {
    if (plan.type === "button") {
      event.preventDefault();
      showPlan();
    }
  });
  for (const input of inputs.values()) {
    input.addEventListener("input", () => {
      forget();
      fill(outcome);
    });
  }
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (confirm === null && dry.checked) return showPlan();
    if (confirm === null) offer({});
    confirm();
  });
  const leave = () => dialog.close();
  window.addEventListener("hashchange", leave);
  dialog.addEventListener("close", () => {
    window.removeEventListener("hashchange", leave);
    for (const input of inputs.values()) if (input.type === "password") input.value = "";
    dialog.remove();
    if (isDone) left?.();
  });
  document.body.append(dialog);
  dialog.showModal();
}
