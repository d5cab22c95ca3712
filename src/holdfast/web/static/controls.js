// Failures on purpose, and what came of them.

import { clock, make, number, setText } from "./dom.js";

export class Controls {
  constructor(app, root) {
    this.app = app;
    this.list = make("ol", { class: "controls", "aria-label": "What was done" });
    this.forms = make("div");
    root.append(make("div", { class: "pane" }, make("h2", {}, "Make something fail"), this.forms), make("aside", { class: "side" }, make("h2", {}, "What it did"), this.list));
  }

  update() {
    const { store } = this.app;
    const key = JSON.stringify([Object.keys(store.live.processes), Object.keys(store.live.nodes), store.fixed.chaos]);
    if (key !== this.made) { this.made = key; this.makeForms(); }
    const controls = JSON.stringify(store.controls);
    if (controls === this.listed) return;
    this.listed = controls;
    this.list.replaceChildren(...[...store.controls].reverse().map(shown));
  }

  makeForms() {
    const { store } = this.app;
    if (!store.fixed.chaos) {
      this.forms.replaceChildren(make("p", {}, "This deployment is not to be made to fail on purpose. If it is, write chaos = true at the top of its file and start it again."));
      return;
    }
    const processes = choice("Process", Object.keys(store.live.processes)), nodes = Object.keys(store.live.nodes);
    const one = choice("From", nodes), other = choice("To", nodes), said = make("p", { role: "status" });
    if (nodes.length > 1) other.querySelector("select").value = nodes[nodes.length - 1];
    const links = () => ({ source: valueOf(one), target: valueOf(other) });
    this.forms.replaceChildren(
      make("div", { class: "row" }, processes, ...processButtons(this.app, () => valueOf(processes), said)),
      make("h2", {}, "Links"),
      make("div", { class: "row" }, one, other,
        button(this.app, "Cut", () => ({ action: "cut", ...links() }), said), button(this.app, "Cut one way", () => ({ action: "cut", one_way: true, ...links() }), said),
        button(this.app, "Heal", () => ({ action: "heal", ...links() }), said), button(this.app, "Heal every link", () => ({ action: "heal" }), said)),
      said);
  }
}

// For the details of one process: its controls, and the links to others.
export function controlForm(app, process) {
  const said = make("p", { role: "status" });
  const peers = Object.keys(app.store.live.nodes).filter((name) => name !== process);
  const other = choice("Link to", peers);
  const link = () => ({ source: process, target: valueOf(other) });
  return make("section", { "aria-label": `Controls of ${process}` }, make("h3", {}, "Make it fail"),
    make("div", { class: "row" }, ...processButtons(app, () => process, said)),
    make("div", { class: "row" }, other, button(app, "Cut", () => ({ action: "cut", ...link() }), said), button(app, "Heal", () => ({ action: "heal", ...link() }), said)), said);
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
      setText(said, (await app.session.post("/api/control", asked())).said);
      said.className = "";
    } catch (error) {
      setText(said, error.message);
      said.className = "bad";
    } finally { element.disabled = false; }
  } }, title);
  return element;
}

function choice(title, names) {
  return make("label", { class: "faint" }, `${title} `, make("select", {}, names.map((name) => make("option", { value: name }, name))));
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
