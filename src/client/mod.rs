//! HTTP requests to an exporter or to Prometheus, for the commands that query one. The daemon does
//! not use this module.
//!
//! `advise`, `healthcheck`, `drill` and `demo` call this module. In reading order:
//!
//! * `http`: one GET of one URL
//! * `prometheus`: queries to a Prometheus server
//! * `scrape`: the samples of a `/metrics` page

pub mod http;
pub mod prometheus;
pub mod scrape;
