// Users, access control entries and quotas; settings of a broker.

import { watch } from "./api.js";
import { el, fill } from "./dom.js";
import { number } from "./format.js";
import { badge, table } from "./parts.js";
import { settingsTable } from "./page_topics.js";

export function accessPage(root, parameters, trouble) {
  const body = el("div", { class: "live" });
  fill(root, el("h1", {}, "Access"), body);
  const part = (title, found, columns, empty) => el("section", { class: "card" }, el("h2", {}, title),
    found.problem ? el("p", { class: "dim" }, found.problem) : table(title, columns, found.rows, { empty }));
  return watch("access", {}, (facts) => fill(body,
    part("Users", facts.users, [{ label: "user", value: (row) => row.user, name: true }, { label: "mechanisms", value: (row) => row.mechanisms.join(", ") }], "There is no user with SCRAM credentials."),
    part("Access control entries", facts.acls, [
      { label: "principal", value: (row) => row.principal, name: true },
      { label: "permission", value: (row) => row.permission, show: (row) => badge(row.permission, row.permission === "allow" ? "good" : "bad") },
      { label: "operation", value: (row) => row.operation }, { label: "resource", value: (row) => row.resource, name: true, show: (row) => `${row.resource_type} ${row.resource}` },
      { label: "pattern", value: (row) => row.pattern }, { label: "host", value: (row) => row.host },
    ], "There is no entry."),
    part("Quotas", facts.quotas, [{ label: "entity", value: (row) => row.entity, name: true },
      { label: "quotas", value: (row) => Object.keys(row.quotas).join(), name: true, show: (row) => Object.entries(row.quotas).map(([name, value]) => el("div", {}, `${name} = ${number(value)}`)) }], "There is no quota.")), trouble);
}

export function brokerPage(root, parameters, trouble) {
  const id = parameters.get("id") ?? "";
  let latest = null;
  const filter = el("input", { type: "search", oninput: () => latest && show(latest) });
  const all = el("input", { type: "checkbox", checked: true, onchange: () => latest && show(latest) });
  const body = el("div", { class: "card live" });
  fill(root, el("div", { class: "row spread" }, el("h1", {}, `Broker ${id}`), el("div", { class: "row" }, el("label", {}, "Filter", filter), el("label", {}, all, "defaults too"))), body);
  const show = (facts) => {
    latest = facts;
    fill(body, settingsTable("broker-settings", facts.settings.filter((each) => (all.checked || !each.is_default) && each.name.includes(filter.value))));
  };
  return watch("broker", { broker: id }, show, trouble);
}
