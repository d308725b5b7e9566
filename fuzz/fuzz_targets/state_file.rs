//! A state file of any bytes: it is understood or refused, and never panics or takes memory that its size does not explain.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let _ = redis_lock_exporter::daemon::state_file::decode(bytes);
});
