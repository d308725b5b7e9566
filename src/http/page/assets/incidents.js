// The latest losses that holders reported, with what happened and what to do.

import { ask, now } from "./ask.js";
import { h, replace, runbookLink, toLock, toNamespace } from "./dom.js";
import { clock, number, sentence, span, utc, words } from "./format.js";

const PAGE = 50;

export function incidents(query) {
  const wanted = query.get("lock_namespace") ?? "";
  let offset = 0;
  const choice = h("select", { id: "namespace", onchange: () => {
    location.hash = choice.value ? `#/incidents?lock_namespace=${encodeURIComponent(choice.value)}` : "#/incidents";
  } });
  const status = h("p", { class: "muted", role: "status" });
  const list = h("div", null);
  const pager = h("nav", { class: "pager", "aria-label": "Pages of incidents" });
  const node = h("div", null, h("h1", null, "Incidents"),
    h("p", { class: "muted" }, "Locks that their holders found lost, joined with what was seen in Redis. Up to 1 000 are remembered, and the latest 200 over a restart."),
    h("form", { class: "filters", onsubmit: (event) => event.preventDefault() }, h("label", null, "Lock namespace", choice)), status, list, pager);

  async function load() {
    try {
      const parameters = new URLSearchParams({ lock_namespace: wanted, limit: PAGE, offset });
      const page = await ask(`api/v1/incidents?${parameters}`);
      const text = page.total === 0 ? "No lost lock is remembered." : `${number(page.total)} remembered, the latest first.`;
      if (status.textContent !== text) status.textContent = text;
      replace(list, page.total > 0 && incidentList(page.incidents));
      const button = (id, name, target, isPossible) =>
        h("button", { id, type: "button", disabled: !isPossible, onclick: () => { offset = target; load(); } }, name);
      replace(pager, page.total > PAGE && [button("previous", "Newer", Math.max(0, offset - PAGE), offset > 0),
        button("next", "Older", offset + PAGE, offset + PAGE < page.total)]);
    } catch (error) {
      status.textContent = `The incidents cannot be listed: ${error.message}.`;
    }
  }

  return {
    title: "Incidents",
    node,
    update(overview) {
      const names = overview.namespaces.map((one) => one.lock_namespace);
      if (choice.options.length !== names.length + 1) {
        const option = (value, text) => h("option", { value, selected: value === wanted }, text);
        replace(choice, option("", "all"), names.map((name) => option(name, name)));
      }
      load();
    },
  };
}

const CAUSES = {
  expired_never_renewed: "expired, never renewed", renewals_stopped: "expired, renewals stopped", deleted_early: "deleted early",
  taken_over: "taken over", lost_in_failover: "lost in a failover", unknown: "cause not seen",
};

export function incidentList(incidents) {
  return h("ol", { class: "incidents" }, incidents.map((one) => h("li", null,
    h("div", { class: "line" },
      h("time", { datetime: utc(one.at), title: utc(one.at) }, clock(one.at)), h("span", { class: "muted" }, `${span(now() - one.at)} ago`),
      h("a", { class: "subject", href: toNamespace(one.lock_namespace) }, one.lock_namespace),
      h("span", { class: `cause ${one.cause === "unknown" ? "blind" : "critical"}` }, CAUSES[one.cause] ?? words(one.cause))),
    h("p", { class: "lock" }, one.lock === null ? h("span", { class: "muted" }, "the line does not name the lock") : h("a", { href: toLock(one.lock) }, one.lock)),
    h("p", null, sentence(one.verdict ?? "what happened to the lock was not seen in Redis"),
      h("span", { class: "muted" }, ` Found out by a ${one.operation === "unknown" ? "refused operation" : `refused ${one.operation === "renew" ? "renewal" : "release"}`}, rule ${one.rule}.`)),
    h("p", null, runbookLink(one.runbook)))));
}
