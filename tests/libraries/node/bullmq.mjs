// BullMQ: a worker whose job's lock is taken away while it works.
import { NAME, REDIS_URL, SCENARIO, held, releaseRefused, renewalRefused, report, require, sleep } from './witness.mjs';

const { Queue, Worker } = require('bullmq');
const Redis = require('ioredis');

const url = new URL(REDIS_URL);
const connection = { host: url.hostname, port: Number(url.port), maxRetriesPerRequest: null };
const redis = new Redis(REDIS_URL);
const queue = new Queue(NAME, { connection });
const { version } = require('bullmq/package.json');
const short = SCENARIO === 'renew';

let over;
let working = false;
let ended = false;
const isOver = new Promise((done) => { over = done; });
const worker = new Worker(NAME, async (job) => {
  const key = `bull:${NAME}:${job.id}:lock`;
  held('held');
  working = true;
  if (SCENARIO === 'taken') {
    await redis.set(key, 'another-worker', 'PX', 60000);
  } else {
    await redis.del(key);
  }
  held(SCENARIO === 'taken' ? 'taken' : 'gone');
  // Renewed at half of this time: once.
  if (short) await sleep(3700);
  working = false;
  if (SCENARIO === 'fail') throw new Error('no such invoice');
}, { connection, lockDuration: short ? 6000 : 60000, stalledInterval: 600000, skipStalledCheck: true, concurrency: 1 });

worker.on('error', (error) => {
  report('worker failed', error);
  // While the job is at work only renewals can fail, and once it is done only its end: one failure, however often it is told.
  if (working) {
    renewalRefused();
  } else if (!ended) {
    ended = true;
    releaseRefused(NAME);
    // What else is said about it comes at once.
    setTimeout(over, 500);
  }
});
worker.on('failed', (job, error) => console.error(`job ${job.id} failed: ${error.message}`));

await worker.waitUntilReady();
console.log(`bullmq ${version} waits for jobs`);
await queue.add('book', { number: 17 }, { jobId: NAME });
await Promise.race([isOver, sleep(30000)]);
await worker.close(true);
await queue.close();
redis.disconnect();
process.exit(0);
