// Another network or other knobs: written, built by the server, looked at, submitted.

import { make, setText } from "./dom.js";

const LINE = 13 * 1.45; // as style.css has it

export class Edit {
  constructor(app, root) {
    this.app = app;
    this.numbers = make("div", { class: "numbers", "aria-hidden": "true" });
    this.text = make("textarea", { spellcheck: "false", autocapitalize: "off", "aria-label": "The network's source",
      oninput: () => this.changed(), onscroll: () => { this.numbers.scrollTop = this.text.scrollTop; this.placeMistake(); } });
    this.mistake = make("div", { class: "mistake", hidden: true });
    this.said = make("p", { role: "status" });
    this.preview = make("ul");
    this.check = make("button", { type: "button", onclick: () => this.build() }, "See what changes");
    this.submit = make("button", { type: "button", disabled: true, onclick: () => this.send() }, "Submit");
    this.again = make("button", { type: "button", onclick: () => { this.app.draft = null; this.load(); }, title: "as it is in the deployment" }, "Start over");
    this.knobs = make("div");
    this.title = make("h2", {}, "Network");
    root.append(make("div", { class: "editor" },
      make("div", { class: "column" }, this.title, make("div", { class: "source" }, this.numbers, this.text, this.mistake)),
      make("aside", { class: "side" }, make("div", { class: "row" }, this.check, this.submit, this.again), this.said, this.preview, make("h2", {}, "Knobs"), this.knobs)));
    this.load();
  }

  update() {}

  async load() {
    const answer = await fetch(this.app.path("/api/edit")), found = await answer.json();
    if (!answer.ok) { setText(this.said, found.said); this.check.disabled = true; return; }
    this.before = found;
    setText(this.title, found.file);
    // What was written before somebody looked at another view is still there.
    const draft = this.app.draft || { network: found.network, knobs: {} };
    this.text.value = draft.network ?? found.network;
    const tables = new Map();
    for (const knob of found.knobs) {
      if (!tables.has(knob.table)) tables.set(knob.table, []);
      const input = knob.choices ? make("select", { onchange: () => this.changed() }, knob.choices.map((each) => make("option", { value: each }, each)))
        : make("input", { oninput: () => this.changed(), ...(isNumber(knob.value) ? { type: "number", min: knob.value === null ? 0 : 1, placeholder: knob.value === null ? "not set" : null } : {}) });
      input.value = (knob.name in draft.knobs ? draft.knobs[knob.name] : knob.value) ?? "";
      input.dataset.name = knob.name;
      tables.get(knob.table).push(make("label", { class: "knob" }, { delay: "X, delay", listen: "place", network_cost: "θ, network cost" }[knob.key] || knob.key.replaceAll("_", " "), input));
    }
    this.knobs.replaceChildren(...[...tables].map(([table, inputs]) => make("fieldset", {}, make("legend", {}, table), ...inputs)));
    this.changed();
  }

  asked() {
    const knobs = {};
    for (const input of this.knobs.querySelectorAll("[data-name]")) {
      const before = this.before.knobs.find((knob) => knob.name === input.dataset.name).value;
      const value = !isNumber(before) ? input.value : input.value === "" ? null : Number(input.value);
      if (value !== before) knobs[input.dataset.name] = value;
    }
    return { network: this.text.value, knobs };
  }

  changed(wrong = null, why = "") {
    this.submit.disabled = true;
    this.wrong = wrong;
    setText(this.mistake, why);
    const asked = this.asked();
    this.app.draft = asked.network === this.before.network && !Object.keys(asked.knobs).length ? null : asked;
    const count = this.text.value.split("\n").length;
    this.numbers.replaceChildren(...Array.from({ length: count }, (_, place) => (place + 1 === wrong ? make("span", { class: "wrong" }, `${place + 1}`) : `${place + 1}\n`)));
    this.numbers.scrollTop = this.text.scrollTop;
    this.placeMistake();
  }

  // Beside the line, behind its end; what is scrolled out of sight has none.
  placeMistake() {
    const line = this.wrong && this.text.value.split("\n")[this.wrong - 1], top = 8 + (this.wrong - 1) * LINE - this.text.scrollTop;
    this.mistake.hidden = typeof line !== "string" || top < 0 || top > this.text.clientHeight - LINE;
    if (this.mistake.hidden) return;
    Object.assign(this.mistake.style, { top: `${top}px`, left: `calc(${this.numbers.offsetWidth + 8 - this.text.scrollLeft}px + ${line.length + 3}ch)` });
  }

  async build() {
    this.check.disabled = true;
    this.preview.replaceChildren();
    this.say("it is being built; Spark takes a few seconds");
    try {
      const asked = this.asked(), found = await this.app.session.post(this.app.path("/api/edit/check"), asked);
      if (found.problem) {
        const { line, text, where } = found.problem;
        this.changed(line, text);
        this.say(`${line ? `line ${line}: ` : ""}${where === "state" ? "it cannot go on from what is kept: " : ""}${text}`, true);
        if (line) this.goTo(line);
      } else {
        this.checked = { ...asked, digest: found.digest };
        this.preview.replaceChildren(...found.changes.map((change) => make("li", {}, change)));
        this.say(found.changes.length ? "this would change:" : "nothing would change");
        this.submit.disabled = !found.changes.length;
      }
    } catch (error) { this.say(error.message, true); }
    this.check.disabled = false;
  }

  goTo(line) {
    const lines = this.text.value.split("\n"), start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    this.text.focus();
    this.text.setSelectionRange(start, start + (lines[line - 1] || "").length);
  }

  async send() {
    this.submit.disabled = true;
    try {
      this.say((await this.app.session.post(this.app.path("/api/edit/submit"), this.checked)).said);
      this.app.draft = null;
    } catch (error) { this.say(error.message, true); }
  }

  say(text, wrong = false) {
    setText(this.said, text);
    this.said.className = wrong ? "bad" : "";
  }
}

// null: a number that is not set.
function isNumber(value) { return value === null || typeof value === "number"; }
