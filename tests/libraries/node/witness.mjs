// What a program that uses a lock library knows about its own failures, told to whoever runs it: see python/witness.py.
import fs from 'node:fs';
import { createRequire } from 'node:module';

export const { REDIS_URL, SETUP, SCENARIO, LOCK_NAME: NAME, PACKAGES } = process.env;
// Packages are installed in several generations beside each other; PACKAGES is the one in use.
export const require = createRequire(`${PACKAGES}/package.json`);

const tell = (what) => fs.writeSync(Number(process.env.WITNESS_OUT), JSON.stringify(what) + '\n');

// `key` only where the library prints it.
export const failed = (event, operation, reason, key) =>
  tell({ failed: { event, operation: operation ?? null, reason, lock_key: key ?? null } });
export const releaseRefused = (key) => failed('release_failed', 'release', 'not_owned', key);
export const renewalRefused = (key) => failed('renewal_failed', 'renew', 'not_owned', key);
export const busy = (key) => failed('acquire_failed', 'acquire', 'busy', key);

// Waits until the keys were looked at.
export const held = (state) => {
  tell({ held: state });
  fs.readSync(Number(process.env.WITNESS_IN), Buffer.alloc(1));
};

export const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// Logs an error that was caught, the way SETUP stands for.
export const report = (what, error) => {
  if (SETUP === 'pino') {
    require('pino')().error(error, what);
  } else if (SETUP === 'winston') {
    const winston = require('winston');
    const { combine, timestamp, errors, json } = winston.format;
    const format = combine(errors({ stack: true }), timestamp(), json());
    winston.createLogger({ format, transports: [new winston.transports.Console()] }).error(error);
  } else if (SETUP === 'message') {
    console.error(`${new Date().toISOString()} ERROR ${what}: ${error.message}`);
  } else if (SETUP === 'json') {
    const { message, stack } = error;
    console.log(JSON.stringify({ time: new Date().toISOString(), level: 'error', msg: what, err: { message, stack } }));
  } else {
    console.error(what, error);
  }
};

// Runs the steps; what they throw is caught and reported, or not caught at all.
export const attempt = async (steps, told) => {
  if (SETUP === 'unhandled') {
    told();
    steps(); // the rejection is nobody's
    return;
  }
  try {
    await steps();
  } catch (error) {
    told(error);
    report('could not book the invoice', error);
  }
};
