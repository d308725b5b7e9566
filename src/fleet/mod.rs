//! Workers that really lock: simulated services on a real Redis, and a record of what they really did.
//!
//! The only part of the program that writes to Redis, and only in keys that it was given. The record is the truth that
//! what the exporter says is compared with.

mod locker;
mod random;
mod record;
mod worker;

pub use locker::{Locker, Token};
pub use random::Random;
pub use record::{Deed, End, Record, Truth};
pub use worker::{Behavior, run};
