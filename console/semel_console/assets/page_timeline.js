// The timeline of a partition: which transactions committed, aborted or are open, and who fenced whom.

import { facts as ask, watch } from "./api.js";
import { address, el, fill, link } from "./dom.js";
import { bytes, duration, minus, number, plural, time } from "./format.js";
import { badge, table } from "./parts.js";
import { holderCards } from "./page_transactions.js";
import { TimelineView } from "./timeline_canvas.js";
import { ABORTED, Model, OPEN, OUTCOMES, PLAIN } from "./timeline_model.js";

const RANGES = [1_000, 10_000, 50_000, 200_000, 1_000_000];
const KEYS = "Keys: arrows move and choose a lane, + and − zoom, 0 shows all, n and p go to the next and previous transaction, a to the next aborted and o to the next open one.";

export function timelinePage(root, parameters, trouble) {
  const topic = parameters.get("topic");
  return topic === null ? choosePage(root, trouble) : partitionPage(root, parameters, topic, trouble);
}

/** Partitions to look at, those with open transactions first. */
function choosePage(root, trouble) {
  const body = el("div", { class: "live" });
  fill(root, el("h1", {}, "Timeline of transactions"), el("p", { class: "dim" }, "Choose a topic. Topics whose readers are held back come first."), body);
  return watch("topics", {}, (facts) => fill(body, el("div", { class: "card" }, table("choose", [
    { label: "topic", value: (row) => row.topic, name: true, show: (row) => link(row.topic, "timeline", { topic: row.topic, partition: 0 }) },
    { label: "partitions", value: (row) => row.partitions, number: true },
    { label: "offsets", value: (row) => row.end_offsets, number: true },
    { label: "held back", value: (row) => row.held_back, number: true, show: (row) => (row.held_back ? badge(number(row.held_back), "warn") : "0") },
  ], [...facts.topics].sort((a, b) => Number(a.internal) - Number(b.internal) || b.held_back - a.held_back), { empty: "There is no topic yet." }))), trouble);
}

function partitionPage(root, parameters, topic, trouble) {
  const partition = Number(parameters.get("partition") ?? 0);
  const last = Number(parameters.get("last") ?? 50_000);
  let axis = parameters.get("axis") === "time" ? "time" : "offset";
  const partitions = el("select", { onchange: () => { location.hash = address("timeline", { topic, partition: partitions.value, last, axis }); } }, el("option", { value: partition }, String(partition)));
  const ranges = el("select", { onchange: () => { location.hash = address("timeline", { topic, partition, last: ranges.value, axis }); } },
    RANGES.map((each) => el("option", { value: each, selected: each === last }, number(each))));
  const axes = ["offset", "time"].map((each) => el("button", { type: "button", "aria-pressed": String(each === axis), onclick: () => setAxis(each) }, `by ${each}`));
  const tip = el("div", { class: "tip", hidden: true });
  const summary = el("p", { class: "row" });
  const picture = el("div");
  const chosen = el("div", { "aria-live": "polite" });
  const below = el("div", { class: "live" });
  let view = null;
  let model = null;
  let stop = null;
  let isLoading = false;
  let isClosed = false;
  let nextAt = 0;

  fill(root, el("h1", {}, "Transactions of ", link(topic, "topic", { name: topic }), ` – partition ${partition}`),
    el("div", { class: "card" },
      el("div", { class: "row spread" },
        el("div", { class: "row" }, el("label", {}, "Partition", partitions), el("label", {}, "Last offsets", ranges), axes,
          el("button", { type: "button", onclick: () => view?.zoom(0.5, (view.from + view.to) / 2), "aria-label": "Zoom in" }, "+"),
          el("button", { type: "button", onclick: () => view?.zoom(2, (view.from + view.to) / 2), "aria-label": "Zoom out" }, "−"),
          el("button", { type: "button", onclick: () => view?.reset() }, "All")),
        el("div", { class: "row" }, ["committed", "aborted", "open", "plain", "held", "fence"].map((each) => el("span", { class: "key" },
          el("span", { class: `swatch ${each}` }), { plain: "outside of transactions", held: "held back", fence: "fence" }[each] ?? each)))),
      summary, picture, el("p", { class: "caption", id: "timeline-keys" }, KEYS, " Drag to pan, turn the wheel to zoom."), chosen),
    below);

  const setAxis = (next) => {
    axis = next;
    axes.forEach((button, at) => button.setAttribute("aria-pressed", String(["offset", "time"][at] === axis)));
    view?.setAxis(axis);
  };

  const tell = (span, fence, point, isChosen) => {
    if (point === null || (span < 0 && fence === null)) tip.hidden = true;
    else {
      fill(tip, tipLines(span, fence));
      tip.hidden = false;
      const width = view.element.clientWidth;
      tip.style.left = `${Math.max(4, Math.min(point.x + 14, width - tip.offsetWidth - 6))}px`;
      tip.style.top = `${point.y + 18}px`;
    }
    if (isChosen) fill(chosen, span < 0 && fence === null ? null : chosenCard(span, fence));
  };

  const isOf = (fence, i) => fence.span === i && model.columns.outcome[i] === ABORTED && model.columns.epoch[i] === fence.epoch
    && model.producers[model.columns.producer[i]].producer_id === fence.producer_id;
  const fencesOf = (i) => model.lanes.flatMap((lane) => lane.fences).filter((fence) => isOf(fence, i));

  const pairsOf = (i) => {
    const c = model.columns;
    const producer = model.producers[c.producer[i]];
    const pairs = [["producer", producer.producer_id < 0 ? "no producer id" : `id ${producer.producer_id}, epoch ${c.epoch[i]}`],
      ["offsets", `${number(c.first[i])} to ${number(c.last[i])}${c.marker[i] >= 0 ? `, marker at ${number(c.marker[i])}` : ""}`],
      ["records", `${number(c.records[i])}${c.bytes[i] >= 0 ? `, ${bytes(c.bytes[i])}` : ""}`]];
    if (c.began[i] >= 0) pairs.push(["began", time(c.began[i], true)]);
    if (c.outcome[i] === OPEN) pairs.push(["open for", c.began[i] < 0 ? "unknown" : duration(model.now - c.began[i])]);
    else if (c.outcome[i] !== PLAIN && c.began[i] >= 0) pairs.push(["took", duration(c.ended[i] - c.began[i])]);
    return pairs;
  };

  const tipLines = (span, fence) => [
    fence ? [el("b", {}, `Fenced: ${fence.transactional_id}`), el("div", {}, fence.text)] : null,
    span >= 0 ? [el("b", {}, `${model.label(span)}: ${kind(span)}`), pairsOf(span).map(([caption, text]) => el("div", {}, `${caption}: ${text}`)),
      fence ? null : fencesOf(span).map((each) => el("div", {}, each.text))] : null];

  const kind = (i) => (model.columns.outcome[i] === OPEN && model.holder(i)?.verdict === "hanging" ? "hanging" : OUTCOMES[model.columns.outcome[i]]);

  const chosenCard = (span, fence) => {
    const holder = span >= 0 && model.columns.outcome[span] === OPEN ? model.holder(span) : null;
    const name = span >= 0 ? model.producers[model.columns.producer[span]].transactional_id : fence.transactional_id;
    const fences = fence ? [fence] : fencesOf(span);
    return el("div", { class: `card holder ${holder?.verdict ?? ""}` },
      el("div", { class: "row" }, span >= 0 ? badge(kind(span)) : badge("fence", "info"), name ? link(name, "transaction", { id: name }) : el("b", {}, span >= 0 ? model.label(span) : ""),
        span >= 0 ? link("its records", "records", { topic, partition, from: model.columns.first[span] }) : null),
      el("dl", { class: "sentences" }, [
        ...(span >= 0 ? pairsOf(span) : []), ...fences.map((each) => [span < 0 || isOf(each, span) ? "fenced" : "fenced after it", `${time(each.at_ms, true)}: ${each.text}`]),
        ...(holder?.sentences.filter(([caption]) => caption !== "held by") ?? []),
      ].map(([caption, text]) => [el("dt", {}, caption || "command"), el("dd", {}, caption ? text : el("code", {}, text))])));
  };

  const told = () => {
    const [committed, aborted, open] = model.sums;
    const held = minus(model.high, model.stable);
    fill(summary, badge(`${number(committed)} committed`, "good"), badge(`${number(aborted)} aborted`, aborted ? "bad" : "info"), badge(`${number(open)} open`, open ? "warn" : "info"),
      el("span", { class: "dim" }, `offsets ${number(model.from)} to ${number(model.high)}; last stable ${number(model.stable)}`, held ? `: ${plural(held, "offset")} held back` : ""));
    fill(below, model.holders.length ? el("section", {}, el("h2", {}, "Open transactions of this partition"), holderCards(model.holders)) : null,
      el("section", { class: "card" }, el("h2", {}, "Fences of these producers"), table("fences", [
        { label: "when", value: (row) => row.at_ms, show: (row) => time(row.at_ms, true) },
        { label: "transactional id", value: (row) => row.transactional_id, name: true, show: (row) => link(row.transactional_id, "transaction", { id: row.transactional_id }) },
        { label: "epoch", value: (row) => row.epoch, show: (row) => `${row.epoch} → ${row.new_epoch < 0 ? "–" : row.new_epoch}` },
        { label: "fenced by", value: (row) => row.by, name: true }, { label: "why", value: (row) => row.reason, show: (row) => row.reason.replaceAll("_", " ") },
        { label: "", show: (row) => fenceButton(row) },
      ], [...model.fences].reverse(), { empty: model.noLedger ?? "No producer of this partition was fenced." }), model.fullLedgers && el("p", { class: "dim" }, model.fullLedgers)));
  };

  const fenceButton = (row) => {
    const found = model.lanes.flatMap((lane) => lane.fences).find((each) => each.at_ms === row.at_ms && each.transactional_id === row.transactional_id);
    return found && found.span >= 0 ? el("button", { type: "button", "data-key": `fence:${row.at_ms}`, onclick: () => {
      view.select(found.span);
      tell(found.span, found, null, true);
      picture.scrollIntoView({ block: "center" });
    } }, "Show") : null;
  };

  const load = async () => {
    const began = performance.now();
    if (isLoading || isClosed || began < nextAt) return;
    isLoading = true;
    try {
      if (model === null) {
        const found = await ask("timeline", { topic, partition, last });
        if (isClosed) return;
        model = new Model(found);
        view = new TimelineView(model, { axis, tell });
        view.element.append(tip);
        fill(picture, view.element);
        ask("topic", { topic }).then((described) => fill(partitions, described.partitions.map((each) => el("option", { value: each.partition, selected: each.partition === partition }, String(each.partition)))), () => null);
      } else {
        model.merge(await ask("timeline", { topic, partition, since: model.since }));
        if (isClosed) return;
        view.setModel();
      }
      told();
    } catch (problem) {
      trouble(problem);
    } finally {
      isLoading = false;
      nextAt = performance.now() + 4 * (performance.now() - began); // a long look is not repeated at once
    }
  };
  let ends = null;
  const follow = () => {
    if (ends !== null && (model === null || ends.high_watermark !== model.high || ends.last_stable_offset !== model.stable)) load();
  };
  stop = watch("ends", { topic, partition }, (found) => {
    ends = found;
    follow();
  }, trouble);
  load(); // `ends` only says when there is more
  const timer = setInterval(follow, 2000);
  return () => {
    isClosed = true;
    clearInterval(timer);
    stop();
    view?.close();
  };
}
