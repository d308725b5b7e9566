//! Queries to a Prometheus server, for `advise`, the drill and the demo.
//!
//! Errors name the server's address without user and password. Connection errors omit the query,
//! because a long query would hide the reason.

use std::collections::BTreeMap;

use anyhow::{Context as _, anyhow, bail};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::client::http::{ClientLimits, Response, below, get, shown};
use crate::util::percent::percent_encode;

pub struct Prometheus {
    base: String,
    limits: ClientLimits,
}

/// One series of a query result.
#[derive(Clone, Debug, Deserialize)]
pub struct Series {
    pub metric: BTreeMap<String, String>,
    /// The time, and the number as text.
    pub value: (f64, String),
}

#[derive(Deserialize)]
struct QueryResponse<T> {
    status: String,
    data: Option<T>,
    error: Option<String>,
}

#[derive(Deserialize)]
struct Vector {
    result: Vec<Series>,
}

impl Series {
    /// Returns the label's value, or an empty string if the label is missing.
    pub fn label(&self, name: &str) -> &str {
        self.metric.get(name).map_or("", String::as_str)
    }

    pub fn number(&self) -> Option<f64> {
        self.value.1.parse().ok().filter(|number: &f64| number.is_finite())
    }
}

impl Prometheus {
    pub fn new(base: &str, limits: ClientLimits) -> Self {
        Self { base: base.to_owned(), limits }
    }

    /// The server's address without user and password.
    pub fn shown(&self) -> String {
        shown(&self.base)
    }

    /// Evaluates a query now.
    pub async fn query(&self, query: &str) -> anyhow::Result<Vec<Series>> {
        let vector: Vector = self.ask(&format!("query?query={}", percent_encode(query)), query).await?;
        Ok(vector.result)
    }

    /// Returns the data of another endpoint. `what` is a path below `/api/v1/`.
    pub async fn data<T: DeserializeOwned>(&self, what: &str) -> anyhow::Result<T> {
        self.ask(what, what).await
    }

    async fn ask<T: DeserializeOwned>(&self, path: &str, question: &str) -> anyhow::Result<T> {
        let url = below(&self.base, &format!("api/v1/{path}"));
        let name = self.shown();
        let unasked = |error: anyhow::Error| anyhow!("{}", format!("{error:#}").replace(&shown(&url), &name));
        let Response { status, body } = get(&url, &self.limits).await.map_err(unasked)?;
        let answer: QueryResponse<T> = serde_json::from_slice(&body)
            .with_context(|| format!("{name} answers with the status {status}, but not as Prometheus does"))?;
        match (answer.status.as_str(), answer.data) {
            ("success", Some(data)) => Ok(data),
            _ => bail!("Prometheus at {name} refuses {question:?}: {}", answer.error.unwrap_or_default()),
        }
    }
}
