// Begins: the first visit, the pages by address, the banner, the theme.

import { login, session } from "./api.js";
import { address, el, fill } from "./dom.js";
import { accessPage, brokerPage } from "./page_access.js";
import { groupPage, groupsPage } from "./page_groups.js";
import { overviewPage } from "./page_overview.js";
import { recordsPage } from "./page_records.js";
import { sinksPage } from "./page_sinks.js";
import { timelinePage } from "./page_timeline.js";
import { topicPage, topicsPage } from "./page_topics.js";
import { transactionPage, transactionsPage } from "./page_transactions.js";

const PAGES = {
  "": [overviewPage, "Overview", ""], topics: [topicsPage, "Topics", "topics"], topic: [topicPage, "Topic", "topics"],
  records: [recordsPage, "Records", "topics"], timeline: [timelinePage, "Timeline", "timeline"],
  transactions: [transactionsPage, "Transactions", "transactions"], transaction: [transactionPage, "Transaction", "transactions"],
  groups: [groupsPage, "Groups", "groups"], group: [groupPage, "Group", "groups"],
  sinks: [sinksPage, "Sinks", "sinks"], access: [accessPage, "Access", "access"], broker: [brokerPage, "Broker", ""],
};
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

function show() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  const [page, title, section] = PAGES[path] ?? PAGES[""];
  leave?.();
  trouble(null);
  main.replaceChildren();
  main.dataset.page = location.hash;
  document.title = `${title} – semel console`;
  fill(document.getElementById("nav"), NAV.map((each) =>
    el("a", { href: address(each), "aria-current": each === section ? "page" : null, "data-key": each }, PAGES[each][1])));
  visits += 1;
  const visit = visits;
  leave = page(main, new URLSearchParams(query), (problem) => { // an answer may come after its page was left
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
