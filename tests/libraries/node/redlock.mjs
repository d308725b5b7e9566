// node-redlock 4 and 5 and its fork: LIBRARY names the package.
import { NAME, REDIS_URL, SCENARIO, SETUP, attempt, busy, held, releaseRefused, renewalRefused, require } from './witness.mjs';

const Redis = require('ioredis');
const package_ = require(process.env.LIBRARY);
const Redlock = package_.default ?? package_.Redlock ?? package_;
const old = typeof Redlock.prototype.lock === 'function' && Redlock.prototype.using === undefined;

const redis = new Redis(REDIS_URL);
const redlock = new Redlock([redis], { retryCount: 2, retryDelay: 20, retryJitter: 5 });
// v5 tells of every attempt; a listener that does nothing is what its documentation recommends.
redlock.on?.('error', () => {});

const steal = () => redis.set(NAME, 'f'.repeat(32), 'PX', 60000);
const acquire = () => (old ? redlock.lock(NAME, 60000) : redlock.acquire([NAME], 60000));
const lost = async () => {
  const lock = await acquire();
  held('held');
  await steal();
  held('taken');
  return lock;
};

const steps = {
  release: async () => {
    const lock = await lost();
    await (old ? lock.unlock() : lock.release());
  },
  extend: async () => {
    const lock = await lost();
    await lock.extend(60000);
  },
  expired: async () => {
    const lock = await lost();
    lock.expiration = Date.now() - 1;
    await lock.extend(60000);
  },
  wait: async () => {
    await steal();
    await acquire();
  },
};
const told = { release: releaseRefused, extend: renewalRefused, expired: renewalRefused, wait: busy };

await attempt(steps[SCENARIO], () => told[SCENARIO](old ? NAME : undefined));
if (SETUP !== 'unhandled') redis.disconnect();
