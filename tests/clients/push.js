// Sends lines with a third-party Loki client.
//
//   node push.js pino|winston-json|winston-protobuf URL < LINES
//
// The first word of each line is the value of the label `job`; the rest is the line. Exits with
// status 0 when the client reports that all lines were accepted.
"use strict";

const lines = require("fs")
  .readFileSync(0, "utf8")
  .split("\n")
  .filter((line) => line !== "")
  .map((line) => ({ job: line.slice(0, line.indexOf(" ")), text: line.slice(line.indexOf(" ") + 1) }));
const [client, url] = process.argv.slice(2);

function fail(error) {
  console.error(error);
  process.exitCode = 1;
}

// Writes JSON without compression, through its own stream.
async function pino() {
  const { default: build } = await import("pino-loki");
  const pino = require("pino");
  const stream = build({
    host: url,
    batching: { interval: 1 },
    propsToLabels: ["job"],
    labels: { client: "pino" },
    silenceErrors: false,
  });
  stream.on("error", fail);
  const logger = pino(stream);
  for (const { job, text } of lines) {
    // The logger writes the time, and the client uses it as the time of the entry.
    const { time, ...line } = JSON.parse(text);
    logger.warn({ job, ...line });
  }
  stream.end();
  await new Promise((resolve) => stream.once("close", resolve));
}

async function winston(json) {
  const Loki = require("winston-loki");
  const winston = require("winston");
  const transport = new Loki({
    host: url,
    json,
    batching: true,
    interval: 1,
    timeout: 20000,
    labels: { client: "winston" },
    format: winston.format.printf((info) => info.message),
    // The client sends the batch again at the next interval.
    onConnectionError: (error) => console.error("again:", String(error)),
  });
  // After a failure the client would wait for a minute.
  transport.batcher.circuitBreakerInterval = 1500;
  const logger = winston.createLogger({ transports: [transport] });
  for (const { job, text } of lines) logger.warn({ message: text, labels: { job } });
  await new Promise((resolve) => setImmediate(resolve));
  do await transport.flush();
  while (transport.batcher.batch.streams.length > 0);
  // The client's timer would run forever.
  process.exit(0);
}

const run = { pino, "winston-json": () => winston(true), "winston-protobuf": () => winston(false) }[client];
run().catch(fail);
