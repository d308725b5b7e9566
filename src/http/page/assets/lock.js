// One lock: its owner, a sentence about its last loss, its history as a chart, and the same as a
// list.

import { ask, now as clockNow } from "./ask.js";
import { h, replace, toNamespace, toRunbook } from "./dom.js";
import { clock, percent, sentence, utc, words } from "./format.js";
import { logWords, mark, timeline } from "./timeline.js";

const WHAT = {
  acquired: "acquired", first_seen: "first seen by the exporter", renewed: "renewed", last_renewed: "last renewed", released: "released",
  expired: "expired: its TTL ran out", taken_over: "replaced by another owner", lost_in_failover: "gone after a failover or restart of Redis",
  flushed: "gone: Redis was flushed", ended: "gone, it was not seen how", log: "log",
};

export function lock(key) {
  const body = h("div", null, h("p", { class: "muted" }, "Asking the exporter …"));
  const where = h("p", { class: "crumbs" });
  const node = h("div", null, where, h("h1", { class: "key" }, key), body);
  let drawn = null;
  let all = false;
  let shown = null;

  function show() {
    const { verdict, state, holds, history, now } = shown;
    const name = shown.lock_namespace;
    replace(where, h("a", { href: "#/" }, "Overview"), name && [" / ", h("a", { href: toNamespace(name) }, name)]);
    const chosen = all ? holds : holds.slice(0, 4);
    drawn = timeline(chosen, history, clockNow());
    const toggle = holds.length > 4 && h("button", { id: "all-holds", type: "button", onclick: () => { all = !all; show(); } },
      all ? "Draw the latest holds only" : `Draw all ${holds.length} holds`);
    replace(body,
      h("p", { class: now ? "state held" : "state" }, sentence(state)),
      verdict ? h("div", { class: "verdict" }, h("h2", null, "How it was last lost"), h("p", { id: "verdict" }, sentence(verdict)),
          h("p", null, h("a", { href: toRunbook("common/causes") }, "Why locks are lost, and what to do")))
        : h("p", { class: "muted" }, "It was not lost, as far as the exporter remembers."),
      holds.length > 0 && h("section", { "aria-labelledby": "timeline-heading" }, h("h2", { id: "timeline-heading" }, "Timeline"), drawn.node, toggle),
      h("section", { "aria-labelledby": "history-heading" }, h("h2", { id: "history-heading" }, "What happened, the latest first"), events(history)));
    drawn.draw();
  }

  async function load() {
    try {
      shown = await ask(`api/v1/locks/${encodeURIComponent(key)}`);
      show();
    } catch (error) {
      if (shown === null) replace(body, h("p", null, `${sentence(error.message)}`));
    }
  }

  const resized = () => drawn?.draw();
  window.addEventListener("resize", resized);
  return { title: key, node, update: load, close: () => window.removeEventListener("resize", resized) };
}

function events(history) {
  const row = (one) => h("li", { class: one.what },
    h("time", { datetime: utc(one.at), title: utc(one.at) }, clock(one.at)),
    mark(one.what),
    h("span", null, told(one)),
    h("code", null, one.owner ?? ""));
  return h("ol", { class: "events" }, history.map(row));
}

function told(one) {
  if (one.what === "log") return `log line: ${logWords(one)}, rule ${one.rule}`;
  if (one.what === "renewed" && one.margin !== null) return `renewed with ${percent(one.margin)} of its TTL left`;
  return WHAT[one.what] ?? words(one.what);
}
