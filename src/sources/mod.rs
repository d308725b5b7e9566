//! Where events come from.

pub mod lines;
pub mod rules;
