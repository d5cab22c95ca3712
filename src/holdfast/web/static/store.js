// What the server has told, and the one event stream it comes by.

const HOUR = 3600;

export class Store {
  constructor() {
    this.ready = false;
    this.connected = false;
    this.fixed = { operators: [], outputs: {}, fragments: {}, sources: {}, clients: {} };
    this.live = { nodes: {}, processes: {}, servers: {}, links: {} };
    this.general = {};
    this.controls = [];
    this.reset();
    this.listeners = new Set();
    this.skew = 0;
    this.number = 0;
  }

  reset() {
    this.arrivals = {};
    this.states = {};
    this.events = [];
    this.results = {};
  }

  get now() { return Date.now() / 1000 + this.skew; }

  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  }

  tell(what) { for (const listener of this.listeners) listener(what); }

  // ``of``: which of a cluster's submissions; null for the first.
  open(onRefused, of = null) {
    if (this.stream) this.stream.close();
    const stream = new EventSource(`/api/events${of === null ? "" : `?of=${encodeURIComponent(of)}`}`);
    stream.addEventListener("snapshot", (event) => {
      const message = JSON.parse(event.data);
      this.reset();
      this.ready = this.connected = true;
      this.number = message.number;
      this.live = { nodes: {}, processes: {}, servers: {}, links: {} };
      this.take(message);
      this.tell("snapshot");
    });
    stream.addEventListener("changes", (event) => {
      const message = JSON.parse(event.data);
      if (message.number <= this.number) return;
      this.take(message);
      this.tell("changes");
    });
    stream.onerror = () => {
      this.connected = false;
      this.tell("connection");
      // A browser gives up for good when it is refused: signed out, or too many viewers.
      if (stream.readyState === EventSource.CLOSED) onRefused();
    };
    this.stream = stream;
  }

  take(message) {
    if (message.now) this.skew = message.now - Date.now() / 1000;
    for (const part of ["fixed", "general", "controls"]) if (message[part]) this[part] = message[part];
    for (const [part, values] of Object.entries(message.live || {})) {
      for (const [name, value] of Object.entries(values)) {
        if (value === null) delete this.live[part][name];
        else this.live[part][name] = value;
      }
    }
    if (message.history) this.takeHistory(message.history);
    for (const [name, changes] of Object.entries(message.results || {})) {
      for (const change of changes) this.takeResult(name, change);
    }
  }

  takeHistory(history) {
    for (const [output, bins] of Object.entries(history.arrivals || {})) {
      const kept = this.arrivals[output] ||= [];
      for (const bin of bins) {
        let place = kept.length - 1;
        while (place >= 0 && kept[place][0] > bin[0]) place -= 1;
        let same = place;
        while (same >= 0 && kept[same][0] === bin[0] && kept[same][1] !== bin[1]) same -= 1;
        if (same >= 0 && kept[same][0] === bin[0]) kept[same] = bin;
        else kept.splice(place + 1, 0, bin);
      }
      while (kept.length && kept[0][0] < this.now - HOUR) kept.shift();
    }
    for (const [node, at, state] of history.states || []) {
      const kept = this.states[node] ||= [];
      // What a process wrote before anybody looked is heard of late.
      let place = kept.length;
      while (place && kept[place - 1][0] > at) place -= 1;
      kept.splice(place, 0, [at, state]);
      while (kept.length > 1 && kept[1][0] < this.now - HOUR) kept.shift();
    }
    this.events.push(...(history.events || []));
    if (this.events.length > 5000) this.events.splice(0, this.events.length - 5000);
  }

  takeResult(name, change) {
    const result = this.results[name] ||= { columns: [], rows: [], undone: 0, leftOut: 0, version: 0 };
    result.version += 1;
    if (change.columns && change.columns.length) result.columns = change.columns;
    if (change.all) {
      result.rows = change.all;
      result.undone = change.undone;
    } else if (change.undo !== undefined) {
      const stays = (row) => row[2] !== "tentative" || row[1] >= change.undo;
      result.undone += result.rows.filter((row) => !stays(row)).length;
      result.rows = result.rows.filter(stays);
    } else {
      result.leftOut = change.left_out;
      // Tentative tuples lie after the stable ones.
      const stable = change.rows.filter((row) => row[2] !== "tentative");
      const end = result.rows.findIndex((row) => row[2] === "tentative");
      result.rows.splice(end < 0 ? result.rows.length : end, 0, ...stable);
      result.rows.push(...change.rows.filter((row) => row[2] === "tentative"));
      if (result.rows.length > 1000) result.rows.splice(0, result.rows.length - 1000);
    }
  }
}

export class Session {
  async load() {
    const answer = await fetch("/api/session");
    Object.assign(this, { name: null, operate: false, edit: false, csrf: "" });
    Object.assign(this, await answer.json());
    return this.name !== null;
  }

  async post(path, body) {
    const answer = await fetch(path, {
      method: "POST",
      headers: { "content-type": "application/json", "x-holdfast-csrf": this.csrf || "" },
      body: JSON.stringify(body),
    });
    const found = await answer.json().catch(() => ({ said: answer.statusText }));
    if (!answer.ok) throw new Error(found.said || answer.statusText);
    return found;
  }
}
