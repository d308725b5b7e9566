//! Walks the table of metrics over one snapshot and hands every sample to prometheus-client's encoder.
//!
//! A metric without a single sample is left out whole. Samples keep the order of the configuration, and label values that
//! of their enum, so that two scrapes of one snapshot are equal.

use std::fmt;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};

use super::Scrape;
use super::metric::{Kind, Metric, Number, Numbers};
use super::names::METRICS;
use crate::event::Label;
use crate::ledger::counters::{LogCounters, Tally};
use crate::namespace::{OnRenewalFailure, Severity, Style};

#[derive(Debug)]
pub(super) struct SnapshotCollector(pub(super) Scrape);

impl Collector for SnapshotCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for metric in METRICS {
            let samples = self.0.samples(metric);
            if samples.is_empty() {
                continue;
            }
            // The encoder adds the unit to the name again.
            let unit = metric.unit();
            let unit_suffix = unit.as_ref().map_or(0, |unit| unit.as_str().len() + 1);
            let stem = &metric.family()[..metric.family().len() - unit_suffix];
            let mut family = encoder.encode_descriptor(stem, metric.help, unit.as_ref(), metric.kind.metric_type())?;
            for sample in samples {
                encode_sample(&mut family, metric.kind, &sample)?;
            }
        }
        Ok(())
    }
}

struct Sample<'a> {
    labels: Vec<(&'static str, &'a str)>,
    value: Number,
}

impl Scrape {
    fn samples(&self, metric: &Metric) -> Vec<Sample<'_>> {
        let names = metric.labels();
        match metric.numbers {
            Numbers::Namespace(read) => {
                let views = self.snapshot.namespaces.iter();
                views.filter_map(|view| sample(names, &[&view.namespace.name], read(view))).collect()
            }
            Numbers::Operation(tally) => self.tallied(names, tally),
            Numbers::Reason(tally) => self.tallied(names, tally),
            Numbers::Conflict(tally) => self.tallied(names, tally),
            Numbers::Policy => {
                let namespaces = self.snapshot.namespaces.iter().map(|view| &view.namespace);
                let policies = namespaces.filter_map(|namespace| {
                    let policy = [
                        namespace.name.as_str(),
                        style(namespace.style),
                        on_renewal_failure(namespace.on_renewal_failure),
                        severity(namespace.severity),
                    ];
                    sample(names, &policy, Some(Number::Whole(1)))
                });
                policies.collect()
            }
            Numbers::Source(read) => {
                let sources = self.snapshot.sources.iter();
                sources.filter_map(|source| sample(names, &[&source.name], read(source))).collect()
            }
            Numbers::Exporter(read) => Vec::from_iter(sample(names, &[], read(&self.snapshot.exporter))),
            Numbers::Table(read) => {
                let tables = read(&self.snapshot.exporter).iter();
                tables.filter_map(|(table, count)| sample(names, &[table], Some(Number::Whole(*count)))).collect()
            }
            Numbers::Process(read) => Vec::from_iter(sample(names, &[], read(&self.process))),
            Numbers::Build => {
                Vec::from_iter(sample(names, &[self.build.version, self.build.revision], Some(Number::Whole(1))))
            }
        }
    }

    /// Every value of the label for every namespace, zeros included: the first failure must be an increase.
    fn tallied<L: Label>(&self, names: &[&'static str], tally: fn(&LogCounters) -> &Tally<L>) -> Vec<Sample<'_>> {
        let mut samples = Vec::new();
        for view in &self.snapshot.namespaces {
            for (label, count) in tally(&view.logs).iter() {
                samples.extend(sample(names, &[&view.namespace.name, label.as_str()], Some(Number::Whole(count))));
            }
        }
        samples
    }
}

fn sample<'a>(names: &[&'static str], values: &[&'a str], value: Option<Number>) -> Option<Sample<'a>> {
    debug_assert_eq!(names.len(), values.len());
    let labels = names.iter().copied().zip(values.iter().copied()).collect();
    value.map(|value| Sample { labels, value })
}

fn encode_sample(family: &mut MetricEncoder<'_>, kind: Kind, sample: &Sample<'_>) -> fmt::Result {
    match kind {
        Kind::Info => family.encode_info(&sample.labels),
        // The encoder would write empty braces.
        _ if sample.labels.is_empty() => encode_value(family, kind, sample.value),
        _ => encode_value(&mut family.encode_family(&sample.labels)?, kind, sample.value),
    }
}

fn encode_value(encoder: &mut MetricEncoder<'_>, kind: Kind, value: Number) -> fmt::Result {
    match (kind, value) {
        (Kind::Counter, Number::Whole(value)) => encoder.encode_counter::<NoLabelSet, _, u64>(&value, None),
        (Kind::Counter, Number::Real(value)) => encoder.encode_counter::<NoLabelSet, _, u64>(&value, None),
        (_, Number::Whole(value)) => encoder.encode_gauge(&value),
        (_, Number::Real(value)) => encoder.encode_gauge(&value),
    }
}

fn style(style: Style) -> &'static str {
    match style {
        Style::Item => "item",
        Style::Loop => "loop",
    }
}

fn on_renewal_failure(policy: OnRenewalFailure) -> &'static str {
    match policy {
        OnRenewalFailure::Fence => "fence",
        OnRenewalFailure::Continue => "continue",
    }
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Page => "page",
        Severity::Ticket => "ticket",
    }
}
