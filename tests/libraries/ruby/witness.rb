# What a program that uses a lock library knows about its own failures, told to whoever runs it: see python/witness.py.
require "json"

SETUP = ENV.fetch("SETUP")
SCENARIO = ENV.fetch("SCENARIO")
NAME = ENV.fetch("LOCK_NAME")
OUT = IO.for_fd(Integer(ENV.fetch("WITNESS_OUT")), "w")

def failed(event, operation, reason, key = nil)
  OUT.write(JSON.generate(failed: { event: event, operation: operation, reason: reason, lock_key: key }) + "\n")
  OUT.flush
end
