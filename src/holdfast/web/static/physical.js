// The machines: servers with their processes, what these use, and the links between them.
//
// Places are computed, not laid out by the browser, and only what is in sight has elements: a
// thousand servers cost what a screenful does.

import { bytes, color, facts, make, number, setClass, setText } from "./dom.js";
import { nodeFacts } from "./logical.js";
import { controlForm } from "./controls.js";
import { drawGround, kindOf, spread } from "./map.js";

const LEADING = 60, WIDTH = 236, HEAD = 30, PROCESS = 48, GAP = 36, MARGIN = 6;

export class Physical {
  constructor(app, root) {
    this.app = app;
    this.filter = make("input", { type: "search", placeholder: "filter by name or state", "aria-label": "Filter servers and processes", oninput: () => this.update() });
    this.map = make("div", { class: "map" });
    this.canvas = make("canvas", { "aria-hidden": "true" });
    this.map.append(this.canvas);
    this.pane = make("div", { class: "pane", onscroll: () => this.drawSight() }, make("div", { class: "row" }, this.filter, make("span", { class: "faint" }, "solid: tuples flow, faint: could be read, dashed red: cut; u: utility")), this.map);
    this.side = make("aside", { class: "side", "aria-label": "Details" });
    root.append(this.pane, this.side);
    this.cards = new Map();
    this.onResize = () => this.update();
    window.addEventListener("resize", this.onResize);
  }

  close() { window.removeEventListener("resize", this.onResize); }

  update() {
    this.placeServers();
    this.drawSight();
    this.showDetails();
  }

  placeServers() {
    const { live } = this.app.store, wanted = this.filter.value.trim().toLowerCase();
    const processes = new Map(Object.keys(live.servers).map((name) => [name, []]));
    for (const [name, process] of Object.entries(live.processes)) {
      if (!wanted || `${name} ${process.server} ${process.nodes.map((node) => (live.nodes[node] || {}).state || "").join(" ")}`.toLowerCase().includes(wanted)) {
        if (!processes.has(process.server)) processes.set(process.server, []);
        processes.get(process.server).push(name);
      }
    }
    const columns = Math.max(1, Math.floor((this.pane.clientWidth - 40) / (WIDTH + GAP)));
    const servers = [...processes].filter(([, hosted]) => hosted.length || !wanted);
    // One machine alone: its processes side by side, by what they do.
    this.places = servers.length === 1 ? this.spread(servers[0]) : this.grid(servers, columns);
    this.kind = servers.length > 1 && !wanted ? kindOf(live.servers) : null;
    // There is more to see of a map when those that run nothing are small.
    if (this.kind) for (const place of this.places) if (!place.processes.length) Object.assign(place, { height: HEAD + 2, width: 150 });
    if (this.kind) this.ground = this.settled(() => spread(this.places, live.servers, this.kind, this.pane.clientWidth - 40, this.pane.clientHeight - 90));
    let height = 0, width = 0;
    this.spots = new Map();
    for (const place of this.places) {
      height = Math.max(height, place.y + place.height);
      width = Math.max(width, place.x + place.width);
      for (const spot of place.processes) {
        for (const node of live.processes[spot.name].nodes) {
          this.spots.set(node, { x: place.x + spot.x, y: place.y + spot.y, width: spot.width });
        }
      }
    }
    const size = `${width + MARGIN}px`, tall = `${height + MARGIN}px`;
    if (this.map.style.height !== tall) this.map.style.height = tall;
    if (this.map.style.width !== size) this.map.style.width = size;
  }

  // Pushing cards apart takes long with many: only when one has come, gone, grown or moved.
  settled(layOut) {
    const { servers } = this.app.store.live;
    const key = JSON.stringify([this.pane.clientWidth, this.pane.clientHeight, this.places.map((place) => [place.name, place.height, servers[place.name].at, servers[place.name].plane])]);
    if (key !== this.settledKey) {
      this.settledKey = key;
      this.kept = { ground: layOut(), places: new Map(this.places.map(({ name, x, y, pin }) => [name, { x, y, pin }])) };
    } else for (const place of this.places) Object.assign(place, this.kept.places.get(place.name));
    return this.kept.ground;
  }

  grid(servers, columns) {
    let x = 0, y = MARGIN, tallest = 0;
    return servers.map(([name, hosted], index) => {
      if (index && index % columns === 0) { y += tallest + GAP; tallest = 0; }
      x = (index % columns) * (WIDTH + GAP) + MARGIN;
      const height = HEAD + Math.max(1, hosted.length) * PROCESS + 6;
      tallest = Math.max(tallest, height);
      return { name, x, y, width: WIDTH, height, processes: hosted.map((process, place) => ({ name: process, x: 8, y: HEAD + place * PROCESS, width: WIDTH - 18 })) };
    });
  }

  spread([name, hosted]) {
    const { live } = this.app.store;
    const columnOf = { entry: 0, replica: 1, client: 2 }, counts = [0, 0, 0], width = 220, gap = 110;
    const processes = hosted.map((process) => {
      const node = live.nodes[live.processes[process].nodes[0]] || {};
      const column = columnOf[node.kind] ?? 1;
      counts[column] += 1;
      return { name: process, x: 10 + column * (width + gap), y: HEAD + (counts[column] - 1) * (PROCESS + 40) + 8, width };
    });
    return [{ name, x: MARGIN, y: MARGIN, width: 3 * width + 2 * gap + 24, height: HEAD + Math.max(...counts) * (PROCESS + 40) + 8, processes }];
  }

  drawSight() {
    if (!this.places) return;
    const top = this.pane.scrollTop - this.map.offsetTop - 200, bottom = top + this.pane.clientHeight + 400;
    const seen = new Set();
    for (const place of this.places) {
      if (place.y + place.height < top || place.y > bottom) continue;
      seen.add(place.name);
      this.drawServer(place);
    }
    for (const [name, card] of this.cards) if (!seen.has(name)) { card.element.remove(); this.cards.delete(name); }
    this.drawLinks(top, bottom);
  }

  drawServer(place) {
    const { live } = this.app.store;
    let card = this.cards.get(place.name);
    if (!card) {
      card = { title: make("h3"), processes: new Map() };
      card.element = make("section", { class: "server", "aria-label": `Server ${place.name || "this machine"}`,
        ondragover: (event) => { if (this.dragged) event.preventDefault(); }, ondrop: (event) => { event.preventDefault(); this.drop(place.name); } }, card.title);
      this.cards.set(place.name, card);
      this.map.append(card.element);
    }
    const box = `translate(${place.x}px,${place.y}px)`;
    if (card.box !== `${box}${place.width}${place.height}`) {
      card.box = `${box}${place.width}${place.height}`;
      Object.assign(card.element.style, { transform: box, width: `${place.width}px`, height: `${place.height}px` });
    }
    const server = live.servers[place.name] || {};
    const used = place.processes.map((spot) => live.processes[spot.name]);
    const cpu = used.reduce((sum, each) => sum + (each.cpu || 0), 0), memory = used.reduce((sum, each) => sum + (each.memory_bytes || 0), 0);
    const uses = used.length ? ` · ${Math.round(cpu * 100)} % CPU · ${bytes(memory)}` : "";
    setText(card.title, `${place.name || server.host || ""}${serverState(server)}${uses}${place.name ? ` · ${server.host || ""}` : ""}${serverText(server)}`);
    if (card.title.title !== card.title.textContent) card.title.title = card.title.textContent;
    setClass(card.element, `server${server.there === false ? " lost" : ""}${place.processes.length ? "" : " empty"}`);
    const names = new Set(place.processes.map((spot) => spot.name));
    for (const [name, one] of card.processes) if (!names.has(name)) { one.element.remove(); card.processes.delete(name); }
    for (const spot of place.processes) this.drawProcess(card, spot);
  }

  drawProcess(card, spot) {
    const { live } = this.app.store, process = live.processes[spot.name];
    let one = card.processes.get(spot.name);
    if (!one) {
      one = { title: make("span"), said: make("small") };
      one.element = make("button", { type: "button", onclick: () => this.choose(spot.name), "data-process": spot.name,
        ondragstart: () => { this.dragged = spot.name; }, ondragend: () => { this.dragged = null; } }, one.title, one.said);
      card.processes.set(spot.name, one);
      card.element.append(one.element);
    }
    const box = `${spot.x},${spot.y},${spot.width}`;
    if (one.box !== box) {
      one.box = box;
      Object.assign(one.element.style, { position: "absolute", left: `${spot.x}px`, top: `${spot.y}px`, width: `${spot.width}px` });
    }
    const nodes = process.nodes.map((name) => live.nodes[name] || {});
    const draggable = String(this.canPlace() && ["entry", "client"].includes(nodes[0].kind));
    if (one.element.getAttribute("draggable") !== draggable) one.element.setAttribute("draggable", draggable);
    const state = nodes.map((node) => node.state || "unknown").sort((one, other) => worse(other) - worse(one))[0] || "unknown";
    setClass(one.element, `process state-${state.replaceAll(" ", "-")}${this.chosen === spot.name ? " chosen" : ""}`);
    setText(one.title, `${spot.name} · ${state}`);
    const behind = nodes.map((node) => node.behind_s).filter((each) => each !== null && each !== undefined);
    setText(one.said, [process.pid ? null : "no process", process.cpu === null ? null : `${Math.round(process.cpu * 100)} %`,
      process.memory_bytes ? bytes(process.memory_bytes) : null, behind.length ? `${Math.max(...behind).toFixed(1)} s late` : null,
      nodes[0].utility === undefined ? null : `u ${nodes[0].utility.toFixed(2)}`,
      process.restarts ? `${process.restarts} restarts` : null].filter(Boolean).join(" · "));
  }

  drawLinks(top, bottom) {
    // The canvas covers what is in sight, not the whole map.
    const { live } = this.app.store, from = Math.max(0, top), height = Math.max(1, Math.min(bottom, this.map.clientHeight) - from);
    const scale = window.devicePixelRatio || 1, width = this.map.clientWidth;
    const size = `${width},${height},${scale}`;
    if (this.canvasSize !== size) {
      this.canvasSize = size;
      Object.assign(this.canvas, { width: width * scale, height: height * scale });
      Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
    }
    this.canvas.style.top = `${from}px`;
    const pen = this.canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, -from * scale);
    pen.clearRect(0, from, width, height);
    if (this.kind) { drawGround(pen, this.ground, this.kind, width, from, height); this.drawPins(pen, top, bottom); }
    const line = color("accent"), bad = color("bad"), ink = color("faint"), idle = color("line");
    pen.font = "11px system-ui, sans-serif";
    const inSight = (spot) => spot.y + PROCESS >= top && spot.y <= bottom;
    let leading = 0; // out of sight: too many of these tell nothing
    for (const [key, link] of Object.entries(live.links)) {
      const [sender, reader, stream] = key.split("\t"), one = this.spots.get(sender), other = this.spots.get(reader);
      if (!one || !other) continue;
      const both = inSight(one) && inSight(other);
      if (!both && ((!inSight(one) && !inSight(other)) || (leading += 1) > LEADING)) continue;
      const right = one.x < other.x, down = one.x === other.x;
      const x0 = down ? one.x + one.width - 30 : right ? one.x + one.width : one.x, y0 = one.y + (down ? 44 : 22);
      const x1 = down ? other.x + other.width - 30 : right ? other.x : other.x + other.width, y1 = other.y + (down ? 0 : 22);
      pen.strokeStyle = link.cut ? bad : link.rate > 0 ? line : idle;
      pen.globalAlpha = link.unused && !link.cut ? 0.45 : 1;
      pen.lineWidth = link.rate > 0 ? Math.min(6, 1 + Math.log10(1 + link.rate) / 1.5) : 1;
      pen.setLineDash(link.cut ? [6, 5] : link.unused ? [2, 4] : []);
      pen.beginPath();
      pen.moveTo(x0, y0);
      pen.bezierCurveTo((x0 + x1) / 2, y0, (x0 + x1) / 2, y1, x1, y1);
      pen.stroke();
      if (both && stream && (link.rate > 0 || link.cut || link.collected)) {
        pen.fillStyle = ink;
        pen.textAlign = "center";
        // Early on the curve, where lines of one sender have parted and those of others not yet met,
        // and not below the card that it starts from.
        const text = link.cut ? `${stream} cut` : linkText(stream, link), half = pen.measureText(text).width / 2 + 4, early = x0 + 0.32 * (x1 - x0);
        pen.fillText(text, down ? early : right ? Math.max(early, x0 + half) : Math.min(early, x0 - half), y0 + 0.24 * (y1 - y0) - 5);
      }
    }
    pen.setLineDash([]);
    pen.globalAlpha = 1;
  }

  // Where a server really is, when its card had to make room.
  drawPins(pen, top, bottom) {
    pen.fillStyle = pen.strokeStyle = color("faint");
    for (const { pin, x, y } of this.places) {
      if (!pin || pin.y < top || pin.y > bottom || Math.hypot(pin.x - x - 12, pin.y - y - 12) < 4) continue;
      pen.beginPath();
      pen.arc(pin.x, pin.y, 4, 0, 7);
      pen.fill();
      pen.beginPath();
      pen.moveTo(pin.x, pin.y);
      pen.lineTo(x + 12, y + 12);
      pen.stroke();
    }
  }

  // Sources and applications of a submission have places, which are chosen by hand.
  canPlace() {
    const { cluster } = this.app.store.general;
    return Boolean(this.app.session.edit && cluster && cluster.submitted);
  }

  drop(server) {
    const { live } = this.app.store, process = live.processes[this.dragged], node = process && live.nodes[process.nodes[0]];
    this.dragged = null;
    if (!node || process.server === server || !server) return;
    const knob = node.kind === "entry" ? `sources.${node.of}.listen` : `clients.${process.nodes[0]}.listen`;
    const { draft } = this.app;
    this.app.draft = { network: draft ? draft.network : null, knobs: { ...(draft ? draft.knobs : {}), [knob]: server } };
    location.hash = "edit";
  }

  choose(name) {
    this.chosen = name;
    this.update();
  }

  showDetails() {
    const { live } = this.app.store, name = this.chosen, process = live.processes[name];
    const key = JSON.stringify([name, process, process && process.nodes.map((node) => live.nodes[node])]);
    if (key === this.detailed) return;
    this.detailed = key;
    if (!process) { this.side.replaceChildren(make("p", { class: "faint" }, "Choose a process to see what it says.")); return; }
    if (this.formFor !== name) {
      this.formFor = name;
      this.form = this.app.session.operate ? controlForm(this.app, name) : null;
    }
    const parts = [make("h2", {}, name), facts([["server", process.server || "this machine"], ["pid", process.pid], ["restarts", process.restarts],
      ["CPU", process.cpu === null ? null : `${Math.round(process.cpu * 100)} % of a core`], ["memory", bytes(process.memory_bytes)], ["problem", process.problem]])];
    for (const node of process.nodes) parts.push(make("h3", {}, node), facts(nodeFacts(live.nodes[node])));
    if (!this.details) { this.details = make("div"); this.side.replaceChildren(this.details); }
    this.details.replaceChildren(...parts);
    // The form stays as it is while numbers above it change: somebody may be typing.
    if (this.form && this.form.parentNode !== this.side) this.side.replaceChildren(this.details, this.form);
    else if (!this.form || !this.details.parentNode) this.side.replaceChildren(this.details, ...(this.form ? [this.form] : []));
  }
}

function serverState(server) {
  if (server.there === false) return ` · no answer${server.silent_s === null ? "" : ` for ${server.silent_s} s`}`;
  return `${server.coordinates ? " · coordinates" : ""}${server.spare ? " · spare" : ""}`;
}

// What a cluster says of a server: where it belongs, and how much of it is in use by whomever.
function serverText(server) {
  if (!server.there) return "";
  return `${server.zone ? ` · ${server.zone}` : ""} · in use ${Math.round(server.cpu * 100)} % CPU, ${Math.round(server.memory * 100)} % memory`;
}

function linkText(stream, link) {
  if (link.collected) return `${stream} collected`;
  const late = link.behind_s === null || link.behind_s === undefined ? "" : ` ${link.behind_s.toFixed(1)} s`;
  const share = link.share === null || link.share === undefined ? "" : ` ${Math.round(100 * link.share)} %`;
  return `${stream} ${number(link.rate)}/s${late}${share}`;
}

function worse(state) {
  return ["gone", "paused", "slow", "recovering", "up_failure", "stabilization", "tentative"].includes(state) ? 1 : 0;
}
