//! THE state, pure: no I/O, no clock, cannot fail. Time and events come in as arguments.

pub mod counters;
