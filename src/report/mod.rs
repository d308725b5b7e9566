//! Sentences for people, computed from a snapshot. Nothing here does I/O.
//!
//! The page, the API, `/metrics` and `advise` call this module. In reading order:
//!
//! * `health`: what is wrong now, as sentences with a level
//! * `advice`: which TTL and renewal interval the locks should have

pub mod advice;
pub mod health;
