// The transactions of a partition in columns, grouped into lanes: one for each transactional id.

export const COMMITTED = 0, ABORTED = 1, OPEN = 2, PLAIN = 3;
export const OUTCOMES = ["committed", "aborted", "open", "outside of transactions"];
const COLUMNS = ["producer", "epoch", "outcome", "first", "last", "marker", "records", "bytes", "began", "ended"];

export class Model {
  constructor(facts) {
    this.producers = facts.producers;
    this.columns = Object.fromEntries(COLUMNS.map((name) => [name, Float64Array.from(facts.columns[name])]));
    this.take(facts);
    this.group();
  }

  get size() {
    return this.columns.first.length;
  }

  take(facts) {
    this.from = this.from === undefined ? facts.from_offset : this.from;
    this.stable = facts.last_stable_offset;
    this.high = facts.high_watermark;
    this.low = facts.log_start_offset;
    this.now = facts.now_ms;
    this.fences = facts.fences;
    this.holders = facts.holders;
    this.noLedger = facts.no_ledger;
    this.fullLedgers = facts.full_ledgers;
  }

  /** The offset to ask for news from: nothing before it can change. */
  get since() {
    return Math.min(this.stable, this.high);
  }

  /** Adds the facts of offsets from `since` on. A transaction that was complete before stays as it is. */
  merge(facts) {
    const { columns: old, high } = this;
    const since = facts.from_offset;
    const index = new Map(this.producers.map((each, at) => [each.producer_id, at]));
    const moved = facts.producers.map((each) => {
      if (!index.has(each.producer_id)) {
        index.set(each.producer_id, this.producers.length);
        this.producers.push(each);
      } else if (each.transactional_id) this.producers[index.get(each.producer_id)] = each;
      return index.get(each.producer_id);
    });
    const kept = [];
    for (let i = 0; i < this.size; i += 1) {
      if (old.outcome[i] === OPEN || (old.outcome[i] === PLAIN && old.first[i] >= since)) continue;
      kept.push(i);
    }
    const fresh = [];
    const next = facts.columns;
    for (let i = 0; i < next.first.length; i += 1) {
      const isKnown = next.outcome[i] !== OPEN && next.outcome[i] !== PLAIN && next.marker[i] >= 0 && next.marker[i] < high;
      if (!isKnown) fresh.push(i);
    }
    const merged = {};
    for (const name of COLUMNS) {
      const made = new Float64Array(kept.length + fresh.length);
      kept.forEach((from, to) => { made[to] = old[name][from]; });
      fresh.forEach((from, to) => { made[kept.length + to] = name === "producer" ? moved[next.producer[from]] : next[name][from]; });
      merged[name] = made;
    }
    for (let i = 0; i < kept.length; i += 1) {
      if (merged.outcome[i] === PLAIN && merged.last[i] >= since) merged.last[i] = since - 1;
    }
    this.columns = merged;
    this.take(facts);
    this.group();
  }

  label(i) {
    const found = this.producers[this.columns.producer[i]];
    return found.producer_id < 0 ? "no producer id" : found.transactional_id ?? `producer ${found.producer_id}`;
  }

  group() {
    const lanes = new Map();
    const sums = [0, 0, 0, 0];
    for (let i = 0; i < this.size; i += 1) {
      const outcome = this.columns.outcome[i];
      sums[outcome] += 1;
      const name = this.label(i);
      let lane = lanes.get(name);
      if (lane === undefined) lanes.set(name, (lane = { name, spans: [], transactions: 0, aborted: 0, open: 0, fences: [] }));
      lane.spans.push(i);
      lane.transactions += outcome === PLAIN ? 0 : 1;
      lane.aborted += outcome === ABORTED ? 1 : 0;
      lane.open += outcome === OPEN ? 1 : 0;
    }
    for (const fence of this.fences) lanes.get(fence.transactional_id)?.fences.push({ ...fence, span: this.spanOf(lanes.get(fence.transactional_id), fence) });
    const { first, began } = this.columns;
    this.sums = sums;
    this.lanes = [...lanes.values()].sort((a, b) => Number(b.transactions > 0) - Number(a.transactions > 0) || b.open - a.open || a.name.localeCompare(b.name, "en", { numeric: true }));
    for (const lane of this.lanes) {
      lane.byOffset = inOrder(Float64Array.from(lane.spans), first);
      lane.byTime = inOrder(Float64Array.from(lane.spans).filter((i) => began[i] >= 0), began);
    }
  }

  /** The transaction that a fence ended, else the last one before it; -1 without one. */
  spanOf(lane, fence) {
    const { epoch, began, ended, outcome, producer } = this.columns;
    let before = -1;
    for (const i of lane.spans) {
      if (outcome[i] === PLAIN) continue;
      if (this.producers[producer[i]].producer_id === fence.producer_id && epoch[i] === fence.epoch && outcome[i] === ABORTED && Math.abs(ended[i] - fence.at_ms) < 60_000) return i;
      if (began[i] <= fence.at_ms) before = i;
    }
    return before;
  }

  /** The ends of a transaction on an axis. */
  start(i, axis) {
    return axis === "time" ? this.columns.began[i] : this.columns.first[i];
  }

  end(i, axis) {
    const { columns } = this;
    if (axis === "time") return columns.outcome[i] === OPEN ? this.now : columns.ended[i] >= 0 ? columns.ended[i] : columns.began[i];
    return (columns.outcome[i] === OPEN ? this.high : Math.max(columns.last[i], columns.marker[i]) + 1);
  }

  bounds(axis) {
    if (axis === "offset") return [this.from, Math.max(this.from + 1, this.high)];
    let low = Infinity, high = -Infinity;
    for (let i = 0; i < this.size; i += 1) {
      if (this.columns.began[i] < 0) continue;
      low = Math.min(low, this.columns.began[i]);
      high = Math.max(high, this.end(i, "time"));
    }
    return low < Infinity ? [low, Math.max(high, low + 1)] : [this.now - 1000, this.now];
  }

  /** Where a fence lies on an axis. */
  fenceAt(fence, axis) {
    if (axis === "time") return fence.at_ms;
    return fence.span < 0 ? this.from : this.end(fence.span, "offset");
  }

  /** The holder facts of an open transaction: verdict and sentences. */
  holder(i) {
    const id = this.producers[this.columns.producer[i]].producer_id;
    return this.holders.find((each) => each.producer_id === id);
  }
}

/** Indexes sorted by a column. They mostly are sorted already. */
function inOrder(indexes, column) {
  for (let at = 1; at < indexes.length; at += 1) {
    if (column[indexes[at - 1]] > column[indexes[at]]) return indexes.sort((a, b) => column[a] - column[b]);
  }
  return indexes;
}
