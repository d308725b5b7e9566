//! Workers that really lock: simulated services on a real Redis, and a record of what they really did.
//!
//! The only part of the program that writes to Redis, and only in keys that it was given; a [`Territory`] sees to that where
//! the Redis is not ours. The record is the truth that what the exporter says is compared with.

mod behavior;
pub mod cordum;
mod failures;
mod gate;
mod key_scope;
mod locker;
mod proxy;
mod random;
mod record;
mod server;
mod worker;

pub use behavior::{Behavior, run};
pub use failures::{Comparison, Failures};
pub use gate::Gate;
pub use key_scope::{Cleared, Territory};
pub use locker::{Locker, RELEASE, Token, resource};
pub use proxy::{Proxy, client_through};
pub use random::{Random, Uuid};
pub use record::{End, Record, Truth};
pub use server::{Ended, Server};
pub use worker::{Answer, Hold, Kept, Lock, Next, Program, Trouble, Worker};
