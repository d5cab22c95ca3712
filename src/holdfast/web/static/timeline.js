// When each result came, who was in which state, and what happened: live, and an hour back.

import { clock, color, make, number } from "./dom.js";

const HOUR = 3600, LEFT = 130, RIGHT = 16, PLOT = 150, BAR = 20, AXIS = 24;
const KINDS = ["stable", "corrected", "tentative"];
const STATES = {
  stable: "good", serving: "good", up: "good", "standing by": "idle", up_failure: "tentative",
  asking: "tentative", postponed: "tentative", tentative: "tentative", stabilization: "stable", gone: "bad", paused: "bad", slow: "bad",
};

export class Timeline {
  constructor(app, root) {
    this.app = app;
    this.span = 120;
    this.end = null; // null: follows the present
    this.canvas = make("canvas", { class: "timeline", tabindex: 0, role: "img",
      "aria-label": "Results and states over time; arrow keys move, plus and minus zoom, End follows the present",
      onpointermove: (event) => this.hover(event), onpointerleave: () => { this.at = null; this.update(); },
      onwheel: (event) => this.wheel(event), onpointerdown: (event) => { this.drag = [event.clientX, this.shownEnd]; this.canvas.setPointerCapture(event.pointerId); },
      onpointerup: () => { this.drag = null; } });
    this.follow = make("button", { type: "button", onclick: () => this.move(null) }, "Now");
    this.range = make("span", { class: "faint" });
    this.events = make("ol", { class: "controls", "aria-label": "Events in sight" });
    this.why = make("div");
    this.pane = make("div", { class: "pane" }, make("div", { class: "row" },
      make("button", { type: "button", onclick: () => this.shift(-0.5), title: "back (←)" }, "◀"),
      make("button", { type: "button", onclick: () => this.shift(0.5), title: "forth (→)" }, "▶"),
      make("button", { type: "button", onclick: () => this.zoom(0.5), title: "closer (+)" }, "+"),
      make("button", { type: "button", onclick: () => this.zoom(2), title: "wider (-)" }, "−"),
      this.follow, this.range), this.canvas);
    this.side = make("aside", { class: "side", "aria-label": "Events" }, make("h2", {}, "Why tentative"), this.why, make("h2", {}, "Events"), this.events);
    root.append(this.pane, this.side);
    this.timer = setInterval(() => { if (this.end === null) this.app.changed("time"); }, 500);
  }

  close() { clearInterval(this.timer); }

  get shownEnd() { return this.end ?? this.app.store.now; }

  move(end) {
    const { now } = this.app.store;
    this.end = end === null || end >= now ? null : Math.max(now - HOUR + this.span, end);
    this.update();
  }

  shift(share) { this.move(this.shownEnd + share * this.span); }

  zoom(factor) {
    this.span = Math.min(HOUR, Math.max(10, this.span * factor));
    this.move(this.end);
  }

  onKey(event) {
    const act = { ArrowLeft: () => this.shift(-0.25), ArrowRight: () => this.shift(0.25), "+": () => this.zoom(0.5), "=": () => this.zoom(0.5),
      "-": () => this.zoom(2), End: () => this.move(null), Home: () => this.move(this.app.store.now - HOUR + this.span) }[event.key];
    if (act) { event.preventDefault(); act(); }
  }

  wheel(event) {
    event.preventDefault();
    if (event.ctrlKey) this.zoom(event.deltaY > 0 ? 1.25 : 0.8);
    else this.shift((event.deltaX || event.deltaY) / 1500);
  }

  hover(event) {
    const place = event.clientX - this.canvas.getBoundingClientRect().left;
    if (this.drag) { this.move(this.drag[1] - ((event.clientX - this.drag[0]) / this.width) * this.span); return; }
    this.at = place < LEFT ? null : this.from + ((place - LEFT) / this.width) * this.span;
    this.update();
  }

  x(at) { return LEFT + ((at - this.from) / this.span) * this.width; }

  update() {
    const { store } = this.app, nodes = Object.keys(store.live.nodes), outputs = Object.keys(store.fixed.outputs);
    this.from = this.shownEnd - this.span;
    const wide = this.pane.clientWidth - 28, tall = outputs.length * (PLOT + 26) + nodes.length * BAR + AXIS + 10;
    this.width = wide - LEFT - RIGHT;
    const scale = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(wide * scale) || this.canvas.height !== Math.round(tall * scale)) {
      Object.assign(this.canvas, { width: Math.round(wide * scale), height: Math.round(tall * scale) });
      this.canvas.style.height = `${tall}px`;
    }
    this.colors = Object.fromEntries(["ink", "faint", "line", "stable", "tentative", "corrected", "bad", "good", "idle"].map((name) => [name, color(name)]));
    const pen = this.pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, wide, tall);
    pen.font = "11px system-ui, sans-serif";
    let y = 14;
    for (const output of outputs) { this.drawOutput(output, y); y += PLOT + 26; }
    for (const node of nodes) { this.drawStates(node, y); y += BAR; }
    this.drawAxis(y);
    this.drawEvents(y);
    this.showSide();
    this.range.textContent = `${clock(this.from)} – ${clock(this.shownEnd)}${this.end === null ? ", live" : ""}`;
    this.follow.disabled = this.end === null;
  }

  inSight(bins) {
    // They are in the order of time: look only at those in sight.
    let low = 0, high = bins.length;
    while (low < high) { const middle = (low + high) >> 1; if (bins[middle][0] < this.from - 1) low = middle + 1; else high = middle; }
    let end = low;
    while (end < bins.length && bins[end][0] <= this.shownEnd) end += 1;
    return bins.slice(low, end);
  }

  drawOutput(output, top) {
    const { pen, colors } = this, { store } = this.app, bins = this.inSight(store.arrivals[output] || []);
    // X from the sources to this output: fragments share it.
    const limit = (store.fixed.output_delays || {})[output] ?? store.fixed.delay_s;
    // A few results that came very late must not flatten all others: they are on the upper edge.
    const delays = bins.map((bin) => bin[3]).sort((one, other) => one - other), latest = delays.at(-1) ?? 0;
    const most = Math.max(limit * 1.25, Math.min(latest, 2 * (delays[Math.floor(0.97 * (delays.length - 1))] ?? 0)));
    const bottom = top + PLOT, y = (delay) => bottom - Math.min(1, delay / most) * (PLOT - 20);
    pen.fillStyle = colors.ink;
    pen.textAlign = "start";
    pen.fillText(output, 0, top + 10);
    pen.fillStyle = colors.faint;
    pen.fillText("seconds after", 0, top + 26);
    pen.fillText("their time", 0, top + 40);
    pen.textAlign = "end";
    pen.fillText(`${latest > most ? "≥ " : ""}${most.toFixed(1)}`, LEFT - 6, y(most) + 4);
    pen.fillText("0", LEFT - 6, bottom);
    pen.strokeStyle = colors.line;
    pen.strokeRect(LEFT, top, this.width, PLOT);
    pen.setLineDash([4, 4]);
    pen.beginPath();
    pen.moveTo(LEFT, y(limit));
    pen.lineTo(LEFT + this.width, y(limit));
    pen.stroke();
    pen.setLineDash([]);
    pen.textAlign = "start";
    pen.fillText(`X = ${limit} s`, LEFT + 4, y(limit) - 3);
    pen.save();
    pen.beginPath();
    pen.rect(LEFT, top, this.width, PLOT);
    pen.clip();
    for (const kind of KINDS) {
      pen.fillStyle = pen.strokeStyle = colors[kind];
      for (const [second, what, , delay] of bins) if (what === kind) mark(pen, kind, this.x(second + 0.5), y(delay));
    }
    pen.restore();
    KINDS.forEach((kind, place) => {
      pen.fillStyle = pen.strokeStyle = colors[kind];
      mark(pen, kind, 8, top + 62 + place * 17);
      const count = bins.reduce((sum, bin) => sum + (bin[1] === kind ? bin[2] : 0), 0);
      pen.fillText(`${kind} ${number(count)}`, 18, top + 66 + place * 17);
    });
  }

  drawStates(node, top) {
    const { pen, colors } = this, kept = this.app.store.states[node] || [];
    pen.fillStyle = colors.ink;
    pen.textAlign = "start";
    pen.fillText(node, 0, top + 13, LEFT - 8);
    kept.forEach(([at, state], place) => {
      const end = place + 1 < kept.length ? kept[place + 1][0] : Math.min(this.app.store.now, this.shownEnd);
      if (end < this.from || at > this.shownEnd) return;
      const x0 = Math.max(LEFT, this.x(at)), x1 = Math.min(LEFT + this.width, this.x(end)), wide = Math.max(2, x1 - x0);
      pen.fillStyle = colors[STATES[state] || "idle"];
      pen.globalAlpha = state === "stable" || state === "serving" ? 0.35 : 0.85;
      pen.fillRect(x0, top + 2, wide, BAR - 5);
      pen.globalAlpha = 1;
      if (wide > 60) { pen.fillStyle = colors.ink; pen.fillText(state, x0 + 4, top + 13, wide - 6); }
    });
  }

  drawAxis(top) {
    const { pen, colors } = this, steps = [1, 2, 5, 10, 30, 60, 120, 300, 600];
    const step = steps.find((each) => (this.width / this.span) * each > 70) || 600;
    pen.fillStyle = colors.faint;
    pen.textAlign = "center";
    for (let at = Math.ceil(this.from / step) * step; at < this.shownEnd; at += step) pen.fillText(clock(at), this.x(at), top + 16);
  }

  drawEvents(bottom) {
    const { pen, colors } = this;
    for (const [at, , , level] of this.eventsInSight()) {
      if (level === "info" || at < this.from) continue;
      // What was done on purpose crosses everything; warnings are small marks above the axis.
      pen.strokeStyle = level === "control" ? colors.ink : colors.bad;
      pen.setLineDash(level === "control" ? [2, 3] : []);
      pen.beginPath();
      pen.moveTo(this.x(at), level === "control" ? 4 : bottom - 4);
      pen.lineTo(this.x(at), bottom);
      pen.stroke();
    }
    pen.setLineDash([]);
    if (this.at) { pen.strokeStyle = colors.faint; pen.strokeRect(this.x(this.at), 4, 0.5, bottom); }
  }

  eventsInSight() {
    return this.app.store.events.filter(([at]) => at >= this.from && at <= this.shownEnd).sort(([one], [other]) => one - other);
  }

  showSide() {
    const near = this.at ? ([at]) => Math.abs(at - this.at) < this.span / 40 : () => true;
    const events = this.eventsInSight().filter(near).slice(-40).reverse();
    const key = JSON.stringify(events);
    if (key !== this.listed) {
      this.listed = key;
      this.events.replaceChildren(...events.map(([at, node, text, level]) => make("li", { class: level === "error" ? "bad" : "" },
        make("span", { class: "faint" }, `${clock(at)} ${node} `), text)));
    }
    const why = new Map();
    for (const [output, bins] of Object.entries(this.app.store.arrivals)) {
      for (const [second, kind, count, , reasons] of this.inSight(bins)) {
        if (kind !== "tentative" || (this.at && Math.abs(second + 0.5 - this.at) > this.span / 40)) continue;
        for (const reason of reasons.length ? reasons : ["nobody said why"]) {
          const text = `${output}: ${reason}`;
          why.set(text, (why.get(text) || 0) + count);
        }
      }
    }
    const reasons = JSON.stringify([...why]);
    if (reasons === this.explained) return;
    this.explained = reasons;
    this.why.replaceChildren(...(why.size ? [...why].slice(0, 12).map(([text, count]) => make("p", {}, text, make("span", { class: "faint" }, ` (${number(count)} tuples)`)))
      : [make("p", { class: "faint" }, "nothing in sight was tentative")]));
  }
}

// Kinds differ in shape, too: a dot, a triangle, a ring.
function mark(pen, kind, x, y) {
  pen.beginPath();
  if (kind === "stable") { pen.arc(x, y, 2.6, 0, 7); pen.fill(); }
  else if (kind === "tentative") { pen.moveTo(x, y - 4.5); pen.lineTo(x + 4.5, y + 3.5); pen.lineTo(x - 4.5, y + 3.5); pen.fill(); }
  else { pen.arc(x, y, 3.4, 0, 7); pen.lineWidth = 1.6; pen.stroke(); pen.lineWidth = 1; }
}
