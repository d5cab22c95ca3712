// The query: operators by fragments, between sources and applications, with live numbers.

import { bytes, draw, facts, make, number, setClass, setText } from "./dom.js";
import { curve, layOut } from "./layout.js";

const CHARACTER = 6.6, LINE = 15, WRAP = 28;

export class Logical {
  constructor(app, root) {
    this.app = app;
    this.pane = make("div", { class: "pane" });
    this.side = make("aside", { class: "side", "aria-label": "Details" });
    root.append(this.pane, this.side);
    this.drawn = null;
  }

  update() {
    const { fixed } = this.app.store;
    const key = JSON.stringify([fixed.operators, fixed.outputs, fixed.clients, fixed.fragments]);
    if (key !== this.drawn) { this.drawn = key; this.drawAll(); }
    this.refresh();
  }

  drawAll() {
    const { store } = this.app;
    this.boxes = boxesOf(store.fixed);
    this.numbers = new Map();
    if (!this.boxes.length) {
      this.pane.replaceChildren(make("p", {}, "The plan does not tell the operators: an older version made it. Start the deployment anew to see them."));
      return;
    }
    const size = layOut(this.boxes);
    const named = new Map(this.boxes.map((box) => [box.name, box]));
    // A little too wide is made to fit; much too wide is scrolled.
    const room = this.pane.clientWidth - 28, share = size.width < 1.25 * room ? Math.min(1, room / size.width) : 1;
    const svg = draw("svg", { width: size.width * share, height: size.height * share, viewBox: `0 0 ${size.width} ${size.height}`, role: "group", "aria-label": "The query's operators" });
    for (const area of areas(this.boxes)) {
      svg.append(draw("rect", { class: "area", rx: 8, ...area.rect }));
      const label = draw("text", { class: "small", x: area.rect.x + 8, y: area.rect.y + 15 });
      this.numbers.set(`fragment ${area.name}`, label);
      svg.append(label);
    }
    this.edges = [];
    for (const box of this.boxes) for (const input of box.inputs) {
      if (!named.has(input)) continue;
      const path = draw("path", { class: "edge", d: curve(named.get(input), box) });
      this.edges.push([named.get(input), box, path]);
      svg.append(path);
    }
    for (const box of this.boxes) svg.append(this.drawBox(box));
    this.pane.replaceChildren(svg);
    if (!this.chosen || !named.has(this.chosen)) this.chosen = this.boxes[0].name;
    this.choose(this.chosen);
  }

  drawBox(box) {
    const group = draw("g", {
      class: `box ${box.kind}`, tabindex: 0, role: "button", transform: `translate(${box.x},${box.y})`,
      "aria-label": `${box.kind} ${box.title.join(" ")}`, "data-name": box.name,
      onclick: () => this.choose(box.name),
      onkeydown: (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); this.choose(box.name); } },
    }, draw("rect", { width: box.width, height: box.height, rx: 6 }));
    box.title.forEach((line, place) => group.append(draw("text", { x: 8, y: 17 + place * LINE }, line)));
    const live = draw("text", { class: "small", x: 8, y: 17 + box.title.length * LINE });
    this.numbers.set(box.name, live);
    group.append(live);
    box.group = group;
    return group;
  }

  choose(name) {
    this.chosen = name;
    for (const box of this.boxes) setClass(box.group, `box ${box.kind}${box.name === name ? " chosen" : ""}`);
    this.refresh();
  }

  refresh() {
    if (!this.boxes || !this.boxes.length) return;
    const { store } = this.app;
    const rates = ratesOf(store);
    for (const box of this.boxes) setText(this.numbers.get(box.name), shortly(box, store, rates));
    for (const [name, label] of this.numbers) {
      if (name.startsWith("fragment ")) setText(label, fragmentText(name.slice(9), store));
    }
    for (const [from, , path] of this.edges) {
      setClass(path, (rates.get(from.name) || 0) > 0 ? "edge flowing" : "edge");
    }
    const key = this.chosen + JSON.stringify(detailKey(this.boxes.find((box) => box.name === this.chosen), store));
    if (key !== this.detailed) { this.detailed = key; this.showDetails(rates); }
  }

  showDetails(rates) {
    const { store } = this.app, box = this.boxes.find((each) => each.name === this.chosen);
    if (!box) return;
    const parts = [make("h2", {}, box.operator ? `${box.operator.name}` : box.title[0])];
    if (box.operator) {
      const { operator } = box, sizes = stateSizes(operator, store);
      parts.push(facts([["kind", operator.kind], ["in another order", ORDER[operator.order]], ["fragment", operator.kind === "source" ? null : operator.fragment], ["reads", operator.inputs.join(", ")],
        ["windows", operator.window.length ? `${operator.window[0] / 1e6} s, every ${operator.window[1] / 1e6} s` : null],
        ...sizes.map(([replica, size]) => [`state on ${replica}`, `${number(size.rows)} rows, ${bytes(size.bytes)}${openText(operator, size, store.live.nodes[replica])}`]),
        ...latencies(operator, store)]));
      parts.push(make("h3", {}, "What it does"), make("pre", {}, operator.label));
      if (operator.says.length) parts.push(make("details", { open: this.opened, ontoggle: (event) => { this.opened = event.target.open; } }, make("summary", {}, "As Spark sees it"), make("pre", {}, operator.says.join("\n"))));
      parts.push(make("h3", {}, "Columns"), make("pre", {}, operator.columns.split(", ").join("\n")));
    }
    for (const node of box.nodes(store)) parts.push(make("h3", {}, node), facts(nodeFacts(store.live.nodes[node])));
    if (box.rate && rates.has(box.name)) parts.push(make("p", { class: "faint" }, `${number(rates.get(box.name))} tuples a second`));
    this.side.replaceChildren(...parts);
  }
}

export function nodeFacts(node) {
  if (!node) return [["state", "unknown"]];
  return [["state", node.copy ? `${node.state} (${node.copy}, term ${node.term})` : node.state], ["says", node.says],
    ["tuples", number(node.count)], ["a second", number(node.rate)],
    ["behind", node.behind_s === null || node.behind_s === undefined ? null : `${node.behind_s.toFixed(1)} s`],
    ["reads from", node.from || Object.entries(node.inputs || {}).map(([stream, each]) => `${stream} from ${each.from || "nobody"}`).join(", ")],
    ["utility", node.utility], ["log", node.log_bytes === undefined ? null : bytes(node.log_bytes)]];
}

function boxesOf(fixed) {
  const found = [];
  const add = (box) => {
    const lines = wrapped(box.label);
    found.push({ ...box, title: lines, height: (lines.length + 1) * LINE + 12,
      width: Math.max(box.kind === "output" ? 150 : 120, Math.min(WRAP + 2, Math.max(...lines.map((line) => line.length)) + 2) * CHARACTER + 16) });
  };
  for (const operator of fixed.operators) {
    const isSource = operator.kind === "source";
    add({ name: operator.name, kind: operator.kind, label: isSource ? operator.name : operator.label, inputs: operator.inputs,
      fragment: isSource ? "" : operator.fragment, operator,
      nodes: () => (isSource && fixed.sources[operator.name] ? [fixed.sources[operator.name].node] : []) });
  }
  for (const [output, operator] of Object.entries(fixed.outputs)) {
    if (!operator) continue;
    add({ name: `output ${output}`, kind: "output", label: output, inputs: [operator], fragment: "", output, rate: true,
      nodes: () => (fixed.fragments[(fixed.operators.find((each) => each.name === operator) || {}).fragment] || { replicas: [] }).replicas });
  }
  for (const [client, spec] of Object.entries(fixed.clients)) {
    add({ name: `application ${client}`, kind: "application", label: client, inputs: [`output ${spec.output}`], fragment: "", client,
      nodes: (store) => (store.live.nodes[client] ? [client] : []) });
  }
  return found;
}

function wrapped(text) {
  const lines = [""];
  for (const word of text.split(" ")) {
    const last = lines.length - 1;
    if (lines[last] && lines[last].length + word.length + 1 > WRAP) lines.push(word);
    else lines[last] += (lines[last] ? " " : "") + word;
  }
  const kept = lines.slice(0, 3).map((line) => (line.length > WRAP + 2 ? `${line.slice(0, WRAP + 1)}…` : line));
  if (lines.length > 3) kept[2] = `${kept[2].slice(0, WRAP - 1)} …`;
  return kept;
}

function areas(boxes) {
  const found = new Map();
  for (const box of boxes) {
    if (!box.fragment) continue;
    const area = found.get(box.fragment) || { left: Infinity, top: Infinity, right: 0, bottom: 0 };
    found.set(box.fragment, { left: Math.min(area.left, box.x), top: Math.min(area.top, box.y),
      right: Math.max(area.right, box.x + box.width), bottom: Math.max(area.bottom, box.y + box.height) });
  }
  return [...found].map(([name, area]) => ({ name, rect: { x: area.left - 10, y: area.top - 24,
    width: area.right - area.left + 20, height: area.bottom - area.top + 34 } }));
}

function ratesOf(store) {
  // What is known of streams: sources log them, and links carry them.
  const found = new Map();
  for (const [name, source] of Object.entries(store.fixed.sources)) {
    found.set(name, (store.live.nodes[source.node] || {}).rate || 0);
  }
  const streams = new Map();
  for (const [key, link] of Object.entries(store.live.links)) {
    const stream = key.split("\t")[2];
    streams.set(stream, Math.max(streams.get(stream) || 0, link.rate));
  }
  for (const output of Object.keys(store.fixed.outputs)) {
    found.set(`output ${output}`, streams.get(output) ?? recentRate(store, output));
  }
  return found;
}

function recentDelay(store, output) {
  const bins = store.arrivals[output] || [], end = Math.floor(store.now);
  let longest = null;
  for (let place = bins.length - 1; place >= 0 && bins[place][0] >= end - 5; place -= 1) longest = Math.max(longest ?? 0, bins[place][3]);
  return longest === null ? "" : ` · ${longest.toFixed(1)} s late`;
}

function recentRate(store, output) {
  const bins = store.arrivals[output] || [], end = Math.floor(store.now);
  let count = 0;
  for (let place = bins.length - 1; place >= 0 && bins[place][0] >= end - 5; place -= 1) {
    if (bins[place][0] < end && bins[place][1] !== "tentative") count += bins[place][2];
  }
  return Math.round((count / 5) * 10) / 10;
}

function stateSizes(operator, store) {
  if (operator.kind !== "stateful") return [];
  const replicas = (store.fixed.fragments[operator.fragment] || { replicas: [] }).replicas;
  // An operator that a replica does not list has no state at the moment: its windows are closed.
  return replicas.map((name) => [name, (store.live.nodes[name] || {}).operators])
    .filter(([, sizes]) => sizes).map(([name, sizes]) => [name, sizes[operator.name] || { rows: 0, bytes: 0 }]);
}

const ORDER = { any: "the same", depends: "something else: it takes tuples in stream order" };

// A fragment's operators run as one job: what one gives is as late as what the fragment gives, and
// a window waits for its end besides, which its tuples' time says already.
function latencies(operator, store) {
  const replicas = operator.kind === "source" ? [] : (store.fixed.fragments[operator.fragment] || { replicas: [] }).replicas;
  return replicas.map((name) => [name, (store.live.nodes[name] || {}).behind_s]).filter(([, late]) => late !== null && late !== undefined)
    .map(([name, late]) => [`latency on ${name}`, `${late.toFixed(1)} s, with its fragment`]);
}

// Rows lie by the starts of their windows; those that the boundary has passed are closed.
function openWindows(operator, size, node) {
  const [length, advance] = operator.window;
  if (!length || size.high === undefined || !node || !node.boundary) return null;
  const first = (Math.floor((node.boundary - length) / advance) + 1) * advance;
  return Math.max(0, Math.floor((size.high - Math.max(size.low, first)) / advance) + 1);
}

function openText(operator, size, node) {
  const open = openWindows(operator, size, node);
  return open === null ? "" : `, open windows: ${number(open)}`;
}

function shortly(box, store, rates) {
  if (box.kind === "stateful") {
    const sizes = stateSizes(box.operator, store);
    if (!sizes.length) return "";
    const open = sizes.map(([name, size]) => openWindows(box.operator, size, store.live.nodes[name])).filter((each) => each !== null);
    return `${number(Math.max(...sizes.map(([, size]) => size.rows)))} rows${open.length ? `, windows: ${Math.max(...open)}` : " of state"}`;
  }
  if (box.kind === "output") return `${number(rates.get(box.name) || 0)} tuples/s${recentDelay(store, box.output)}`;
  if (box.kind === "source") return `${number(rates.get(box.name) || 0)} tuples/s`;
  if (box.kind === "application") return (store.live.nodes[box.client] || { state: "outside" }).state;
  return "";
}

function fragmentText(name, store) {
  const spec = store.fixed.fragments[name];
  if (!spec) return `fragment ${name}`;
  const states = spec.replicas.map((each) => {
    const node = store.live.nodes[each] || {};
    const behind = node.behind_s === null || node.behind_s === undefined ? "" : ` ${node.behind_s.toFixed(1)} s behind`;
    return `${each}: ${node.state || "unknown"}${behind}`;
  });
  return `fragment ${name} · ${spec.protection} · ${states.join(" · ")}`;
}

function detailKey(box, store) {
  if (!box) return null;
  return [box.nodes(store).map((name) => store.live.nodes[name]), box.operator ? stateSizes(box.operator, store) : null];
}
