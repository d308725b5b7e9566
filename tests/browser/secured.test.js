// Tests the page with TLS and a password. It works as it does without them, and sends no request to
// any other address.

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { openBrowser } from "./browser.js";
import { USER, World, until } from "./world.js";

let world;
let browser;

before(async () => {
  world = await World.start({ secured: true });
  browser = await openBrowser();
});

after(async () => {
  await browser?.close();
  world?.stop();
});

const sees = (page, selector, words) => page.locator(selector, { hasText: words }).first().waitFor();

test("without the password the exporter serves no page", async () => {
  const page = await browser.open("about:blank", { tolerant: true, httpCredentials: { ...USER, password: "wrong" } });
  for (const path of ["", "api/v1/overview", "runbooks/RedisLockNotOwnedRatioHigh", "metrics"]) {
    const response = await page.goto(`${world.url}${path}`);
    assert.equal(response.status(), 401, path);
    assert.doesNotMatch(await response.text(), /redis_lock|workflow/);
  }
  await page.context().close();
});

test("with the password the page is live, shows updates, and links to runbooks", async () => {
  const page = await browser.open(world.url, { httpCredentials: USER });
  assert.equal(await page.evaluate(() => window.isSecureContext), true);
  await sees(page, ".hero h1", "nothing wrong so far.");
  assert.equal(await page.locator("#fresh").innerText(), "live");

  // The page's regular requests show the update without a reload.
  await Promise.all(["run-1", "run-2", "run-3"].map((run) => world.lose(run)));
  await until("causes are found", async () => (await world.ask("incidents")).total === 3);
  await sees(page, ".findings li", "3 locks were lost (observed for ");
  await page.locator(".findings a.runbook").first().click();
  await page.waitForURL(/\/runbooks\//);
  await sees(page, "h1", "RedisLock");
  const polls = browser.requests.filter(({ url }) => url.includes("/api/v1/"));
  assert.ok(polls.length > 2, `the page sent only ${polls.length} requests`);
});

test("all requests went to the exporter over TLS, and the browser reported no error", () => {
  const ours = new URL(world.url).origin;
  const foreign = browser.requests.filter(({ url }) => !url.startsWith("data:") && url !== "about:blank" && new URL(url).origin !== ours);
  assert.deepEqual(foreign, []);
  assert.ok(ours.startsWith("https://"));
  assert.deepEqual(browser.complaints, []);
});
