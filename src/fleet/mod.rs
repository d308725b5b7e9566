//! Workers that really lock: simulated services on a real Redis, and a record of what they really did.
//!
//! The only part of the program that writes to Redis, and only in keys that it was given; a [`Territory`] sees to that where
//! the Redis is not ours. The record is the truth that what the exporter says is compared with.

mod locker;
mod random;
mod record;
mod territory;
mod worker;

pub use locker::{Locker, Token, resource};
pub use random::Random;
pub use record::{Deed, End, Record, Truth};
pub use territory::{Cleared, Territory};
pub use worker::{Behavior, run};
