// An output as it stands: stable rows, tentative ones in another colour, corrections as they come.

import { clock, make, number, setClass, setText } from "./dom.js";

const SHOWN = 100;

export class Results {
  constructor(app, root) {
    this.app = app;
    this.choice = make("select", { "aria-label": "Output", onchange: () => { this.version = this.columns = null; this.update(); } });
    this.said = make("span", { class: "faint", role: "status" });
    this.head = make("tr");
    this.body = make("tbody");
    this.pane = make("div", { class: "pane" }, make("div", { class: "row" }, make("label", {}, "Output ", this.choice), this.said),
      make("table", {}, make("thead", {}, this.head), this.body));
    root.append(this.pane);
    this.rows = new Map();
  }

  update() {
    const { store } = this.app, names = Object.keys(store.fixed.outputs);
    if (this.names !== names.join()) {
      this.names = names.join();
      const before = this.choice.value;
      this.choice.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
      if (names.includes(before)) this.choice.value = before;
    }
    const result = store.results[this.choice.value];
    if (!result) { setText(this.said, "nothing has come yet"); return; }
    const version = `${this.choice.value} ${result.version}`;
    if (this.version === version && !this.whole) return;
    this.version = version;
    this.whole = false;
    const tentative = result.rows.filter((row) => row[2] === "tentative").length;
    setText(this.said, `${number(tentative)} tentative rows stand, ${number(result.undone)} were taken back; the newest first`);
    this.show(result);
  }

  show(result) {
    const columns = ["came", "time", "", ...result.columns];
    if (this.columns !== columns.join()) {
      this.columns = columns.join();
      this.head.replaceChildren(...columns.map((name) => make("th", { scope: "col" }, name)));
      this.body.replaceChildren();
      this.rows.clear();
    }
    // What has a row keeps it: new ones come above, and those that are gone go.
    const shown = result.rows.slice(-SHOWN).reverse(), wanted = new Set(shown.map(keyOf));
    for (const [key, row] of this.rows) if (!wanted.has(key)) { row.remove(); this.rows.delete(key); }
    const now = this.app.store.now;
    let place = this.body.firstElementChild;
    for (const each of shown) {
      const key = keyOf(each), [, stime, kind, at, cells] = each;
      let row = this.rows.get(key);
      if (!row) {
        row = make("tr", {}, [clock(at), time(stime), kind === "stable" ? "" : kind, ...cells.map(text)].map((value) => make("td", {}, value)));
        this.rows.set(key, row);
      }
      setClass(row, `${kind}${now - at < 1.5 ? " fresh" : ""}`);
      if (row === place) place = place.nextElementSibling;
      else this.body.insertBefore(row, place);
    }
  }
}

function keyOf([id, stime, kind, at]) { return `${id} ${stime} ${kind} ${at}`; }

function time(stime) {
  return `${clock(stime / 1e6)}.${String(Math.floor((stime / 1000) % 1000)).padStart(3, "0")}`;
}

function text(value) {
  if (value === null) return "null";
  if (typeof value === "number" && !Number.isInteger(value)) return String(Math.round(value * 1e6) / 1e6);
  return String(value);
}
