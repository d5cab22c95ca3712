// Replicas added, moved and removed; failures on purpose; and what came of them.

import { clock, make, number, setText } from "./dom.js";

export class Controls {
  constructor(app, root) {
    this.app = app;
    this.list = make("ol", { class: "controls", "aria-label": "What was done" });
    this.forms = make("div");
    this.said = make("p", { role: "status" });
    root.append(make("div", { class: "pane" }, this.forms, this.said), make("aside", { class: "side" }, make("h2", {}, "What it did"), this.list));
  }

  update() {
    const { store } = this.app;
    const key = JSON.stringify([Object.keys(store.live.processes), Object.keys(store.live.nodes), Object.keys(store.live.servers), Object.keys(store.fixed.fragments), store.fixed.chaos, isSubmitted(this.app)]);
    if (key !== this.made) { this.made = key; this.makeForms(); }
    const controls = JSON.stringify(store.controls);
    if (controls === this.listed) return;
    this.listed = controls;
    this.list.replaceChildren(...[...store.controls].reverse().map(shown));
  }

  makeForms() {
    const { store } = this.app;
    this.forms.replaceChildren(...replicaForms(this.app, this.said), ...this.failureForms(store, this.said));
  }

  failureForms(store, said) {
    if (!store.fixed.chaos) {
      return [make("p", { class: "faint" }, "This deployment is not to be made to fail on purpose. If it is, write chaos = true at the top of its file and start it again.")];
    }
    const processes = choice("Process", Object.keys(store.live.processes)), nodes = Object.keys(store.live.nodes);
    const one = choice("From", nodes), other = choice("To", nodes);
    if (nodes.length > 1) other.querySelector("select").value = nodes[nodes.length - 1];
    const links = () => ({ source: valueOf(one), target: valueOf(other) });
    return [
      make("h2", {}, "Processes"),
      make("div", { class: "row" }, processes, ...processButtons(this.app, () => valueOf(processes), said)),
      make("h2", {}, "Links"),
      make("div", { class: "row" }, one, other,
        button(this.app, "Cut", () => ({ action: "cut", ...links() }), said), button(this.app, "Cut one way", () => ({ action: "cut", one_way: true, ...links() }), said),
        button(this.app, "Heal", () => ({ action: "heal", ...links() }), said), button(this.app, "Heal every link", () => ({ action: "heal" }), said)),
    ];
  }
}

function replicaForms(app, said) {
  const { store } = app, fragments = choice("Fragment", Object.keys(store.fixed.fragments)), place = choice("Place", placesOf(app));
  const replicas = choice("Replica", Object.keys(store.live.nodes).filter((name) => store.live.nodes[name].kind === "replica"));
  return [make("h2", {}, "Replicas"),
    make("div", { class: "row" }, fragments, place, button(app, "Add", () => ({ action: "add", fragment: valueOf(fragments), place: valueOf(place) }), said)),
    make("div", { class: "row" }, replicas, button(app, "Move to the place", () => ({ action: "move", replica: valueOf(replicas), place: valueOf(place) }), said),
      button(app, "Remove", () => ({ action: "remove", replica: valueOf(replicas) }), said)),
    ...(isSubmitted(app) ? collectionForms(app, said) : [])];
}

// What is useless to everybody who reads it goes; a cluster knows what each is worth.
function collectionForms(app, said) {
  const { cost } = app.store.general.cluster;
  const theta = make("input", { name: "cost", type: "number", min: 0, value: cost === null || cost === undefined ? 0 : Math.round(cost / 2) });
  const least = make("input", { name: "least", type: "number", min: 1, value: 1 });
  return [make("h2", {}, "Collection"),
    make("div", { class: "row" }, make("label", { class: "faint" }, "until all streams cost at most ", theta), make("label", { class: "faint" }, "replicas that stay ", least),
      button(app, "Collect now", () => ({ action: "collect", cost: Number(theta.value), least: Number(least.value) }), said)),
    make("p", { class: "faint" }, "A cost is tuples a second × milliseconds under way. Feeds and replicas of racing fragments are collected, the least useful first.")];
}

function isSubmitted(app) {
  const { cluster } = app.store.general;
  return Boolean(cluster && cluster.submitted);
}

// Where a replica may be: servers, and the machine the deployment was started on or, in a cluster,
// wherever its streams cost least.
function placesOf(app) {
  const names = Object.keys(app.store.live.servers).filter(Boolean).map((name) => [name, name]);
  return isSubmitted(app) ? [["", "where it costs least"], ...names] : [...names, ["127.0.0.1", "this machine"]];
}

// For the details of one process: its controls, and the links to others.
export function controlForm(app, process) {
  const said = make("p", { role: "status" });
  const replicas = app.store.live.processes[process].nodes.filter((name) => (app.store.live.nodes[name] || {}).kind === "replica");
  const parts = replicas.map((name) => memberForm(app, name, said));
  if (app.store.fixed.chaos) parts.push(failureForm(app, process, said));
  return make("div", {}, ...parts, said);
}

function memberForm(app, replica, said) {
  const place = choice("To", placesOf(app).filter(([name]) => name));
  return make("section", { "aria-label": `The replica ${replica}` }, make("h3", {}, `Replica ${replica}`),
    make("div", { class: "row" }, place, button(app, "Move", () => ({ action: "move", replica, place: valueOf(place) }), said),
      button(app, "Remove", () => ({ action: "remove", replica }), said)));
}

function failureForm(app, process, said) {
  const peers = Object.keys(app.store.live.nodes).filter((name) => name !== process);
  const other = choice("Link", peers);
  const link = () => ({ source: process, target: valueOf(other) });
  return make("section", { "aria-label": `Controls of ${process}` }, make("h3", {}, "Make it fail"),
    make("div", { class: "row" }, ...processButtons(app, () => process, said)),
    make("div", { class: "row" }, other, button(app, "Cut", () => ({ action: "cut", ...link() }), said), button(app, "Heal", () => ({ action: "heal", ...link() }), said)));
}

function processButtons(app, process, said) {
  const slowly = { seconds: 10, share: 0.1 };
  return [["Kill", "kill"], ["Kill its JVM", "kill-jvm"], ["Pause", "pause"], ["Resume", "resume"], ["Slow for 10 s", "slow", slowly]].map(
    ([title, action, more]) => button(app, title, () => ({ action, process: process(), ...more }), said));
}

function button(app, title, asked, said) {
  const element = make("button", { type: "button", onclick: async () => {
    element.disabled = true;
    try {
      setText(said, (await app.session.post(app.path("/api/control"), asked())).said);
      said.className = "";
    } catch (error) {
      setText(said, error.message);
      said.className = "bad";
    } finally { element.disabled = false; }
  } }, title);
  return element;
}

function choice(title, names) {
  return make("label", { class: "faint" }, `${title} `, make("select", { name: title.toLowerCase() }, names.map((name) => {
    const [value, text] = Array.isArray(name) ? name : [name, name];
    return make("option", { value }, text);
  })));
}

function valueOf(label) { return label.querySelector("select").value; }

function shown(control) {
  const seconds = control.until - control.at;
  const parts = [make("strong", {}, control.text), make("div", { class: control.failed ? "bad" : "faint" }, `${clock(control.at)}, ${control.by}: ${control.said}`)];
  if (!control.failed) {
    parts.push(make("div", {}, `in the ${Math.round(seconds)} s after: ${number(control.stable)} stable, ${number(control.tentative)} tentative, ${number(control.corrected)} corrected; the longest wait ${control.longest_s} s`));
    for (const [node, after, state] of control.states) parts.push(make("div", { class: "faint" }, `${after.toFixed(1)} s: ${node} is ${state}`));
  }
  return make("li", {}, ...parts);
}
