//! Everything that runs for the demo, and what has happened so far. `demo` drives it; `view` and
//! `summary` read it.

use std::collections::{BTreeMap, VecDeque};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use tokio::time::{Instant, sleep};

use super::alerts::Alerts;
use super::observer::{DemoObservation, Observer};
use super::programs::{self, ChildProgram, find};
use super::receiver::{Notification, Receiver};
use crate::cli::{DemoArgs, DemoIncident};
use crate::rehearsal::fleet::cordum::{Fault, Fleet, Load, TimeScale};
use crate::rehearsal::fleet::{Proxy, Server};

/// The window of the displayed ratios, at speed 1. Equal to the length of a slice in the rules.
const RATIO_WINDOW: Duration = Duration::from_secs(120);
const READY: Duration = Duration::from_secs(30);
const CALM: Duration = Duration::from_secs(15);

/// By lock namespace: how many operations found the lock not owned, and how many succeeded.
type Operations = BTreeMap<&'static str, (f64, f64)>;

pub(super) struct DemoRun {
    pub(super) time_scale: TimeScale,
    pub(super) fleet: Fleet,
    redis: Server,
    /// The exporter's connection to Redis. After a failover it leads to the new server.
    road: Proxy,
    pub(super) exporter: ChildProgram,
    pub(super) is_without_prometheus: bool,
    pub(super) prometheus: Option<ChildProgram>,
    pub(super) alertmanager: Option<ChildProgram>,
    receiver: Receiver,
    observer: Observer,
    started: Instant,
    /// Whether the fleet has stopped.
    pub(super) is_over: bool,
    /// The events so far, each with the time since the start.
    pub(super) events: Vec<(Duration, String)>,
    pub(super) incidents: Vec<(Duration, DemoIncident)>,
    pub(super) faults: Vec<DemoIncident>,
    pub(super) alerts: Alerts,
    pub(super) notifications: Vec<(Duration, Notification)>,
    pub(super) latest: Option<DemoObservation>,
    history: VecDeque<(Instant, Operations)>,
}

impl DemoRun {
    /// Starts everything. The directory must be empty.
    pub(super) async fn set(args: &DemoArgs, directory: &Path) -> anyhow::Result<Self> {
        let time_scale = TimeScale::new(args.speed)?;
        let logs = directory.join("logs");
        std::fs::create_dir(&logs).with_context(|| format!("cannot create {}", logs.display()))?;
        let redis = Server::start().await?;
        let road = Proxy::start(&redis.address()).await?;
        let exporter = start_exporter(&time_scale, road.port(), directory, &logs).await?;
        let mut observer = Observer::new(exporter.url(), &time_scale);
        let deadline = Instant::now() + READY;
        while !observer.is_watching().await {
            if Instant::now() > deadline {
                bail!("the exporter does not connect to Redis");
            }
            sleep(Duration::from_millis(50)).await;
        }
        let seed = jiff::Timestamp::now().as_nanosecond() as u64;
        let fleet = Fleet::start(&redis.url(), &logs, time_scale.clone(), Load::default(), seed).await?;
        let receiver = Receiver::start().await?;
        let (mut prometheus, mut alertmanager) = (None, None);
        if !args.without_prometheus
            && let Some(program) = find(&["prometheus"])
        {
            if let Some(program) = find(&["prometheus-alertmanager", "alertmanager"]) {
                let receiver = receiver.address.to_string();
                alertmanager = Some(start_alertmanager(&time_scale, &program, directory, &receiver).await?);
            }
            prometheus =
                Some(start_prometheus(&time_scale, &program, directory, &exporter, alertmanager.as_ref()).await?);
        }
        if let Some(program) = &prometheus {
            observer.add_prometheus(&program.url());
        }
        // Limited in time: if an alert stays, the demo shows it.
        let deadline = Instant::now() + CALM;
        while !observer.is_calm().await && Instant::now() < deadline {
            sleep(Duration::from_millis(50)).await;
        }
        Ok(Self {
            time_scale,
            fleet,
            redis,
            road,
            exporter,
            is_without_prometheus: args.without_prometheus,
            prometheus,
            alertmanager,
            receiver,
            observer,
            started: Instant::now(),
            is_over: false,
            events: Vec::new(),
            incidents: Vec::new(),
            faults: Vec::new(),
            alerts: Alerts::default(),
            notifications: Vec::new(),
            latest: None,
            history: VecDeque::new(),
        })
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn add_event(&mut self, what: String) {
        self.events.push((self.elapsed(), what));
    }

    pub(super) async fn begin(&mut self, incident: DemoIncident) -> anyhow::Result<()> {
        let what = match incident {
            DemoIncident::Pauses => "node b freezes repeatedly, for longer than the TTL of its run locks",
            DemoIncident::SlowNetwork => "the network to Redis gets slower than the services wait",
            DemoIncident::Failover => "Redis fails over to a server that has none of the locks",
        };
        self.add_event(format!("incident: {what}"));
        self.incidents.push((self.elapsed(), incident));
        match incident {
            DemoIncident::Pauses => self.fleet.begin(Fault::Pauses),
            DemoIncident::SlowNetwork => self.fleet.begin(Fault::SlowNetwork),
            DemoIncident::Failover => return self.fail_over().await,
        }
        if !self.faults.contains(&incident) {
            self.faults.push(incident);
        }
        Ok(())
    }

    async fn fail_over(&mut self) -> anyhow::Result<()> {
        let next = Server::start().await?;
        self.redis.kill().await?;
        self.road.redirect(&next.address());
        self.fleet.fail_over(&next.address());
        self.redis = next;
        Ok(())
    }

    pub(super) fn calm(&mut self) {
        self.fleet.calm();
        self.faults.clear();
        self.add_event("all faults are over".to_owned());
    }

    /// Stops the fleet. Work in progress ends in order.
    pub(super) async fn end(&mut self) -> anyhow::Result<()> {
        self.add_event("the fleet stops; counts have a few seconds to arrive".to_owned());
        self.is_over = true;
        self.fleet.stop().await
    }

    /// Queries all programs and updates the state. Fails if a program has ended.
    pub(super) async fn observe(&mut self) -> anyhow::Result<()> {
        self.exporter.check()?;
        for program in self.prometheus.iter_mut().chain(&mut self.alertmanager) {
            program.check()?;
        }
        let mut observation = self.observer.observe().await;
        // After the fleet has stopped, new alerts are ignored: an idle fleet is not an incident.
        if let Some(reported) = observation.alerts.take().filter(|_| !self.is_over) {
            let now = self.elapsed();
            for change in self.alerts.update(reported, now) {
                self.add_event(change);
            }
        }
        for notification in self.receiver.take() {
            let Notification { kind, status, alert, .. } = &notification;
            if self.is_over && !self.alerts.0.iter().any(|known| known.firing.is_some() && known.name == *alert) {
                continue;
            }
            self.add_event(format!("Alertmanager sends a {kind}: {alert} {status}"));
            self.notifications.push((self.elapsed(), notification));
        }
        self.remember(&observation);
        self.latest = Some(observation);
        Ok(())
    }

    fn remember(&mut self, observation: &DemoObservation) {
        let Some(seen) = &observation.seen else { return };
        let now = Instant::now();
        let mut numbers = BTreeMap::new();
        for namespace in self.fleet.totals().locks.keys().copied() {
            let sum = |metric| seen.sum(metric, namespace);
            let succeeded = sum("redis_lock_releases_total") + sum("redis_lock_renewals_total");
            numbers.insert(namespace, (sum("redis_lock_not_owned_total"), succeeded));
        }
        self.history.push_back((now, numbers));
        let window = self.time_scale.of(RATIO_WINDOW);
        while self.history.get(1).is_some_and(|(time, _)| now - *time > window) {
            self.history.pop_front();
        }
    }

    pub(super) fn ratio_window(&self) -> Duration {
        self.time_scale.of(RATIO_WINDOW)
    }

    /// The share of recent releases and renewals that found the lock lost. `None` if there were no
    /// releases or renewals.
    pub(super) fn ratio(&self, namespace: &str) -> Option<f64> {
        let (first, last) = (&self.history.front()?.1, &self.history.back()?.1);
        let ((lost_before, before), (lost, succeeded)) = (first.get(namespace)?, last.get(namespace)?);
        let (lost, succeeded) = (lost - lost_before, succeeded - before);
        (lost + succeeded > 0.0).then(|| lost / (lost + succeeded))
    }

    /// Ends all programs.
    pub(super) async fn strike(mut self) -> anyhow::Result<()> {
        let mut result = self.redis.kill().await;
        for program in [Some(self.exporter), self.prometheus, self.alertmanager].into_iter().flatten() {
            // End each program, even if ending another one failed.
            result = result.and(program.end().await);
        }
        result
    }
}

async fn start_exporter(
    time_scale: &TimeScale,
    redis_port: u16,
    directory: &Path,
    logs: &Path,
) -> anyhow::Result<ChildProgram> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let config = write(directory, "exporter.yml", &programs::exporter_config(time_scale, redis_port, logs))?;
    let state = directory.join("state");
    std::fs::create_dir(&state).with_context(|| format!("cannot create {}", state.display()))?;
    ChildProgram::start("exporter", &program, directory, |address| {
        let address = address.to_string();
        vec![
            "run".into(),
            "--config.file".into(),
            config.clone().into(),
            "--state.dir".into(),
            state.clone().into(),
            "--web.listen-address".into(),
            address.into(),
        ]
    })
    .await
}

async fn start_alertmanager(
    time_scale: &TimeScale,
    program: &Path,
    directory: &Path,
    receiver: &str,
) -> anyhow::Result<ChildProgram> {
    write(directory, "alertmanager.yml", &programs::alertmanager_config(time_scale, receiver))?;
    ChildProgram::start("alertmanager", program, directory, |address| {
        vec![
            "--config.file=alertmanager.yml".into(),
            "--storage.path=alertmanager".into(),
            format!("--web.listen-address={address}").into(),
            "--cluster.listen-address=".into(),
        ]
    })
    .await
}

async fn start_prometheus(
    time_scale: &TimeScale,
    program: &Path,
    directory: &Path,
    exporter: &ChildProgram,
    alertmanager: Option<&ChildProgram>,
) -> anyhow::Result<ChildProgram> {
    let alertmanager = alertmanager.map(|program| program.address.to_string());
    let config = programs::prometheus_config(time_scale, &exporter.address.to_string(), alertmanager.as_deref());
    write(directory, "prometheus.yml", &config)?;
    write(directory, "rules.yml", &programs::scaled_rules(time_scale))?;
    ChildProgram::start("prometheus", program, directory, |address| {
        vec![
            "--config.file=prometheus.yml".into(),
            "--storage.tsdb.path=prometheus".into(),
            format!("--web.listen-address={address}").into(),
        ]
    })
    .await
}

fn write(directory: &Path, name: &str, text: &str) -> anyhow::Result<std::path::PathBuf> {
    let path = directory.join(name);
    std::fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}
