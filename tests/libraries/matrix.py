"""The libraries that run, with their versions and logging setups."""

PYTHON_SETUPS = ["exception", "json", "structlog-json", "structlog-dict", "structlog-console", "uncaught", "thread"]
OLD_SETUPS = ["exception", "uncaught"]
# What a log contains, if that is less than the program knows.
UNKNOWN = {"event": "not_owned", "operation": "unknown", "reason": "not_owned"}
BUSY = {"event": "acquire_failed", "operation": "acquire", "reason": "busy"}
RUST_SETUPS = ["message", "tracing", "tracing-debug", "tracing-json", "env-logger", "report", "report-deep", "panic", "expect"]
NODE_SETUPS = ["console", "message", "json", "pino", "winston", "unhandled"]


def matrix(Fixture, here, packages):
    python = lambda environment, program: [str(packages / "python" / environment / "bin/python"), str(here / "python" / program)]  # noqa: E731
    found = []

    def add(preset, library, version, setups, command, scenarios, environment=None, told=None, checked="run"):
        for setup in setups:
            found.append(Fixture(preset, library, version, setup, command, scenarios, environment, told, checked))

    # redis-py
    basic = ["release", "extend", "reacquire", "wait", "release_twice", "context_manager", "chained", "while_handling"]
    new = python("new", "redis_py.py")
    # The message does not contain the cause of an error, so a program that logs only messages does
    # not show it.
    unchained = [scenario for scenario in basic if scenario != "chained"]
    add("redis-py", "redis-py", "8.1.0", ["message"], new, [*unchained, "quiet_context_manager"])
    # Since version 8, `repr` of an error is only its class.
    add("redis-py", "redis-py", "8.1.0", ["repr"], new, [*unchained, "quiet_context_manager"], told=dict.fromkeys(unchained, UNKNOWN))
    add("redis-py", "redis-py", "5.0.8", ["repr"], python("redis-5.0", "redis_py.py"), unchained)
    add("redis-py", "redis-py", "8.1.0", PYTHON_SETUPS, new, [*basic, "quiet_context_manager"])
    for version, environment in (("5.0.8", "redis-5.0"), ("4.6.0", "redis-4"), ("3.5.3", "redis-3")):
        add("redis-py", "redis-py", version, OLD_SETUPS, python(environment, "redis_py.py"), basic)
    add("redis-py", "redis-py", "2.10.6", OLD_SETUPS, python("redis-2", "redis_py.py"), ["release", "extend", "release_twice", "context_manager"])
    asynchronous = ["release", "extend", "wait", "context_manager"]
    add("redis-py", "redis-py-asyncio", "8.1.0", ["exception", "json", "uncaught", "task"], new, asynchronous, {"LIBRARY": "asyncio"})
    add("redis-py", "redis-py-asyncio", "5.0.8", ["exception", "uncaught"], python("redis-5.0", "redis_py.py"), asynchronous, {"LIBRARY": "asyncio"})
    add("redis-py", "django-redis", "7.0.0", ["django"], python("new", "django_cache.py"), ["release", "extend", "wait"])
    add("redis-py", "celery", "5.7.0", ["worker"], python("celery", "celery_worker.py"), ["release", "extend", "wait", "retry"])
    add("redis-py", "redbeat", "2.4.2", ["beat"], python("celery", "redbeat_beat.py"), ["renew"])
    add("redis-py", "gunicorn", "27.0.0", ["request"], python("new", "gunicorn_app.py"), ["release"])
    # Other Python libraries
    add("python-redis-lock", "python-redis-lock", "4.0.1", ["exception", "uncaught"], python("new", "python_redis_lock.py"),
        ["release", "extend", "renewal_thread", "wait"])
    add("python-redis-lock", "python-redis-lock", "4.0.1", ["json"], python("new", "python_redis_lock.py"), ["release", "extend", "renewal_thread", "wait", "wait_with"])
    # Without its stack, a refused release has the same text as a busy `with`, but the latter has a
    # warning before it.
    add("python-redis-lock", "python-redis-lock", "4.0.1", ["message"], python("new", "python_redis_lock.py"),
        ["release", "extend", "renewal_thread", "wait", "wait_with"], told={"release": UNKNOWN})
    add("python-redis-lock", "python-redis-lock", "4.0.1", ["exception-with", "uncaught-with"], python("new", "python_redis_lock.py"), ["wait_with"])
    add("pottery", "pottery", "3.0.1", ["repr", "exception", "json", "uncaught"], python("new", "pottery_redlock.py"), ["release", "extend", "wait"])
    # `str` of an error is only its arguments.
    add("pottery", "pottery", "3.0.1", ["message"], python("new", "pottery_redlock.py"), ["release", "extend", "wait"],
        told=dict.fromkeys(["release", "extend", "wait"], UNKNOWN))
    add("celery-singleton", "celery-singleton", "0.3.1", ["message", "repr", "exception", "json", "uncaught"], python("celery", "singleton.py"), ["wait"])
    add("aioredlock", "aioredlock", "0.7.3", ["exception", "json", "uncaught"], python("aioredlock", "aioredlock_lock.py"), ["release", "extend", "wait"])

    # Node
    def node(preset, library, version, generation, setups, program, scenarios, package=None, told=None):
        environment = {"PACKAGES": str(packages / "node" / generation), "LIBRARY": package or library}
        add(preset, library, version, setups, ["node", str(here / "node" / program)], scenarios, environment, told)

    redlock = ["release", "extend", "expired", "wait"]
    stacks = [setup for setup in NODE_SETUPS if setup != "message"]
    node("node-redlock", "redlock", "5.0.0-beta.2", "new", stacks, "redlock.mjs", redlock)
    # The text of the quorum without its stack.
    node("node-redlock", "redlock", "5.0.0-beta.2", "new", ["message"], "redlock.mjs", redlock, told=dict.fromkeys(["release", "extend", "wait"], UNKNOWN))
    node("node-redlock", "redlock", "5.0.0-beta.1", "beta1", ["console", "unhandled"], "redlock.mjs", redlock)
    # Version 4 uses the same text for a refused extension and for a busy lock, and no stack shows
    # the call.
    node("node-redlock", "redlock", "4.2.0", "old", NODE_SETUPS, "redlock.mjs", redlock, told={"extend": BUSY})
    node("node-redlock", "sesamecare-redlock", "1.4.0", "new", ["console", "json", "unhandled"], "redlock.mjs", redlock, "@sesamecare-oss/redlock")
    jobs = ["complete", "taken", "fail", "renew"]
    node("bullmq", "bullmq", "6.7.0", "new", ["console", "message", "json", "pino", "winston"], "bullmq.mjs", jobs)
    # BullMQ reports one refused end of a job twice (taskforcesh/bullmq#3498).
    node("bullmq", "bullmq", "5.61.0", "bullmq5", ["console", "message", "json"], "bullmq.mjs", jobs)
    node("bullmq", "bullmq", "3.16.2", "beta1", ["console", "json"], "bullmq.mjs", jobs)
    node("bullmq", "bullmq", "1.91.1", "old", ["console", "json"], "bullmq.mjs", jobs)
    node("bullmq", "bull", "4.16.5", "new", ["console", "json", "pino"], "bull.mjs", ["complete", "taken", "fail"])
    node("bullmq", "bull", "3.29.3", "old", ["console", "json"], "bull.mjs", ["complete", "taken", "fail"])
    semaphore = ["lost", "wait", "semaphore_lost", "semaphore_wait"]
    node("redis-semaphore", "redis-semaphore", "5.8.0", "new", NODE_SETUPS, "semaphore.mjs", semaphore)
    node("redis-semaphore", "redis-semaphore", "4.1.0", "old", ["console", "unhandled"], "semaphore.mjs", semaphore)

    # Rust
    rslock = [str(packages / "rust/debug/rslock_witness")]
    add("rslock", "rslock", "0.10.0", RUST_SETUPS, rslock, ["release", "is_freed", "is_freed_gone", "extend", "using", "wait"], {"RUST_BACKTRACE": "0"})
    add("rslock", "rslock", "0.10.0", ["report-backtrace", "panic-backtrace"], rslock, ["is_freed", "extend"], {"RUST_BACKTRACE": "1"})

    # PHP, from Debian's packages
    php = lambda program: ["php", "-d", "display_errors=0", "-d", "log_errors=1", "-d", "html_errors=0", "-d", "zend.assertions=1", "-d", "assert.exception=1", str(here / "php" / program)]  # noqa: E731
    add("symfony-lock", "symfony-lock", "5.4.53", ["line", "stacktrace", "json", "uncaught"], php("symfony.php"), ["wait", "refresh", "release"])
    add("laravel", "illuminate-cache", "8.83.26", ["line", "stacktrace", "json", "uncaught"], php("laravel.php"), ["release", "forever", "wait", "previous"])

    # Ruby, from Debian's packages. The text is from the library's source.
    add("sidekiq-unique-jobs", "sidekiq", "6.4.1", ["line", "json"], ["ruby", str(here / "ruby/sidekiq_conflict.rb")], ["retry"], checked="source")

    # Messages that resemble lock failures but have nothing to do with Redis.
    add("near-misses", "jdk", "17", ["logging"], ["java", str(here / "java/NearMisses.java")], ["all"])
    return found
