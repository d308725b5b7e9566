//! The subcommands, one file each. They talk to people: text and JSON on standard output, complaints on standard error.

pub mod check;
