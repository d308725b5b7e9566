// One lock namespace: what is wrong, its last hour, its policy, and its locks. The exporter
// searches, sorts and pages the locks.

import { ask, now } from "./ask.js";
import { badge, h, replace, toLock } from "./dom.js";
import { clock, number, percent, span } from "./format.js";
import { figure, findingList, spark } from "./overview.js";
import { incidentList } from "./incidents.js";

const PAGE = 50;
// Number of incidents shown above the locks.
const RECENT = 3;
const TYPING_MS = 250;

const SORTS = [["ttl", "least TTL left"], ["held", "held longest"], ["changes", "most owner changes"], ["key", "key"]];

export function namespace(name, query) {
  const head = h("section", null, h("h1", null, name));
  const recent = h("section", { "aria-label": "Recent incidents" });
  const search = h("input", { id: "search", type: "search", placeholder: "part of the key", autocomplete: "off", spellcheck: "false", value: query.get("search") ?? "" });
  const sort = h("select", { id: "sort" }, SORTS.map(([value, text]) => h("option", { value, selected: query.get("sort") === value }, text)));
  const status = h("p", { class: "muted", role: "status" });
  const table = h("div", null);
  const pager = h("nav", { class: "pager", "aria-label": "Pages of locks" });
  const locks = h("section", { "aria-labelledby": "locks-heading" },
    h("h2", { id: "locks-heading" }, "Locks held now"),
    h("form", { class: "filters", onsubmit: (event) => event.preventDefault() },
      h("label", null, "Search", search), h("label", null, "Sort by", sort)),
    status, table, pager);
  const node = h("div", null, head, recent, locks);

  let offset = Number(query.get("offset") ?? 0) || 0;
  let asked = 0;
  let typing = 0;
  let isObserved = true;

  async function load() {
    const number_of_this = (asked += 1);
    const parameters = new URLSearchParams({ lock_namespace: name, search: search.value, sort: sort.value || "ttl", limit: PAGE, offset });
    try {
      const page = await ask(`api/v1/locks?${parameters}`);
      if (number_of_this === asked) show(page);
    } catch (error) {
      if (number_of_this === asked) status.textContent = `The locks cannot be listed: ${error.message}.`;
    }
  }

  function show(page) {
    const { total, locks: found } = page;
    if (found.length === 0 && offset > 0 && total > 0) {
      offset = Math.floor((total - 1) / PAGE) * PAGE;
      load();
      return;
    }
    const what = search.value ? "locks fit" : "locks are held";
    const range = total > PAGE ? `, ${number(offset + 1)} to ${number(offset + found.length)} of them here` : "";
    const text = total === 0 ? (search.value ? "No lock fits." : "No lock is held.") : `${number(total)} ${total === 1 ? what.replace("locks", "lock").replace("are", "is").replace("fit", "fits") : what}${range}.`;
    if (status.textContent !== text) status.textContent = text;
    replace(table, found.length > 0 && lockTable(found));
    const button = (id, words, target, isPossible) =>
      h("button", { id, type: "button", disabled: !isPossible, onclick: () => go(target) }, words);
    replace(pager, total > PAGE && [
      button("first", "First", 0, offset > 0), button("previous", "Previous", offset - PAGE, offset > 0),
      h("span", null, `page ${number(Math.floor(offset / PAGE) + 1)} of ${number(Math.ceil(total / PAGE))}`),
      button("next", "Next", offset + PAGE, offset + PAGE < total),
      button("last", "Last", Math.floor((total - 1) / PAGE) * PAGE, offset + PAGE < total)]);
  }

  function go(target) {
    offset = Math.max(0, target);
    remember();
    load();
  }

  // Keeps the search in the URL, so that the link can be shared. Adds no history entry per letter.
  function remember() {
    const parameters = new URLSearchParams();
    if (search.value) parameters.set("search", search.value);
    if (sort.value && sort.value !== "ttl") parameters.set("sort", sort.value);
    if (offset) parameters.set("offset", offset);
    const text = parameters.toString();
    history.replaceState(null, "", `#/namespace/${encodeURIComponent(name)}${text ? `?${text}` : ""}`);
  }

  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => go(0), TYPING_MS);
  });
  sort.addEventListener("change", () => go(0));

  async function loadIncidents() {
    try {
      const page = await ask(`api/v1/incidents?${new URLSearchParams({ lock_namespace: name, limit: RECENT })}`);
      replace(recent, page.total > 0 && [h("h2", null, "Latest incidents"), incidentList(page.incidents),
        page.total > RECENT && h("p", null, h("a", { href: `#/incidents?lock_namespace=${encodeURIComponent(name)}` }, `All ${number(page.total)}`))]);
    } catch {
      // The page already shows that the exporter does not answer.
    }
  }

  return {
    title: name,
    node,
    close: () => clearTimeout(typing),
    update(overview) {
      const one = overview.namespaces.find((candidate) => candidate.lock_namespace === name);
      if (!one) {
        replace(head, h("h1", null, name), h("p", null, "The exporter has no such lock namespace. ", h("a", { href: "#/" }, "To the overview")));
        locks.hidden = true;
        return;
      }
      locks.hidden = false;
      replace(head, header(one, overview));
      isObserved = one.keyspace !== null;
      if (isObserved) load();
      else replace(status, "Its keys are not watched in Redis here, so single locks are not known.");
      loadIncidents();
    },
  };
}

function header(one, overview) {
  const { keyspace, lately } = one;
  const minutes = lately["5m"];
  const threshold = one.not_owned_ratio_threshold ?? 0.05;
  return [
    h("div", { class: "title" }, h("h1", null, one.lock_namespace), badge(one.level)),
    findingList(one.findings, false),
    h("div", { class: "chart" }, spark(one, overview, true),
      h("p", { class: "axis", "aria-hidden": "true" }, h("span", null, "1 h ago"), h("span", null, "30 min ago"), h("span", null, "now"))),
    h("dl", { class: "numbers wide" },
      figure("lost, 5 min", number(minutes.not_owned), minutes.not_owned > 0 && one.level),
      figure(`refused (pages above ${percent(threshold)})`, percent(keyspace?.not_owned_ratio), minutes.not_owned > 0 && one.level),
      figure("renewals failed, 5 min", number(minutes.renewal_failures), minutes.renewal_failures > 0 && one.level),
      figure("expired, 5 min", number(keyspace ? minutes.expirations : null)),
      figure("held now", number(keyspace?.held)),
      figure("renewal overdue", number(keyspace?.renewal_overdue), keyspace?.renewal_overdue > 0 && "warning"),
      figure("oldest", keyspace?.oldest_acquired ? span(overview.now - keyspace.oldest_acquired) : "–"),
      figure("TTL", one.ttl_seconds ? span(one.ttl_seconds) : "–"),
      figure("renewed every", one.renew_every_seconds ? span(one.renew_every_seconds) : "never"),
      figure("style", one.style)),
  ];
}

function lockTable(locks) {
  const head = ["key", "owner", "held for", "TTL left", "renewals", "owner changes"];
  return h("table", { class: "locks" },
    h("thead", null, h("tr", null, head.map((text) => h("th", { scope: "col" }, text)))),
    h("tbody", null, locks.map((lock) => {
      const { ttl_remaining_seconds: left, full_ttl_seconds: full } = lock;
      const flags = [lock.renewal_overdue && "renewal overdue", lock.doubtful && "not seen lately", left === null && "no TTL"].filter(Boolean);
      const since = lock.acquired_at ?? lock.first_seen_at;
      const cell = (label, ...children) => h("td", { "data-label": label }, ...children);
      return h("tr", null,
        h("th", { scope: "row" }, h("a", { href: toLock(lock.key), id: `lock-${lock.key}` }, lock.key), flags.map((flag) => h("span", { class: "flag" }, flag))),
        cell("owner", h("code", null, lock.owner ?? "–")),
        cell("held for", h("span", { title: clock(since) }, `${lock.acquired_at === null ? "≥ " : ""}${span(now() - since)}`)),
        cell("TTL left", left === null ? "–" : [span(left), full ? bar(left / full) : null]),
        cell("renewals", number(lock.renewals)),
        cell("owner changes", number(lock.owner_changes)));
    })));
}

function bar(share) {
  const filled = h("span", { style: { width: `${Math.round(Math.min(1, Math.max(0, share)) * 100)}%` }, class: share < 0.34 ? "low" : null });
  return h("span", { class: "gauge", "aria-hidden": "true" }, filled);
}
