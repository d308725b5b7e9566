//! Small helpers that do not know about locks. Every other module may use them.
//!
//! * `clock`: the wall clock and a clock that never jumps
//! * `units`: durations and sizes as people write them
//! * `backoff`: waiting times that grow after each failure
//! * `percent`: percent encoding of URLs
//! * `html`: text that is safe in HTML
//! * `ports`: free ports for the servers that drills, demos and tests start

pub(crate) mod backoff;
pub mod clock;
pub(crate) mod html;
pub(crate) mod percent;
pub mod ports;
pub(crate) mod units;
