// redis-semaphore: Mutex and Semaphore. Its default handler of a lost lock throws inside a timer.
import { NAME, REDIS_URL, SCENARIO, SETUP, attempt, busy, held, renewalRefused, report, require, sleep } from './witness.mjs';

const Redis = require('ioredis');
const { Mutex, Semaphore } = require('redis-semaphore');

const redis = new Redis(REDIS_URL);
const isMutex = !SCENARIO.startsWith('semaphore');
const key = `${isMutex ? 'mutex' : 'semaphore'}:${NAME}`;
const options = { lockTimeout: 6000, refreshInterval: 200, acquireTimeout: 300, retryInterval: 50 };
const make = (more) => (isMutex ? new Mutex(redis, NAME, { ...options, ...more }) : new Semaphore(redis, NAME, 1, { ...options, ...more }));

const steal = async () => {
  if (isMutex) {
    await redis.set(key, 'f'.repeat(36), 'PX', 60000);
  } else {
    await redis.del(key);
    await redis.zadd(key, Date.now() + 60000, 'f'.repeat(36));
    await redis.pexpire(key, 60000);
  }
};

if (SCENARIO.endsWith('lost')) {
  // Without a handler the library throws where nobody can catch.
  const more = {};
  let over;
  const isOver = new Promise((done) => { over = done; });
  if (SETUP !== 'unhandled') {
    more.onLockLost = (error) => {
      renewalRefused(key);
      report('lock lost', error);
      over();
    };
  }
  const lock = make(more);
  await lock.acquire();
  held('held');
  if (SETUP === 'unhandled') renewalRefused(key);
  await steal();
  await Promise.race([isOver, sleep(5000)]);
} else {
  await attempt(async () => {
    await steal();
    await make().acquire();
  }, () => busy(key));
}
if (SETUP !== 'unhandled') redis.disconnect();
