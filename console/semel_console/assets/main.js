// Begins: the first visit, the pages by address, the banner, the theme.

import { login, session } from "./api.js";
import { address, el, fill, link } from "./dom.js";
import { accessPage, brokerPage } from "./page_access.js";
import { groupPage, groupsPage } from "./page_groups.js";
import { overviewPage } from "./page_overview.js";
import { recordsPage } from "./page_records.js";
import { sinksPage } from "./page_sinks.js";
import { timelinePage } from "./page_timeline.js";
import { topicPage, topicsPage } from "./page_topics.js";
import { transactionPage, transactionsPage } from "./page_transactions.js";

/** Path -> the page, its title, its section, the parameters that it needs, those that it may have. */
const PAGES = {
  "": [overviewPage, "Overview", ""], topics: [topicsPage, "Topics", "topics"], topic: [topicPage, "Topic", "topics", ["name"]],
  records: [recordsPage, "Records", "topics", ["topic"], ["partition", "from", "contains", "order", "key", "path", "header", "cursor", "open"]],
  timeline: [timelinePage, "Timeline", "timeline", [], ["topic", "partition", "last", "axis"]],
  transactions: [transactionsPage, "Transactions", "transactions"], transaction: [transactionPage, "Transaction", "transactions", ["id"]],
  groups: [groupsPage, "Groups", "groups"], group: [groupPage, "Group", "groups", ["name"]],
  sinks: [sinksPage, "Sinks", "sinks"], access: [accessPage, "Access", "access"], broker: [brokerPage, "Broker", "", ["id"]],
};
/** Parameters that are whole numbers from 0 on. */
const NUMBERS = ["partition", "last"];
/** Parameters with another form, and the form in words. */
const FORMS = { open: [/^\d{1,10}:\d{1,19}$/, "PARTITION:OFFSET, such as 3:1042"], order: [/^(newest|oldest)$/, "newest or oldest"] };
const NAV = ["", "topics", "timeline", "transactions", "groups", "sinks", "access"];

const main = document.getElementById("main");
const banner = document.getElementById("banner");
let leave = null;
let visits = 0;

/** Shows a problem above the page, whose last facts stay; null: all is well again. */
function trouble(problem) {
  banner.hidden = problem === null;
  main.classList.toggle("stale", problem !== null);
  if (problem === null) return;
  const text = [problem.message, ...(problem.notes ?? [])].join(" ");
  if (banner.textContent !== text) banner.textContent = text;
}

/** What is wrong with an address; null when nothing is. */
function wrongIn(path, given) {
  if (!Object.hasOwn(PAGES, path)) return `There is no page "${path}".`;
  const [, title, , needed = [], possible = []] = PAGES[path];
  const known = [...needed, ...possible];
  const has = known.length ? `It has ${known.join(", ")}.` : "It has none.";
  const unknown = [...given.keys()].find((name) => !known.includes(name));
  if (unknown !== undefined) return `The page "${title}" has no parameter "${unknown}". ${has}`;
  const missing = needed.find((name) => !given.get(name));
  if (missing !== undefined) return `The address lacks the parameter "${missing}" of the page "${title}". ${has}`;
  const twice = known.find((name) => given.getAll(name).length > 1);
  if (twice !== undefined) return `The address has the parameter "${twice}" more than once.`;
  const wrong = NUMBERS.find((name) => given.has(name) && !/^\d{1,10}$/.test(given.get(name)));
  const other = Object.keys(FORMS).find((name) => given.has(name) && !FORMS[name][0].test(given.get(name)));
  if (other !== undefined) return `The parameter "${other}" must be ${FORMS[other][1]}, and is "${given.get(other)}".`;
  return wrong === undefined ? null : `The parameter "${wrong}" must be a whole number from 0 on, and is "${given.get(wrong)}".`;
}

function wrongPage(root, text) {
  fill(root, el("h1", {}, "This address shows no page"), el("p", {}, text), el("p", {}, link("Overview", ""), " · ", link("Topics", "topics")));
  return null;
}

function show() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const given = new URLSearchParams(query);
  const wrong = wrongIn(path, given);
  const [page, title, section] = wrong === null ? PAGES[path] : [(root) => wrongPage(root, wrong), "Wrong address", null];
  leave?.();
  trouble(null);
  main.replaceChildren();
  main.dataset.page = location.hash;
  document.title = `${title} – semel console`;
  fill(document.getElementById("nav"), NAV.map((each) =>
    el("a", { href: address(each), "aria-current": each === section ? "page" : null, "data-key": each }, PAGES[each][1])));
  visits += 1;
  const visit = visits;
  leave = page(main, given, (problem) => { // an answer may come after its page was left
    if (visit === visits) trouble(problem);
  });
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  const other = theme === "dark" ? "light" : "dark";
  const button = document.getElementById("theme");
  button.textContent = theme === "dark" ? "☀ Light" : "☾ Dark";
  button.onclick = () => {
    try {
      localStorage.setItem("semel-theme", other);
    } catch { /* a browser without storage forgets */ }
    setTheme(other);
    document.dispatchEvent(new Event("theme"));
  };
}

function storedTheme() {
  try {
    return localStorage.getItem("semel-theme");
  } catch {
    return null;
  }
}

async function askForToken(problem) {
  const input = el("input", { name: "token", autocomplete: "off", size: "52", "aria-label": "Token" });
  const outcome = el("p", { role: "status", class: "dim" }, problem.message);
  const form = el("form", { class: "card" }, el("h1", {}, "semel console"), outcome,
    el("div", { class: "row" }, el("label", {}, "Token", input), el("button", {}, "Enter")));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    try {
      await login(input.value.trim());
      await begin();
    } catch (wrong) {
      outcome.textContent = wrong.message;
    }
  });
  fill(main, form);
}

async function begin() {
  const token = /^#token=([0-9a-f]+)$/.exec(location.hash);
  try {
    if (token) {
      history.replaceState(null, "", "#/");
      await login(token[1]);
    } else await session();
  } catch (problem) {
    return askForToken(problem);
  }
  window.addEventListener("hashchange", () => {
    show();
    main.focus();
  });
  show();
}

document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault();
  main.focus();
});
setTheme(storedTheme() ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light"));
begin();
