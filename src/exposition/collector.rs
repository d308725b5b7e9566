//! Walks the tables of metrics over one snapshot and passes every sample to the encoder of
//! prometheus-client.
//!
//! A metric without samples is omitted. Samples have the order of the configuration, and label
//! values have the order of their enum, so two scrapes of one snapshot are equal.

use std::sync::LazyLock;
use std::{fmt, iter};

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet};

use super::Scrape;
use super::metric::{Distribution, Metric, MetricKind, Number, Numbers};
use super::metrics::{metrics, seconds, timestamp};
use crate::config::rules::countable::CountableSeries;
use crate::model::counters::Tally;
use crate::model::failure::{Cause, FailureKind};
use crate::model::label::Label;
use crate::model::namespace::Namespace;
use crate::model::sighting::OperationsSource;
use crate::report::advice::{Advice, BucketedSample, Evidence, advise};
use crate::snapshot::{KeyspaceView, NamespaceView, Ratios, Snapshot};

#[derive(Debug)]
pub(super) struct SnapshotCollector {
    scrape: Scrape,
    /// The TTL advice of each namespace. Computed once, because several metrics show it.
    advice: Vec<Option<Advice>>,
}

impl SnapshotCollector {
    pub(super) fn new(scrape: Scrape) -> Self {
        let Snapshot { namespaces, redis, .. } = &*scrape.snapshot;
        let replies = redis.as_ref().map(|redis| BucketedSample::of(&redis.now.reply_seconds)).unwrap_or_default();
        let advice = namespaces.iter().map(|view| Some(advise(&view.namespace, &Evidence::of(view, &replies)?)));
        Self { advice: advice.collect(), scrape }
    }
}

impl Collector for SnapshotCollector {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for metric in metrics() {
            let samples = self.scrape.samples(metric, &self.advice);
            if samples.is_empty() {
                continue;
            }
            // The names contain the units. UNIT lines would only repeat them.
            let mut family =
                encoder.encode_descriptor(metric.family(), metric.help, None, metric.kind.metric_type())?;
            for sample in samples {
                encode_sample(&mut family, metric.kind, &sample)?;
            }
        }
        Ok(())
    }
}

struct MetricSample<'a> {
    labels: Vec<(&'static str, &'a str)>,
    value: SampleValue,
}

enum SampleValue {
    Number(Number),
    Distribution(Distribution),
}

impl Scrape {
    fn samples<'a>(&'a self, metric: &Metric, advice: &'a [Option<Advice>]) -> Vec<MetricSample<'a>> {
        let names = metric.labels();
        match metric.numbers {
            Numbers::Namespace(read) => {
                let views = self.snapshot.namespaces.iter();
                views.filter_map(|view| sample(names, &[&view.namespace.name], read(view))).collect()
            }
            Numbers::Failures(kind) => self.failures(names, kind),
            Numbers::Cause => {
                // Locks of a namespace without key templates are not observed in Redis, so their
                // cause is always unknown.
                let can_be =
                    |cause: &Cause, view: &NamespaceView| !view.namespace.keys.is_empty() || *cause == Cause::Unknown;
                let views = self.snapshot.namespaces.iter();
                views
                    .flat_map(|view| {
                        let causes = view.causes.iter().filter(|(cause, _)| can_be(cause, view));
                        causes.filter_map(|(cause, count)| {
                            sample(names, &[&view.namespace.name, cause.as_str()], Some(Number::Whole(count)))
                        })
                    })
                    .collect()
            }
            Numbers::Keyspace(read) => self
                .observed()
                .filter_map(|seen| sample(names, &seen.labels(), read(seen.namespace, seen.view)))
                .collect(),
            Numbers::Advice(read) => {
                let advised = self.advised(advice);
                advised.filter_map(|(labels, advice)| sample(names, &labels, seconds(read(advice)))).collect()
            }
            Numbers::Distribution(read) => {
                let distributions = self.observed().filter_map(|seen| {
                    let labels = label(names, &seen.labels());
                    read(seen.namespace, seen.view)
                        .map(|value| MetricSample { labels, value: SampleValue::Distribution(value) })
                });
                distributions.collect()
            }
            Numbers::OwnerChange => {
                let seen = self.observed();
                seen.flat_map(|seen| counted(names, &seen.labels(), &seen.view.counters.owner_changes)).collect()
            }
            Numbers::Takeover => self.observed().flat_map(|seen| seen.takeovers(names)).collect(),
            Numbers::LastHeld => self.observed().flat_map(|seen| seen.last_held(names)).collect(),
            Numbers::OperationsSource => {
                let sources = self.observed().filter_map(|seen| {
                    let source = seen.view.now.source.unwrap_or(OperationsSource::None);
                    sample(names, &[seen.redis, &seen.namespace.name, source.as_str()], Some(Number::Whole(1)))
                });
                sources.collect()
            }
            Numbers::Ratio(read) => self.observed().flat_map(|seen| seen.ratios(names, read)).collect(),
            Numbers::Policy => {
                let namespaces = self.snapshot.namespaces.iter().map(|view| &view.namespace);
                let policies = namespaces.filter_map(|namespace| {
                    let policy = [
                        namespace.name.as_str(),
                        namespace.style.as_str(),
                        namespace.on_renewal_failure.as_str(),
                        namespace.severity.as_str(),
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
            Numbers::Redis(read) => {
                let redis = self.snapshot.redis.iter();
                redis.filter_map(|redis| sample(names, &[], read(&redis.now))).collect()
            }
            Numbers::RedisDistribution(read) => {
                let distributions = self.snapshot.redis.iter().map(|redis| SampleValue::Distribution(read(&redis.now)));
                distributions.map(|value| MetricSample { labels: Vec::new(), value }).collect()
            }
            Numbers::Command(read) => {
                let commands = self.snapshot.redis.iter().flat_map(|redis| read(&redis.now));
                commands.filter_map(|(name, count)| sample(names, &[name], Some(Number::Whole(count)))).collect()
            }
            Numbers::Process(read) => Vec::from_iter(sample(names, &[], read(&self.process))),
            Numbers::Build => {
                Vec::from_iter(sample(names, &[self.build.version, self.build.revision], Some(Number::Whole(1))))
            }
        }
    }

    /// Returns a sample for every series that can be counted for a namespace, including zeros:
    /// Prometheus sees an increase at the first failure only if the series already exists at 0.
    /// Series that were counted are always shown.
    fn failures(&self, names: &[&'static str], kind: FailureKind) -> Vec<MetricSample<'_>> {
        let mut samples = Vec::new();
        for (view, countable) in self.countable() {
            let series = view.logs.series(kind).filter(|(failure, count)| *count > 0 || countable.contains(*failure));
            samples.extend(series.filter_map(|(failure, count)| {
                let labels: Vec<&str> = iter::once(view.namespace.name.as_str()).chain(failure.label_value()).collect();
                sample(names, &labels, Some(Number::Whole(count)))
            }));
        }
        samples
    }

    /// Returns each namespace with the series that can be counted for it.
    fn countable(&self) -> impl Iterator<Item = (&NamespaceView, &CountableSeries)> {
        static EVERYTHING: LazyLock<CountableSeries> = LazyLock::new(CountableSeries::everything);
        let countable = self.snapshot.countable.iter().chain(iter::repeat(&*EVERYTHING));
        self.snapshot.namespaces.iter().zip(countable)
    }

    /// Returns the namespaces that are observed in Redis, with their labels and their TTL advice.
    fn advised<'a>(&'a self, advice: &'a [Option<Advice>]) -> impl Iterator<Item = ([&'a str; 2], &'a Advice)> {
        self.snapshot.redis.iter().flat_map(move |redis| {
            let views = self.snapshot.namespaces.iter().zip(advice);
            views.filter_map(|(view, advice)| Some(([redis.name.as_str(), &view.namespace.name], advice.as_ref()?)))
        })
    }

    /// Returns the namespaces that are observed in Redis.
    fn observed(&self) -> impl Iterator<Item = Observed<'_>> {
        let redis = self.snapshot.redis.iter().map(|redis| redis.name.as_str());
        redis.flat_map(|redis| self.snapshot.namespaces.iter().filter_map(move |view| Observed::new(redis, view)))
    }
}

/// One namespace as observed in Redis.
#[derive(Clone, Copy)]
struct Observed<'a> {
    redis: &'a str,
    namespace: &'a Namespace,
    view: &'a KeyspaceView,
}

impl<'a> Observed<'a> {
    fn new(redis: &'a str, view: &'a NamespaceView) -> Option<Self> {
        let NamespaceView { namespace, keyspace, .. } = view;
        keyspace.as_ref().map(|view| Self { redis, namespace, view })
    }

    fn labels(self) -> [&'a str; 2] {
        [self.redis, &self.namespace.name]
    }

    fn sample(self, names: &[&'static str], last_label: &'a str, value: Option<Number>) -> Option<MetricSample<'a>> {
        sample(names, &[self.redis, &self.namespace.name, last_label], value)
    }

    /// Returns both label values from the start, but only if `takeover_slo` is configured.
    fn takeovers(self, names: &[&'static str]) -> Vec<MetricSample<'a>> {
        let counters = &self.view.counters;
        let counts = [("true", counters.takeovers_within_slo), ("false", counters.takeovers_beyond_slo)];
        let counts = counts.into_iter().filter(|_| self.namespace.takeover_slo.is_some());
        counts.filter_map(|(within, count)| self.sample(names, within, Some(Number::Whole(count)))).collect()
    }

    fn last_held(self, names: &[&'static str]) -> Vec<MetricSample<'a>> {
        let times = self.view.now.last_held.iter();
        times.filter_map(|(lock, time)| self.sample(names, lock, timestamp(*time))).collect()
    }

    fn ratios(self, names: &[&'static str], read: fn(&Namespace, &Ratios) -> Option<f64>) -> Vec<MetricSample<'a>> {
        let windows = Ratios::WINDOWS.iter().zip(&self.view.ratios);
        windows
            .filter_map(|((window, _), ratios)| self.sample(names, window, rounded(read(self.namespace, ratios))))
            .collect()
    }
}

fn counted<'a, L: Label>(names: &[&'static str], labels: &[&'a str], tally: &Tally<L>) -> Vec<MetricSample<'a>> {
    let counts = tally.iter();
    let samples = counts.filter_map(|(label, count)| {
        let labels: Vec<&str> = labels.iter().copied().chain([label.as_str()]).collect();
        sample(names, &labels, Some(Number::Whole(count)))
    });
    samples.collect()
}

fn rounded(share: Option<f64>) -> Option<Number> {
    share.map(|share| Number::Real(six_digits(share)))
}

/// More digits of ratios and sums are noise, and they would be part of every scrape.
fn six_digits(number: f64) -> f64 {
    (number * 1e6).round() / 1e6
}

fn sample<'a>(names: &[&'static str], values: &[&'a str], value: Option<Number>) -> Option<MetricSample<'a>> {
    let value = SampleValue::Number(value?);
    Some(MetricSample { labels: label(names, values), value })
}

fn label<'a>(names: &[&'static str], values: &[&'a str]) -> Vec<(&'static str, &'a str)> {
    debug_assert_eq!(names.len(), values.len());
    names.iter().copied().zip(values.iter().copied()).collect()
}

fn encode_sample(family: &mut MetricEncoder<'_>, kind: MetricKind, sample: &MetricSample<'_>) -> fmt::Result {
    match kind {
        MetricKind::Info => family.encode_info(&sample.labels),
        // For an empty list of labels, `encode_family` would write empty braces.
        _ if sample.labels.is_empty() => encode_value(family, kind, &sample.value),
        _ => encode_value(&mut family.encode_family(&sample.labels)?, kind, &sample.value),
    }
}

fn encode_value(encoder: &mut MetricEncoder<'_>, kind: MetricKind, value: &SampleValue) -> fmt::Result {
    match (kind, value) {
        (_, SampleValue::Distribution(Distribution { sum, buckets })) => {
            let count = buckets.iter().map(|(_, count)| count).sum();
            encoder.encode_histogram::<NoLabelSet>(six_digits(*sum), count, buckets, None)
        }
        (MetricKind::Counter, SampleValue::Number(Number::Whole(value))) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(value, None)
        }
        (MetricKind::Counter, SampleValue::Number(Number::Real(value))) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(value, None)
        }
        (_, SampleValue::Number(Number::Whole(value))) => encoder.encode_gauge(value),
        (_, SampleValue::Number(Number::Real(value))) => encoder.encode_gauge(value),
    }
}
