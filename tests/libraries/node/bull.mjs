// Bull: as bullmq.mjs.
import { NAME, REDIS_URL, SCENARIO, held, releaseRefused, report, require, sleep } from './witness.mjs';

const Queue = require('bull');
const Redis = require('ioredis');

const redis = new Redis(REDIS_URL);
const queue = new Queue(NAME, REDIS_URL, { settings: { lockDuration: 60000, stalledInterval: 600000 } });
let over;
const isOver = new Promise((done) => { over = done; });

queue.on('error', (error) => {
  // A job that cannot be finished because its lock is gone: the only error there is in this program.
  releaseRefused(NAME);
  report('queue failed', error);
  over();
});
queue.process(async (job) => {
  const key = `bull:${NAME}:${job.id}:lock`;
  held('held');
  if (SCENARIO === 'taken') {
    await redis.set(key, 'another-worker', 'PX', 60000);
  } else {
    await redis.del(key);
  }
  held(SCENARIO === 'taken' ? 'taken' : 'gone');
  if (SCENARIO === 'fail') throw new Error('no such invoice');
});

await queue.isReady();
await queue.add({ number: 17 }, { jobId: NAME });
await Promise.race([isOver, sleep(8000)]);
process.exit(0);
