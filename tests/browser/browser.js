// Runs Debian's Chromium without a window, and records all its errors and requests.

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";

import { chromium } from "playwright-core";

const FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];

export async function openBrowser() {
  const home = mkdtempSync(path.join(tmpdir(), "chromium-"));
  const browser = await chromium.launch({
    executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, timeout: 180_000, args: FLAGS, handleSIGINT: false, handleSIGTERM: false, handleSIGHUP: false,
    env: { ...process.env, HOME: home, XDG_CONFIG_HOME: home, XDG_CACHE_HOME: home },
  });
  const complaints = [];
  const requests = [];
  return {
    complaints,
    requests,
    // `tolerant`: the test stops the exporter, so the browser may report errors. `httpCredentials`:
    // what a user types into the browser's password dialog. The tests use their own certificates,
    // which no public CA has signed.
    async open(url, { viewport = { width: 1280, height: 900 }, colorScheme = "dark", tolerant = false, scale = 1, httpCredentials } = {}) {
      const context = await browser.newContext({
        viewport, colorScheme, deviceScaleFactor: scale, reducedMotion: "reduce", ignoreHTTPSErrors: true, httpCredentials,
      });
      const page = await context.newPage();
      page.setDefaultTimeout(120_000);
      const { origin } = new URL(url);
      page.on("request", (request) => requests.push({ url: request.url(), origin }));
      page.on("pageerror", (error) => complaints.push(`error: ${error.message}`));
      page.on("console", (message) => {
        const isComplaint = ["error", "warning"].includes(message.type()) && !tolerant;
        if (isComplaint) complaints.push(`${message.type()}: ${message.text()} (${message.location().url})`);
      });
      await page.goto(url);
      return page;
    },
    async close() {
      await browser.close();
      rmSync(home, { recursive: true, force: true });
    },
  };
}
