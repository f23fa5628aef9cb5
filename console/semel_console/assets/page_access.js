// Users, access control entries and quotas; settings of a broker.

import { mayWrite, watch } from "./api.js";
import { el, fill } from "./dom.js";
import { number, plural } from "./format.js";
import { managed } from "./manage.js";
import { badge, table } from "./parts.js";
import { settingsTable } from "./page_topics.js";

export function accessPage(root, parameters, trouble) {
  const body = el("div", { class: "live" });
  fill(root, el("h1", {}, "Access"), body);
  const part = (title, found, columns, empty, button) => el("section", { class: "card" }, el("div", { class: "row spread" }, el("h2", {}, title), found.problem ? null : button),
    found.problem ? el("p", { class: "dim" }, found.problem) : table(title, columns, found.rows, { empty }));
  const buttons = (show) => (mayWrite() ? [{ label: "", show: (row) => el("span", { class: "row" }, show(row)) }] : []);
  return watch("access", {}, (facts) => fill(body,
    part("Users", facts.users, [{ label: "user", value: (row) => row.user, name: true }, { label: "mechanisms", value: (row) => row.mechanisms.join(", ") },
      ...buttons((row) => [newPassword(row.user), deleteUser(row.user)])], "There is no user with SCRAM credentials.", createUser()),
    part("Access control entries", facts.acls, [
      { label: "principal", value: (row) => row.principal, name: true },
      { label: "permission", value: (row) => row.permission, show: (row) => badge(row.permission, row.permission === "allow" ? "good" : "bad") },
      { label: "operation", value: (row) => row.operation }, { label: "resource", value: (row) => row.resource, name: true, show: (row) => `${row.resource_type} ${row.resource}` },
      { label: "pattern", value: (row) => row.pattern }, { label: "host", value: (row) => row.host },
      ...buttons(removeEntry),
    ], "There is no entry.", addEntry()),
    part("Quotas", facts.quotas, [{ label: "entity", value: (row) => row.entity, name: true },
      { label: "quotas", value: (row) => Object.keys(row.quotas).join(), name: true, show: (row) => Object.entries(row.quotas).map(([name, value]) => el("div", {}, `${name} = ${number(value)}`)) },
      ...buttons(removeQuotas)], "There is no quota.", setQuota())), trouble);
}

const words = (text) => text.split(",").map((each) => each.trim()).filter(Boolean);

const createUser = () => managed("Create a user", {
  title: "Create a user", name: "create-user", explain: "The console's server hashes the password; brokers do not get it. Access control entries say what the user may do.",
  fields: [["user", "Name"], ["password", "Password", "", { type: "password" }]], body: ({ user, password }) => ({ user, password }),
});

const newPassword = (user) => managed("New password", {
  title: `Change the password of ${user}`, name: "change-password", does: "Change the password", key: `password:${user}`,
  fields: [["password", "Password", "", { type: "password" }]], body: ({ password }) => ({ user, password }),
});

const deleteUser = (user) => managed("Delete", {
  title: `Delete the user ${user}`, name: "delete-user", danger: true, typed: user, does: `Delete ${user}`, body: () => ({ user }), key: `user:${user}`,
});

const addEntry = () => managed("Add an entry", {
  title: "Add access control entries", name: "add-acl", does: "Add the entries",
  explain: "A principal is User:NAME; User:* is every user. Operations have commas between them: read, write, describe, …, or all. The resource * is every one; a cluster has the name kafka-cluster.",
  fields: [["principal", "Principal", "", { placeholder: "User:alice" }], ["permission", "Permission", "allow", { choices: ["allow", "deny"] }],
    ["operations", "Operations", "", { placeholder: "read, describe" }], ["resource_type", "Type of resource", "topic", { choices: ["topic", "group", "transactional id", "cluster"] }],
    ["resource", "Resource"], ["pattern", "The name is", "literal", { choices: ["literal", "prefixed"] }], ["host", "From host", "*"]],
  body: (given) => ({ ...given, operations: words(given.operations) }),
});

const removeEntry = (row) => managed("Remove", {
  title: "Remove an access control entry", name: "remove-acl", danger: true, typed: row.principal, does: "Remove the entry",
  key: `acl:${[row.principal, row.permission, row.operation, row.resource_type, row.resource, row.pattern, row.host].join()}`,
  body: () => ({ principal: row.principal, permission: row.permission, operations: [row.operation], resource_type: row.resource_type, resource: row.resource, pattern: row.pattern, host: row.host }),
});

const QUOTAS = ["producer_byte_rate", "consumer_byte_rate", "request_percentage", "controller_mutation_rate", "connection_creation_rate"];

const setQuota = () => managed("Set a quota", {
  title: "Set a quota", name: "alter-quotas", does: "Set the quota", key: "set-quota",
  explain: "Of a user, a client id, both together, or an address. Rates are those of a second.",
  fields: [["kind", "Of", "user", { choices: ["user", "client-id", "user and client-id", "ip"] }], ["first", "Name; empty stands for all without a quota of their own"], ["second", "Client id, if both"],
    ["quota", "Quota", QUOTAS[0], { choices: QUOTAS }], ["value", "Value", "", { placeholder: "1000000" }]],
  body: (given) => {
    const [first, second] = given.kind.split(" and ");
    if (!/^\d+(\.\d+)?$/.test(given.value)) throw new Error("The value must be a number, such as 1000000 or 12.5.");
    return { entity: { [first]: given.first || null, ...(second ? { [second]: given.second || null } : {}) }, quotas: { [given.quota]: Number(given.value) } };
  },
});

const removeQuotas = (row) => managed("Remove", {
  title: `Remove the quotas of ${row.entity}`, name: "alter-quotas", danger: true, typed: row.entity, does: "Remove the quotas", key: `quota:${row.entity}`,
  body: () => ({ entity: row.parts, quotas: Object.fromEntries(Object.keys(row.quotas).map((each) => [each, null])) }),
});

export function brokerPage(root, parameters, trouble) {
  const id = parameters.get("id") ?? "";
  let latest = null;
  const filter = el("input", { type: "search", oninput: () => latest && show(latest) });
  const all = el("input", { type: "checkbox", onchange: () => latest && show(latest) });
  const body = el("div", { class: "card live" });
  fill(root, el("div", { class: "row spread" }, el("h1", {}, `Broker ${id}`), el("div", { class: "row" }, el("label", {}, "Filter", filter), el("label", {}, all, "defaults too"))), body);
  const show = (facts) => {
    latest = facts;
    fill(body, settingsTable("broker-settings", facts.settings.filter((each) => (all.checked || !each.is_default) && each.name.includes(filter.value))),
      all.checked ? null : el("p", { class: "caption" }, `${plural(facts.settings.filter((each) => each.is_default).length, "setting")} with their defaults are not shown.`));
  };
  return watch("broker", { broker: id }, show, trouble);
}
