"""redis-py's Lock, or redis.asyncio's with LIBRARY=asyncio: loses locks, fails to extend them, and times out waiting."""

import asyncio
import os
import threading

import redis
from logging_setups import logger, report
from witness import NAME, REDIS_URL, SCENARIO, SETUP, busy, held, release_refused, renewal_refused

VERSION = tuple(int(part) for part in redis.__version__.split(".")[:2])
LockError = redis.exceptions.LockError
client = redis.Redis.from_url(REDIS_URL)
log = logger()


def lost():
    """A lock that another owner acquired after it expired."""
    lock = client.lock(NAME, timeout=60, thread_local=False)
    assert lock.acquire()
    held("held")
    client.set(NAME, "f" * 32, px=60000)
    held("taken")
    return lock


def release():
    lost().release()


def extend():
    lost().extend(10)


def reacquire():
    lost().reacquire()


def wait():
    client.set(NAME, "f" * 32, px=60000)
    with client.lock(NAME, timeout=60, blocking_timeout=0.2):
        pass


def release_twice():
    lock = client.lock(NAME, timeout=60)
    assert lock.acquire()
    lock.release()
    lock.release()


def context_manager():
    with client.lock(NAME, timeout=60) as lock:
        log.info("working")
        client.set(NAME, "f" * 32, px=60000)


def chained():
    """The program reports the failure twice: as the cause and as the consequence."""
    try:
        lost().release()
    except LockError as error:
        raise RuntimeError("invoice 17 was not booked") from error


def while_handling():
    lock = lost()
    try:
        raise ValueError("no such invoice")
    finally:
        lock.release()


def quiet_context_manager():
    """Since 6.0 the library logs the failure itself and raises nothing."""
    with client.lock(NAME, timeout=60, raise_on_release_error=False):
        client.set(NAME, "f" * 32, px=60000)


SYNC = {
    "release": (release, release_refused),
    "extend": (extend, renewal_refused),
    "reacquire": (reacquire, renewal_refused),
    "wait": (wait, busy),
    "release_twice": (release_twice, release_refused),
    "context_manager": (context_manager, release_refused),
    "chained": (chained, release_refused),
    "while_handling": (while_handling, release_refused),
    "quiet_context_manager": (quiet_context_manager, release_refused),
}


async def async_lost(aio):
    lock = aio.lock(NAME, timeout=60, thread_local=False)
    assert await lock.acquire()
    held("held")
    await aio.set(NAME, "f" * 32, px=60000)
    held("taken")
    return lock


async def async_release(aio):
    await (await async_lost(aio)).release()


async def async_extend(aio):
    await (await async_lost(aio)).extend(10)


async def async_wait(aio):
    await aio.set(NAME, "f" * 32, px=60000)
    async with aio.lock(NAME, timeout=60, blocking_timeout=0.2):
        pass


async def async_context_manager(aio):
    async with aio.lock(NAME, timeout=60):
        await aio.set(NAME, "f" * 32, px=60000)


ASYNC = {
    "release": (async_release, release_refused),
    "extend": (async_extend, renewal_refused),
    "wait": (async_wait, busy),
    "context_manager": (async_context_manager, release_refused),
}


def run_async(work):
    import redis.asyncio

    async def main():
        aio = redis.asyncio.Redis.from_url(REDIS_URL)
        try:
            if SETUP == "task":
                task = asyncio.get_running_loop().create_task(work(aio))
                while not task.done():
                    await asyncio.sleep(0.01)
            else:
                await work(aio)
        finally:
            await aio.aclose()

    asyncio.run(main())


def main():
    if os.environ.get("LIBRARY") == "asyncio":
        work, told = ASYNC[SCENARIO]
        steps = lambda: run_async(work)  # noqa: E731
    else:
        steps, told = SYNC[SCENARIO]
    log.info("booking invoice %s", 17) if not SETUP.startswith("structlog") else log.info("booking invoice", number=17)
    if SETUP == "uncaught":
        # Reported first, because this process is about to end.
        told()
        steps()
    elif SETUP == "thread":
        told()
        thread = threading.Thread(target=steps, name="Thread-7")
        thread.start()
        thread.join()
    elif SETUP == "task":
        told()
        steps()
    else:
        try:
            steps()
            if SCENARIO == "quiet_context_manager":
                told()
        except (LockError, RuntimeError) as error:
            told()
            report(log, "could not book the invoice", error)
        except ValueError as error:
            report(log, "could not book the invoice", error)
    log.info("done")


if __name__ == "__main__":
    main()
