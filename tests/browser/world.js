// A Redis, an exporter that watches it with the Cordum preset, a log, and programs that use locks.
// Everything runs on free loopback ports in its own directory, and always ends with the test.

import { execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import { tmpdir } from "node:os";
import path from "node:path";

import { Locker } from "./locker.js";
import { Redis } from "./redis.js";

// scripts/test_page.sh runs a copy of these files next to their packages, and passes the path of
// the exporter.
export const BINARY = process.env.EXPORTER;
// Returns the path of a program from examples/.
export const example = (name) => path.join(path.dirname(BINARY), "examples", name);
const DEADLINE_MS = 120_000;

// The user who may see the page of a secured world.
export const USER = { username: "operator", password: "correct horse" };
const HASH = "$2b$04$abcdefghijklmnopqrstuujydOTSfIH/d5oUHpsygqV5X9xJLQc6e";

export const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

export async function until(what, condition) {
  const deadline = Date.now() + DEADLINE_MS;
  for (;;) {
    const found = await condition();
    if (found) return found;
    if (Date.now() > deadline) throw new Error(`still not: ${what}`);
    await sleep(50);
  }
}

export class World {
  // `watched`: the exporter observes Redis and not only the log. `secured`: the exporter serves
  // only USER, over TLS.
  static async start({ watched = true, secured = false } = {}) {
    const world = new World();
    try {
      await world.#start(watched, secured);
    } catch (error) {
      world.stop();
      throw error;
    }
    return world;
  }

  async #start(watched, secured) {
    this.directory = mkdtempSync(path.join(tmpdir(), "page-"));
    this.children = [];
    process.once("exit", () => this.stop());
    // Without a handler, these signals end the process without cleaning up.
    for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.once(signal, () => process.exit(2));
    await this.#startRedis();
    this.locker = new Locker(this);
    writeFileSync(this.#place("cordum.log"), "");
    const redis = watched ? `redis: {url: "${this.redisUrl}", name: main}\n` : "";
    writeFileSync(this.#place("config.yaml"), `${redis}logs: [{path: "${this.#place("*.log")}"}]\npresets: [cordum]\n`);
    const web = secured ? ["--web.config.file", this.#secure()] : [];
    this.exporter = this.run(BINARY, ["--config.file", this.#place("config.yaml"), "--state.dir", this.#place("state"), "--web.listen-address", "127.0.0.1:0", ...web]);
    this.exporter.stderr.setEncoding("utf8").on("data", (text) => { this.output = (this.output ?? "") + text; });
    const address = await until("the exporter listens", () => /serving http address=(\S+)/.exec(this.output ?? "")?.[1]);
    this.url = `${secured ? "https" : "http"}://${address}/`;
    await until("the exporter watches", async () => {
      const { redis, logs } = await this.ask("overview");
      return logs?.[0]?.open_files === 1 && (!watched || (redis?.tracking && redis.scan_last_success_at !== null));
    });
  }

  // A redis-server cannot choose its port. If the port is in use, the server exits, and the test
  // starts it on another port. Only our server knows the password.
  async #startRedis() {
    this.password = randomBytes(12).toString("hex");
    for (let attempt = 0; attempt < 10; attempt++) {
      // Below the range that Linux uses for outgoing connections.
      const port = 12_000 + Math.floor(Math.random() * 20_000);
      this.server = this.run("redis-server", ["--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", this.directory, "--requirepass", this.password]);
      const login = async () => {
        const redis = await Redis.connect(port);
        await redis.command("AUTH", this.password);
        return redis;
      };
      this.redis = await until("Redis answers", () => this.server.exitCode !== null || login().catch(() => null));
      if (this.redis === true) continue;
      this.redisUrl = `redis://:${this.password}@127.0.0.1:${port}/0`;
      return;
    }
    throw new Error("redis-server does not start");
  }

  // Starts a program that ends with the world.
  run(command, words) {
    const child = spawn(command, words.map(String), { stdio: ["pipe", "pipe", "pipe"] });
    child.on("error", (error) => { throw error; });
    child.stdout.resume();
    child.stderr.resume();
    this.children.push(child);
    return child;
  }

  // Creates a certificate and a web configuration. Returns the path of the configuration.
  #secure() {
    const [certificate, key] = [this.#place("server.pem"), this.#place("server.key")];
    execFileSync("openssl", ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
      "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-keyout", key, "-out", certificate], { stdio: "ignore" });
    const path = this.#place("web.yaml");
    writeFileSync(path, `tls_server_config: {cert_file: server.pem, key_file: server.key}\nbasic_auth_users: {${USER.username}: "${HASH}"}\n`);
    this.access = { ca: readFileSync(certificate), auth: `${USER.username}:${USER.password}` };
    return path;
  }

  #place(name) {
    return path.join(this.directory, name);
  }

  stop() {
    this.redis?.close();
    for (const child of this.children ?? []) child.kill("SIGKILL");
    if (this.directory) rmSync(this.directory, { recursive: true, force: true });
  }

  async ask(what) {
    const { get } = this.access ? https : http;
    const response = await new Promise((resolve, reject) => {
      get(`${this.url}api/v1/${what}`, this.access ?? {}, resolve).on("error", reject);
    });
    return JSON.parse(Buffer.concat(await response.toArray()).toString("utf8"));
  }

  lock(key) {
    return this.ask(`locks/${encodeURIComponent(key)}`);
  }

  // Returns the token, or nothing if another owner holds the lock.
  acquire(key, ttl) {
    return this.locker.ask({ acquire: { key, ttl_ms: ttl } });
  }

  renew(key, token, ttl) {
    return this.locker.ask({ renew: { key, token, ttl_ms: ttl } });
  }

  release(key, token) {
    return this.locker.ask({ release: { key, token } });
  }

  log(component, message, attributes) {
    const line = { time: new Date().toISOString(), level: "WARN", msg: message, component, ...attributes };
    appendFileSync(this.#place("cordum.log"), `${JSON.stringify(line)}\n`);
  }

  // A holder renews its lock and then stops. The lock expires, another owner takes over, and the
  // first holder notices.
  async lose(run, { ttl = 5000, gap = 300 } = {}) {
    const key = `cordum:wf:run:lock:${run}`;
    const first = await this.acquire(key, ttl);
    // Renews the lock only after some time, as a real holder does, and repeats until the exporter
    // sees it. On a busy machine reads take a while, and the exporter cannot detect a deadline that
    // moves by less than that.
    await until(`${key} is seen to be renewed`, async () => {
      const left = await this.redis.command("PTTL", key);
      if (left < ttl * 0.7 && !(await this.renew(key, first, ttl))) throw new Error(`${key} was lost too early`);
      return (await this.lock(key)).now?.renewals > 0;
    });
    await until(`${key} expires`, async () => (await this.redis.command("EXISTS", key)) === 0);
    await sleep(gap);
    const second = await this.acquire(key, 600_000);
    await until(`${key} is taken over`, async () => (await this.lock(key)).now);
    if (await this.renew(key, first, ttl)) throw new Error(`${key} is still the first one's`);
    this.log("workflow-engine", "run lock renewal failed", { run_id: run, error: "lock not owned" });
    return { key, first, second };
  }
}
