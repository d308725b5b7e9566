//! Where events come from. Each source turns something outside (log files, standard input) into batches for the pipeline.

pub mod blocks;
pub mod cursor;
pub mod extractor;
pub mod keyspace;
pub mod lines;
pub mod rules;
pub mod scout;
pub mod search;
pub mod stdin;
pub mod tailer;
