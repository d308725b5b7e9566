"""Reports what a program that uses a lock library knows about its own failures to the conductor.

A program calls `failed` when the library has refused something, and `held` when it holds a lock that the conductor should read.
Both use separate pipes (WITNESS_OUT, WITNESS_IN), so that the log contains only the output of programs.
"""

import json
import os

REDIS_URL = os.environ["REDIS_URL"]
SETUP = os.environ["SETUP"]
SCENARIO = os.environ["SCENARIO"]
NAME = os.environ["LOCK_NAME"]

_out = int(os.environ["WITNESS_OUT"])
_in = int(os.environ["WITNESS_IN"])


def tell(what):
    os.write(_out, (json.dumps(what) + "\n").encode())


def failed(event, operation=None, reason=None, key=None, **more):
    """Reports one failure. Set `key` only if the log contains it, because otherwise no reader of the log can know it."""
    tell({"failed": {"event": event, "operation": operation, "reason": reason, "lock_key": key, **more}})


def release_refused(key=None, **more):
    failed("release_failed", "release", "not_owned", key, **more)


def renewal_refused(key=None):
    failed("renewal_failed", "renew", "not_owned", key)


def busy(key=None):
    failed("acquire_failed", "acquire", "busy", key)


def held(state):
    """Waits until the conductor has read the keys. `state` is what they show: `held`, `taken` (by another owner), `gone`."""
    tell({"held": state})
    os.read(_in, 1)
