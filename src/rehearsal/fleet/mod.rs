//! Simulated services that really lock in a real Redis, and a record of what they did.
//!
//! `drill`, `demo`, tests and examples use this module. Nothing else in the program writes to
//! Redis. It writes only to the keys that it was given. On a Redis that is not our own, a
//! [`KeyScope`] enforces that. Tests compare the record with what the exporter reports. In reading
//! order:
//!
//! * `locker`: the operations of a lock
//! * `worker`: one worker, and how its process is paused
//! * `behavior`: workers that make mistakes, decided by a seed; `random`: the generator
//! * `record`, `failures`: what really happened
//! * `server`, `proxy`: a Redis of our own, and a network that can fail
//! * `key_scope`: where a run may write
//! * `cordum`: a small Cordum

mod behavior;
pub mod cordum;
mod failures;
mod key_scope;
mod locker;
mod proxy;
mod random;
mod record;
mod server;
mod worker;

pub use behavior::{Behavior, run};
pub use failures::{Comparison, Failures};
pub use key_scope::{Cleared, KeyScope};
pub use locker::{LockToken, Locker, RELEASE, resource};
pub use proxy::{Proxy, client_through};
pub use random::{Random, Uuid};
pub use record::{End, OperationLog, Truth};
pub use server::{KilledOnDrop, Server};
pub use worker::{Kept, LockProgram, LockReply, LockSpec, PauseGate, RenewalAction, UnknownResult, Worker, WorkerHold};
