//! Asks the exporter and Prometheus how things are. Neither answering is no error: whether they still run is looked at elsewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Context as _;
use serde::Deserialize;

use super::alerts::Told;
use super::samples::Samples;
use crate::fleet::cordum::Pace;
use crate::http_client::{self, Limits, below};
use crate::rule_scaling::to_text;

/// Over which the rules count bad slices for a page.
const SLICES_WINDOW: Duration = Duration::from_secs(600);

pub(super) struct Observer {
    exporter: String,
    pub(super) prometheus: Option<String>,
    slices: String,
    limits: Limits,
}

/// What is known at one moment.
pub(super) struct Look {
    pub(super) samples: Option<Samples>,
    /// None: Prometheus did not answer.
    pub(super) alerts: Option<Vec<Told>>,
    /// Bad slices by namespace, of the rule about lost locks.
    pub(super) bad_slices: BTreeMap<String, u64>,
}

#[derive(Deserialize)]
struct Answer<T> {
    data: T,
}

#[derive(Deserialize)]
struct TheAlerts {
    alerts: Vec<Told>,
}

#[derive(Deserialize)]
struct Vector {
    result: Vec<Element>,
}

#[derive(Deserialize)]
struct Element {
    metric: Metric,
    value: (f64, String),
}

/// Whatever its labels are.
#[derive(Deserialize)]
struct UpVector {
    result: Vec<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
struct Metric {
    lock_namespace: String,
}

impl Observer {
    pub(super) fn new(exporter: String, pace: &Pace) -> Self {
        let window = to_text(pace.of(SLICES_WINDOW));
        let slices = format!("sum_over_time(lock_namespace:redis_lock_not_owned:slice_bad[{window}])>0");
        let limits = Limits { time: Duration::from_secs(5), ..Limits::default() };
        Self { exporter, prometheus: None, slices: encode(&slices), limits }
    }

    /// The exporter sees every change of a lock.
    pub(super) async fn is_watching(&self) -> bool {
        let samples = self.get(&below(&self.exporter, "/metrics")).await.ok().map(Samples::new);
        samples.is_some_and(|samples| samples.is_watching())
    }

    /// Prometheus, if it is there, has seen the exporter and has nothing to complain about any more: before its first scrape the
    /// exporter is absent for the rules.
    pub(super) async fn is_calm(&self) -> bool {
        let Some(prometheus) = &self.prometheus else { return true };
        let up = self.ask::<UpVector>(&below(prometheus, &format!("/api/v1/query?query={}", encode("up==1")))).await;
        let alerts = self.ask::<TheAlerts>(&below(prometheus, "/api/v1/alerts")).await;
        up.is_ok_and(|vector| !vector.result.is_empty()) && alerts.is_ok_and(|answer| answer.alerts.is_empty())
    }

    pub(super) async fn look(&self) -> Look {
        let samples = self.get(&below(&self.exporter, "/metrics")).await.ok().map(Samples::new);
        let Some(prometheus) = &self.prometheus else {
            return Look { samples, alerts: None, bad_slices: BTreeMap::new() };
        };
        let alerts = self.ask::<TheAlerts>(&below(prometheus, "/api/v1/alerts")).await;
        let slices = self.ask::<Vector>(&below(prometheus, &format!("/api/v1/query?query={}", self.slices))).await;
        let elements = slices.map(|vector| vector.result).unwrap_or_default();
        let count = |element: Element| (element.metric.lock_namespace, element.value.1.parse().unwrap_or(0));
        Look {
            samples,
            alerts: alerts.ok().map(|answer| answer.alerts),
            bad_slices: elements.into_iter().map(count).collect(),
        }
    }

    async fn ask<T: for<'a> Deserialize<'a>>(&self, url: &str) -> anyhow::Result<T> {
        let text = self.get(url).await?;
        Ok(serde_json::from_str::<Answer<T>>(&text).with_context(|| format!("cannot read the answer of {url}"))?.data)
    }

    async fn get(&self, url: &str) -> anyhow::Result<String> {
        http_client::get(url, &self.limits).await?.text()
    }
}

/// For a parameter of a URL.
fn encode(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' | b'.' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(encode).collect()
}
