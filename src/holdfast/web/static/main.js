// The page: signing in, the views, and what stands above them.

import { Controls } from "./controls.js";
import { make, setText } from "./dom.js";
import { Edit } from "./edit.js";
import { Logical } from "./logical.js";
import { Physical } from "./physical.js";
import { Results } from "./results.js";
import { Session, Store } from "./store.js";
import { Timeline } from "./timeline.js";

const VIEWS = [
  ["logical", "Query", Logical], ["physical", "Machines", Physical], ["timeline", "Timeline", Timeline],
  ["results", "Results", Results], ["controls", "Controls", Controls], ["edit", "Edit", Edit],
];
const CHOSEN = "holdfast-submission";
const byId = (id) => document.getElementById(id);

class App {
  constructor() {
    this.session = new Session();
    this.store = new Store();
    this.view = null;
    this.scheduled = false;
    this.frameCount = 0; // for whoever measures
  }

  async start() {
    this.setTheme(localStorage.getItem("holdfast-theme") || "dark");
    byId("theme").addEventListener("click", () => this.toggleTheme());
    byId("sign-out").addEventListener("click", () => this.signOut());
    byId("submission").addEventListener("change", (event) => this.choose(event.target.value));
    document.addEventListener("keydown", (event) => this.onKey(event));
    window.addEventListener("hashchange", () => this.show(location.hash.slice(1)));
    const code = /^#code=(.+)$/.exec(location.hash);
    if (code) {
      history.replaceState(null, "", "/");
      try { await this.session.post("/api/sign-in", { code: code[1] }); } catch (error) { this.problem = error.message; }
    }
    if (await this.session.load()) this.signedIn();
    else this.askToSignIn(this.problem);
  }

  askToSignIn(problem) {
    const said = make("p", { class: "bad", role: "alert" }, problem || "");
    const name = make("input", { id: "sign-in-name", required: true, autocomplete: "username" });
    const token = make("input", { id: "sign-in-token", type: "password", required: true, autocomplete: "current-password" });
    const submit = async (event) => {
      event.preventDefault();
      try {
        await this.session.post("/api/sign-in", { name: name.value, token: token.value });
        if (await this.session.load()) this.signedIn();
      } catch (error) { setText(said, error.message); }
    };
    byId("view").replaceChildren(make("form", { class: "sign-in", onsubmit: submit },
      make("h2", {}, "Sign in"),
      make("p", { class: "faint" }, "With a name and its token: holdfast security token DEPLOYMENT.toml read NAME, or operate NAME."),
      make("label", {}, "Name", name), make("label", {}, "Token", token),
      make("button", { type: "submit" }, "Sign in"), said));
    name.focus();
  }

  signedIn() {
    byId("sign-out").hidden = false;
    const allowed = { controls: this.session.operate, edit: this.session.edit };
    this.views = VIEWS.filter(([id]) => allowed[id] !== false);
    byId("tabs").replaceChildren(...this.views.map(([id, title], place) => make("button", {
      type: "button", role: "tab", id: `tab-${id}`, "aria-controls": "view", title: `${title} (${place + 1})`,
      onclick: () => { location.hash = id; },
    }, title)));
    this.store.listen((what) => this.changed(what));
    this.open(sessionStorage.getItem(CHOSEN));
    this.show(location.hash.slice(1));
  }

  // ``of``: which of what a cluster runs; null for the first.
  open(of) { this.store.open(() => this.refused(of), of); }

  async refused(of) {
    if (!await this.session.load().catch(() => true)) { location.reload(); return; }
    // It may be withdrawn. What took its place has told its name; if nothing did, there is the first.
    const now = this.store.fixed.deployment, next = of !== null && now && now !== of ? now : null;
    if (next === null) sessionStorage.removeItem(CHOSEN);
    setTimeout(() => this.open(next), 2000);
  }

  // A reload stays with what was chosen.
  choose(name) {
    sessionStorage.setItem(CHOSEN, name);
    this.draft = null;
    this.open(name);
    this.show(this.viewName);
  }

  // What is asked for is meant for what is shown.
  path(path) {
    const { general, fixed } = this.store;
    return general.chooses ? `${path}?of=${encodeURIComponent(fixed.deployment)}` : path;
  }

  async signOut() {
    this.store.stream.close();
    await this.session.post("/api/sign-out", {}).catch(() => null);
    location.assign("/");
  }

  show(id) {
    if (!this.views) return;
    const [name, , View] = this.views.find(([each]) => each === id) || this.views[0];
    for (const [each] of this.views) byId(`tab-${each}`).setAttribute("aria-selected", String(each === name));
    if (this.view && this.view.close) this.view.close();
    byId("view").replaceChildren();
    this.view = new View(this, byId("view"));
    this.viewName = name;
    this.update();
  }

  changed(what) {
    if (what === "snapshot") this.view.whole = true;
    if (this.scheduled) return;
    this.scheduled = true;
    requestAnimationFrame(() => { this.scheduled = false; this.update(); });
  }

  update() {
    this.updateTop();
    if (this.store.ready) this.view.update();
    this.frameCount += 1;
  }

  updateTop() {
    const { store } = this;
    setText(byId("name"), store.fixed.deployment || "Holdfast");
    this.updateSubmissions(store.general.chooses && store.general.cluster ? store.general.cluster.submissions : []);
    document.title = `${store.fixed.deployment || "Holdfast"} · Holdfast`;
    const nodes = Object.values(store.live.nodes);
    const gone = nodes.filter((node) => node.state === "gone").length;
    const said = !store.ready ? "connecting" : !store.connected ? "the server does not answer; trying again"
      : `${nodes.length} nodes${gone ? `, ${gone} gone` : ""}, X = ${store.fixed.delay_s} s`;
    setText(byId("status"), said);
    const outputs = Object.entries(store.general.outputs || {}).filter(([, problem]) => problem);
    const cluster = store.general.cluster, managed = cluster && cluster.submitted;
    const problem = store.general.problem || (managed ? [cluster.unmanaged && `the cluster manages nothing now: ${cluster.unmanaged}`, cluster.note].filter(Boolean).join("; ") : "")
      || (store.ready && !managed && !store.general.supervisor ? "nobody looks after this deployment: it is not running, or its supervisor is gone" : "")
      || outputs.map(([name, text]) => `${name}: ${text}`).join("; ");
    byId("problem").hidden = !problem;
    setText(byId("problem"), problem || "");
  }

  updateSubmissions(names) {
    const choice = byId("submission"), key = names.join("\n");
    choice.hidden = names.length < 2;
    if (this.submissions !== key) {
      this.submissions = key;
      choice.replaceChildren(...names.map((name) => make("option", { value: name }, name)));
    }
    if (document.activeElement !== choice) choice.value = this.store.fixed.deployment || "";
  }

  onKey(event) {
    if (event.ctrlKey || event.altKey || event.metaKey || !this.views) return;
    if (/^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName)) return;
    const view = this.views[Number(event.key) - 1];
    if (view) { location.hash = view[0]; byId(`tab-${view[0]}`).focus(); }
    else if (event.key === "t") this.toggleTheme();
    else if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
      const tabs = [...byId("tabs").children], place = tabs.indexOf(document.activeElement);
      if (place >= 0) tabs[(place + (event.key === "ArrowRight" ? 1 : tabs.length - 1)) % tabs.length].focus();
      else if (this.view && this.view.onKey) this.view.onKey(event);
    } else if (this.view && this.view.onKey) this.view.onKey(event);
  }

  toggleTheme() { this.setTheme(document.documentElement.classList.contains("light") ? "dark" : "light"); }

  setTheme(name) {
    document.documentElement.classList.toggle("light", name === "light");
    localStorage.setItem("holdfast-theme", name);
    if (this.view) { this.view.whole = true; this.update(); }
  }
}

window.holdfast = new App();
window.holdfast.start();
