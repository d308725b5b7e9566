"""aioredlock 0.7.3 with aioredis 1.x, on the last Python version that can run them."""

import asyncio

from aioredlock import Aioredlock, LockError
from logging_setups import logger, report
from witness import NAME, REDIS_URL, SCENARIO, SETUP, busy, held, release_refused, renewal_refused

log = logger()


async def steal(manager):
    with await manager.redis.instances[0].connect() as connection:
        await connection.set(NAME, "f" * 36, pexpire=60000)


async def lost(manager):
    lock = await manager.lock(NAME, lock_timeout=60)
    held("held")
    await steal(manager)
    held("taken")
    return lock


async def release(manager):
    await manager.unlock(await lost(manager))


async def extend(manager):
    await manager.extend(await lost(manager))


async def wait(manager):
    await steal(manager)
    await manager.lock(NAME, lock_timeout=60)


# The text of a refused extension is that of a lock that is busy: the stack tells them apart, a message alone does not.
STEPS = {"release": (release, release_refused), "extend": (extend, renewal_refused), "wait": (wait, busy)}


async def main():
    manager = Aioredlock([REDIS_URL], retry_count=2, retry_delay_min=0.05, retry_delay_max=0.1)
    work, told = STEPS[SCENARIO]
    try:
        if SETUP == "uncaught":
            told()
            await work(manager)
        else:
            try:
                await work(manager)
            except LockError as error:
                told()
                report(log, "could not book the invoice", error)
    finally:
        # The library cleans up behind itself in tasks of its own. Not `destroy`: it would release what was lost already, and say so again.
        await asyncio.sleep(0.3)
        for instance in manager.redis.instances:
            await instance.close()


asyncio.run(main())
