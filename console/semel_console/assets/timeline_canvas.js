// Draws a model's lanes on a canvas: pan, zoom, hover, keys. Dense lanes are summed up for each pixel.

import { el } from "./dom.js";
import { number, time } from "./format.js";
import { ABORTED, COMMITTED, OPEN, PLAIN } from "./timeline_model.js";

const LANE = 26, BAR = 14, HEAD = 26, MINI = 34;
const COLOURS = ["committed", "aborted", "open", "plain"];

export class TimelineView {
  /** tell(span or null, fence or null, point): what the pointer or the keys chose; chosen: it was clicked. */
  constructor(model, { axis = "offset", tell }) {
    this.model = model;
    this.axis = axis;
    this.tell = tell;
    this.mini = el("canvas", { class: "mini", "aria-hidden": "true" });
    this.canvas = el("canvas", { tabindex: "0", role: "application", "aria-roledescription": "timeline", "aria-describedby": "timeline-keys" });
    this.spacer = el("div");
    this.lanes = el("div", { class: "lanes" }, this.canvas, this.spacer);
    this.element = el("div", { class: "timeline" }, this.mini, this.lanes);
    this.cursor = { lane: 0, span: -1 };
    this.pending = 0;
    this.listen();
    this.reset();
    this.observer = new ResizeObserver(() => this.resized());
    this.observer.observe(this.element);
    this.onTheme = () => this.redraw();
    document.addEventListener("theme", this.onTheme);
  }

  close() {
    this.observer.disconnect();
    document.removeEventListener("theme", this.onTheme);
    cancelAnimationFrame(this.pending);
  }

  setModel() {
    const followed = this.to >= this.limits[1] - 1e-6;
    const whole = followed && this.from <= this.limits[0];
    this.limits = this.model.bounds(this.axis);
    if (whole) [this.from, this.to] = this.limits;
    else if (followed) [this.from, this.to] = [this.limits[1] - (this.to - this.from), this.limits[1]];
    this.resized();
  }

  setAxis(axis) {
    this.axis = axis;
    this.reset();
    this.redraw();
  }

  reset() {
    this.limits = this.model.bounds(this.axis);
    [this.from, this.to] = this.limits;
    this.redraw();
  }

  resized() {
    const width = this.element.clientWidth;
    if (!width) return;
    this.width = width;
    this.gutter = Math.min(190, Math.round(width * 0.3));
    const whole = HEAD + this.model.lanes.length * LANE;
    this.height = Math.max(HEAD + LANE, Math.min(whole, Math.round(window.innerHeight * 0.58)));
    this.spacer.style.height = `${Math.max(0, whole - this.height)}px`;
    for (const [canvas, height] of [[this.canvas, this.height], [this.mini, MINI]]) {
      const ratio = window.devicePixelRatio || 1;
      canvas.width = Math.round(width * ratio);
      canvas.height = Math.round(height * ratio);
      canvas.style.height = `${height}px`;
      canvas.getContext("2d").setTransform(ratio, 0, 0, ratio, 0, 0);
    }
    const sums = this.model.sums;
    this.canvas.setAttribute("aria-label", `Timeline with ${this.model.lanes.length} lanes: ${sums[COMMITTED]} committed, ${sums[ABORTED]} aborted and ${sums[OPEN]} open transactions. Last stable offset ${this.model.stable}, high watermark ${this.model.high}.`);
    this.redraw();
  }

  redraw() {
    cancelAnimationFrame(this.pending);
    this.pending = requestAnimationFrame(() => this.draw());
  }

  x(value) {
    return this.gutter + ((value - this.from) / (this.to - this.from)) * (this.width - this.gutter);
  }

  value(x) {
    return this.from + ((x - this.gutter) / (this.width - this.gutter)) * (this.to - this.from);
  }

  zoom(factor, at) {
    const least = this.axis === "time" ? 2 : 4;
    const span = Math.min(this.limits[1] - this.limits[0], Math.max(least, (this.to - this.from) * factor));
    const share = (at - this.from) / (this.to - this.from);
    this.move(at - share * span, span);
  }

  /** Shows `span` units from `from` on, within the limits. */
  move(from, span = this.to - this.from) {
    this.from = Math.max(this.limits[0], Math.min(from, this.limits[1] - span));
    this.to = this.from + span;
    this.redraw();
  }

  order(lane) {
    return this.axis === "time" ? lane.byTime : lane.byOffset;
  }

  /** The first position in a lane whose transaction may end after `value`. */
  search(lane, value) {
    const spans = this.order(lane);
    let low = 0, high = spans.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.model.end(spans[middle], this.axis) < value) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 2);
  }

  draw() {
    if (!this.width || this.from === undefined) return;
    const began = performance.now();
    const style = getComputedStyle(document.documentElement);
    this.colours = Object.fromEntries([...COLOURS, "fence", "text", "dim", "line", "card", "accent", "back"].map((name) => [name, style.getPropertyValue(`--${name}`).trim()]));
    const context = this.canvas.getContext("2d");
    const { width, height, gutter, colours } = this;
    context.fillStyle = colours.card;
    context.fillRect(0, 0, width, height);
    context.save();
    context.beginPath();
    context.rect(gutter, 0, width - gutter, height);
    context.clip();
    this.drawHeld(context);
    const top = this.lanes.scrollTop;
    const firstLane = Math.max(0, Math.floor(top / LANE));
    const lastLane = Math.min(this.model.lanes.length, Math.ceil((top + height - HEAD) / LANE) + 1);
    for (let at = firstLane; at < lastLane; at += 1) this.drawLane(context, this.model.lanes[at], HEAD + at * LANE - top, at);
    context.restore();
    this.drawNames(context, firstLane, lastLane, top);
    this.drawHead(context);
    this.drawMini();
    this.drawMs = performance.now() - began;
    this.canvas.dataset.drawn = String(Number(this.canvas.dataset.drawn ?? 0) + 1);
    this.canvas.dataset.ms = this.drawMs.toFixed(1);
  }

  /** The part that read_committed consumers cannot read. */
  drawHeld(context) {
    const { model } = this;
    if (model.stable >= model.high) return;
    const from = this.axis === "offset" ? model.stable : this.heldSince();
    const x = Math.max(this.gutter, this.x(from));
    const end = this.axis === "offset" ? this.x(model.high) : this.width;
    context.save();
    context.beginPath();
    context.rect(x, HEAD, Math.max(2, end - x), this.height);
    context.clip();
    context.globalAlpha = 0.22;
    context.strokeStyle = this.colours.open;
    context.beginPath();
    for (let at = x - this.height; at < end; at += 9) {
      context.moveTo(at, this.height);
      context.lineTo(at + this.height, 0);
    }
    context.stroke();
    context.restore();
    context.fillStyle = this.colours.open;
    context.fillRect(x - 1, 0, 2, this.height);
  }

  heldSince() {
    const { columns } = this.model;
    let since = this.model.now;
    for (let i = 0; i < this.model.size; i += 1) if (columns.outcome[i] === OPEN && columns.began[i] >= 0) since = Math.min(since, columns.began[i]);
    return since;
  }

  drawLane(context, lane, y, laneIndex) {
    const spans = this.order(lane);
    const { columns } = this.model;
    const start = this.search(lane, this.from);
    let visible = start;
    const limit = this.to;
    context.fillStyle = this.colours.line;
    context.fillRect(this.gutter, y + LANE - 1, this.width, 1);
    const top = y + (LANE - BAR) / 2;
    const room = this.width - this.gutter;
    let low = start, high = spans.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.model.start(spans[middle], this.axis) <= limit) low = middle + 1;
      else high = middle;
    }
    visible = low - start;
    if (visible > room / 4) this.drawDense(context, spans, start, low, top, room);
    else for (let at = start; at < low; at += 1) this.drawSpan(context, spans[at], top, columns.outcome[spans[at]]);
    for (const fence of lane.fences) {
      const x = this.x(this.model.fenceAt(fence, this.axis));
      if (x < this.gutter - 8 || x > this.width + 8) continue;
      context.fillStyle = this.colours.fence;
      context.beginPath();
      context.moveTo(x - 6, y + 1);
      context.lineTo(x + 6, y + 1);
      context.lineTo(x, y + 11);
      context.fill();
      context.fillRect(x - 1, y + 8, 2, LANE - 11);
    }
    if (this.cursor.lane === laneIndex && this.cursor.span >= 0 && this.cursor.span < this.model.size) {
      const x = this.x(this.model.start(this.cursor.span, this.axis));
      context.strokeStyle = this.colours.text;
      context.lineWidth = 2;
      context.strokeRect(x - 2, top - 3, Math.max(4, this.x(this.model.end(this.cursor.span, this.axis)) - x) + 4, BAR + 6);
    }
  }

  drawSpan(context, i, top, outcome) {
    const x = this.x(this.model.start(i, this.axis));
    const width = Math.max(2, this.x(this.model.end(i, this.axis)) - x - (outcome === OPEN ? 0 : 1));
    const left = Math.max(x, this.gutter - 4);
    const shown = Math.min(width - (left - x), this.width - left + 4);
    context.fillStyle = this.colours[COLOURS[outcome]];
    if (outcome === PLAIN) return context.fillRect(left, top + BAR / 2 - 2, shown, 4);
    if (outcome === OPEN) {
      context.globalAlpha = 0.4;
      context.fillRect(left, top, shown, BAR);
      context.globalAlpha = 1;
      return context.fillRect(left, top, Math.min(4, shown), BAR);
    }
    context.fillRect(left, top, shown, BAR);
    if (width > 16) {
      context.fillStyle = this.colours.card;
      context.font = "bold 11px system-ui, sans-serif";
      context.textBaseline = "middle";
      context.fillText(outcome === ABORTED ? "A" : "C", x + width - 11, top + BAR / 2 + 1);
    }
    return undefined;
  }

  /** Many transactions on one pixel: the height of a colour is its share, but an aborted one is always seen. */
  drawDense(context, spans, start, end, top, room) {
    const counts = [0, 1, 2, 3].map(() => new Uint32Array(room + 2));
    const { outcome } = this.model.columns;
    for (let at = start; at < end; at += 1) {
      const i = spans[at];
      const from = Math.max(0, Math.min(room, Math.floor(this.x(this.model.start(i, this.axis)) - this.gutter)));
      const to = Math.max(from + 1, Math.min(room, Math.floor(this.x(this.model.end(i, this.axis)) - this.gutter)));
      const row = counts[outcome[i]];
      for (let x = from; x < to; x += 1) row[x] += 1;
    }
    const [committed, aborted, open, plain] = counts;
    const heights = (x) => {
      const all = committed[x] + aborted[x] + open[x];
      if (!all) return plain[x] ? "p" : "";
      return `${aborted[x] ? Math.max(4, Math.round((aborted[x] / all) * BAR)) : 0} ${open[x] ? (committed[x] + aborted[x] ? 5 : BAR) : 0}`;
    };
    let began = 0, last = heights(0);
    for (let x = 1; x <= room + 1; x += 1) { // equal columns become one rectangle
      const next = x > room ? null : heights(x);
      if (next === last) continue;
      this.drawColumns(context, this.gutter + began, x - began, top, last);
      [began, last] = [x, next];
    }
  }

  drawColumns(context, x, width, top, heights) {
    const box = (colour, y, height) => {
      context.fillStyle = this.colours[colour];
      context.fillRect(x, y, width, height);
    };
    if (heights === "") return;
    if (heights === "p") {
      box("plain", top + BAR / 2 - 2, 4);
      return;
    }
    const [aborted, open] = heights.split(" ").map(Number);
    box("committed", top, BAR);
    if (open) box("open", top, open);
    if (aborted) box("aborted", top + BAR - aborted, aborted);
  }

  drawNames(context, firstLane, lastLane, top) {
    const { colours, gutter } = this;
    context.fillStyle = colours.card;
    context.fillRect(0, 0, gutter, this.height);
    context.fillStyle = colours.line;
    context.fillRect(gutter - 1, 0, 1, this.height);
    context.font = "13px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.save();
    context.beginPath();
    context.rect(0, HEAD, gutter - 6, this.height - HEAD);
    context.clip();
    for (let at = firstLane; at < lastLane; at += 1) {
      const lane = this.model.lanes[at];
      context.fillStyle = at === this.cursor.lane && document.activeElement === this.canvas ? colours.accent : lane.transactions ? colours.text : colours.dim;
      context.fillText(lane.name.slice(0, 60), 10, HEAD + at * LANE - top + LANE / 2);
    }
    context.restore();
  }

  drawHead(context) {
    const { colours, gutter, width } = this;
    context.fillStyle = colours.card;
    context.fillRect(0, 0, width, HEAD);
    context.fillStyle = colours.line;
    context.fillRect(0, HEAD - 1, width, 1);
    context.fillStyle = colours.dim;
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillText(this.axis === "time" ? "time (UTC)" : "offset", 10, HEAD / 2);
    const count = Math.max(2, Math.floor((width - gutter) / 150));
    for (const tick of ticks(this.from, this.to, count, this.axis)) {
      const x = this.x(tick);
      context.fillRect(x, HEAD - 6, 1, 6);
      const text = this.axis === "time" ? shortTime(tick, this.to - this.from) : number(tick);
      if (x + 4 + context.measureText(text).width < width) context.fillText(text, x + 4, HEAD / 2);
    }
    if (this.axis === "offset" && this.model.stable < this.model.high) {
      const x = this.x(this.model.stable);
      const text = `last stable ${number(this.model.stable)}`;
      context.font = "bold 12px system-ui, sans-serif";
      const length = context.measureText(text).width + 12;
      if (x >= gutter && x <= width) {
        const left = Math.min(x, width - length);
        context.fillStyle = colours.open;
        context.fillRect(left, 3, length, HEAD - 7);
        context.fillStyle = "#1b1300";
        context.fillText(text, left + 6, HEAD / 2);
      }
    }
  }

  /** The whole range, with a frame around what is shown. It is summed up once for each set of facts. */
  drawMini() {
    const context = this.mini.getContext("2d");
    const { colours, gutter, width } = this;
    const room = width - gutter;
    context.fillStyle = colours.card;
    context.fillRect(0, 0, width, MINI);
    const key = `${this.axis} ${width} ${this.model.size} ${this.model.high}`;
    if (this.miniKey !== key) {
      this.miniKey = key;
      this.miniCounts = [0, 1, 2].map(() => new Uint32Array(room + 1));
      const [low, high] = this.limits;
      for (let i = 0; i < this.model.size; i += 1) {
        const outcome = this.model.columns.outcome[i];
        const at = Math.floor(((this.model.start(i, this.axis) - low) / (high - low)) * room);
        if (outcome !== PLAIN && at >= 0 && at <= room) this.miniCounts[outcome][at] += 1;
      }
      this.miniTop = Math.max(1, ...this.miniCounts[0].map((each, at) => each + this.miniCounts[1][at] + this.miniCounts[2][at]));
    }
    for (let at = 0; at <= room; at += 1) {
      let y = MINI - 3;
      for (const outcome of [ABORTED, OPEN, COMMITTED]) {
        const count = this.miniCounts[outcome][at];
        if (!count) continue;
        const height = Math.max(2, (count / this.miniTop) * (MINI - 8));
        context.fillStyle = colours[COLOURS[outcome]];
        context.fillRect(gutter + at, y - height, 1, height);
        y -= height;
      }
    }
    context.fillStyle = colours.dim;
    context.font = "12px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.fillText("all", 10, MINI / 2);
    const [low, high] = this.limits;
    const left = gutter + ((this.from - low) / (high - low)) * room;
    const right = gutter + ((this.to - low) / (high - low)) * room;
    context.strokeStyle = colours.accent;
    context.lineWidth = 2;
    context.strokeRect(left + 1, 1, Math.max(3, right - left - 2), MINI - 2);
    context.globalAlpha = 0.12;
    context.fillStyle = colours.accent;
    context.fillRect(left, 0, Math.max(3, right - left), MINI);
    context.globalAlpha = 1;
  }

  /** What lies under a point: { span, fence, lane }. */
  hit(x, y) {
    const at = Math.floor((y - HEAD + this.lanes.scrollTop) / LANE);
    const lane = this.model.lanes[at];
    if (lane === undefined || y < HEAD || x < this.gutter) return { span: -1, fence: null, lane: at };
    const fence = lane.fences.find((each) => Math.abs(this.x(this.model.fenceAt(each, this.axis)) - x) < 8) ?? null;
    const spans = this.order(lane);
    const reach = this.value(x + 4);
    let best = -1, distance = 5;
    for (let position = this.search(lane, this.value(x - 4)); position < spans.length; position += 1) {
      const i = spans[position];
      if (this.model.start(i, this.axis) > reach) break;
      const left = this.x(this.model.start(i, this.axis)), right = Math.max(left + 2, this.x(this.model.end(i, this.axis)));
      const away = x < left ? left - x : x > right ? x - right : 0;
      if (away < distance) [best, distance] = [i, away];
      if (!away) break;
    }
    return { span: best, fence, lane: at };
  }

  listen() {
    let drag = null;
    this.canvas.addEventListener("pointerdown", (event) => {
      drag = { x: event.offsetX, from: this.from, moved: false };
      this.canvas.setPointerCapture(event.pointerId);
    });
    this.canvas.addEventListener("pointermove", (event) => {
      if (drag) {
        const delta = event.offsetX - drag.x;
        drag.moved ||= Math.abs(delta) > 3;
        if (drag.moved) this.move(drag.from - (delta / (this.width - this.gutter)) * (this.to - this.from));
        return;
      }
      const found = this.hit(event.offsetX, event.offsetY);
      this.tell(found.span, found.fence, { x: event.offsetX, y: event.offsetY + MINI }, false);
    });
    this.canvas.addEventListener("pointerup", (event) => {
      if (drag && !drag.moved) {
        const found = this.hit(event.offsetX, event.offsetY);
        this.cursor = { lane: found.lane, span: found.span };
        this.tell(found.span, found.fence, { x: event.offsetX, y: event.offsetY + MINI }, true);
        this.redraw();
      }
      drag = null;
    });
    this.canvas.addEventListener("pointerleave", () => this.tell(-1, null, null, false));
    this.canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      if (event.shiftKey || Math.abs(event.deltaX) > Math.abs(event.deltaY)) this.move(this.from + ((event.deltaX || event.deltaY) / this.width) * (this.to - this.from));
      else this.zoom(1.0018 ** event.deltaY, this.value(Math.max(this.gutter, event.offsetX)));
    }, { passive: false });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("focus", () => this.redraw());
    this.canvas.addEventListener("blur", () => this.redraw());
    this.lanes.addEventListener("scroll", () => this.redraw());
    const center = (event) => {
      const [low, high] = this.limits;
      const at = low + ((event.offsetX - this.gutter) / (this.width - this.gutter)) * (high - low);
      this.move(at - (this.to - this.from) / 2);
    };
    this.mini.addEventListener("pointerdown", (event) => {
      this.mini.setPointerCapture(event.pointerId);
      center(event);
    });
    this.mini.addEventListener("pointermove", (event) => event.buttons && center(event));
  }

  key(event) {
    const step = (this.to - this.from) / 8;
    const actions = {
      ArrowLeft: () => this.move(this.from - step), ArrowRight: () => this.move(this.from + step),
      "+": () => this.zoom(0.6, (this.from + this.to) / 2), "=": () => this.zoom(0.6, (this.from + this.to) / 2), "-": () => this.zoom(1 / 0.6, (this.from + this.to) / 2),
      0: () => this.reset(), Home: () => this.move(this.limits[0]), End: () => this.move(this.limits[1]),
      ArrowUp: () => this.selectLane(-1), ArrowDown: () => this.selectLane(1),
      n: () => this.step(1), p: () => this.step(-1),
      a: () => this.step(1, (i) => this.model.columns.outcome[i] === ABORTED), o: () => this.step(1, (i) => this.model.columns.outcome[i] === OPEN),
    };
    if (!actions[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    actions[event.key]();
  }

  selectLane(by) {
    const lane = Math.max(0, Math.min(this.model.lanes.length - 1, this.cursor.lane + by));
    this.cursor = { lane, span: -1 };
    const y = lane * LANE;
    if (y < this.lanes.scrollTop || y + LANE > this.lanes.scrollTop + this.height - HEAD) this.lanes.scrollTop = y - LANE;
    this.redraw();
  }

  /** Goes to the next transaction of the lane that fits. */
  step(by, fits = (i) => this.model.columns.outcome[i] !== PLAIN) {
    const lane = this.model.lanes[this.cursor.lane];
    if (lane === undefined) return;
    const spans = this.order(lane);
    let at = spans.indexOf(this.cursor.span);
    if (at < 0) at = by > 0 ? this.search(lane, this.from) - 1 : spans.length;
    for (at += by; at >= 0 && at < spans.length && !fits(spans[at]); at += by);
    if (at < 0 || at >= spans.length) return;
    this.select(spans[at]);
  }

  /** Chooses a transaction and brings it into view. */
  select(i) {
    const lane = this.model.lanes.findIndex((each) => each.name === this.model.label(i));
    this.cursor = { lane, span: i };
    const start = this.model.start(i, this.axis), end = this.model.end(i, this.axis);
    if (start < this.from || end > this.to || this.x(end) - this.x(start) < 4) {
      const span = Math.max((end - start) * 24, this.axis === "time" ? 40 : 24);
      this.move((start + end) / 2 - span / 2, Math.min(span, this.limits[1] - this.limits[0]));
    }
    this.tell(i, null, null, true);
    this.redraw();
  }
}

function ticks(from, to, count, axis) {
  const rough = (to - from) / count;
  const steps = axis === "time" ? [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 15e3, 3e4, 6e4, 12e4, 3e5, 6e5, 9e5, 18e5, 36e5, 72e5, 108e5, 216e5, 432e5, 864e5, 6048e5] : null;
  const power = 10 ** Math.floor(Math.log10(Math.max(1, rough)));
  const step = steps ? steps.find((each) => each >= rough) ?? 6048e5 * 4 : Math.max(1, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough));
  const found = [];
  for (let tick = Math.ceil(from / step) * step; tick <= to; tick += step) found.push(tick);
  return found;
}

function shortTime(ms, span) {
  const text = time(ms, true);
  if (text.length < 20) return text;
  if (span > 172_800_000) return text.slice(5, 16);
  return span > 600_000 ? text.slice(11, 16) : span > 5_000 ? text.slice(11, 19) : text.slice(14, 23);
}
