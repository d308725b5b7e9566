//! Reports the state of this process to systemd (`sd_notify`): started, reloading, stopping, alive.
//!
//! `run` calls this module. It does nothing on other systems, or if the unit does not request
//! messages (`Type=notify`, `Type=notify-reload`, `WatchdogSec=`). If a message cannot be sent, the
//! module logs a warning and does not send it again.

#[cfg(target_os = "linux")]
mod supervisor {
    use std::time::Duration;

    use sd_notify::NotifyState;
    use tracing::warn;

    /// Reports that the start or a reload is complete. `systemctl status` shows the status text.
    pub(crate) fn ready(status: &str) {
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// Reports that a reload begins. Call [`ready`] when the reload ends.
    pub(crate) fn reloading() {
        match NotifyState::monotonic_usec_now() {
            Ok(now) => tell(&[NotifyState::Reloading, now, NotifyState::Status("loading the configuration again")]),
            Err(error) => warn!(%error, "cannot tell systemd about the reload"),
        }
    }

    pub(crate) fn stopping() {
        tell(&[NotifyState::Stopping, NotifyState::Status("stopping")]);
    }

    pub(crate) fn alive() {
        tell(&[NotifyState::Watchdog]);
    }

    /// systemd ends the process if it receives no [`alive`] for this long. Returns `None` if the
    /// watchdog is off.
    pub(crate) fn watchdog() -> Option<Duration> {
        sd_notify::watchdog_enabled().filter(|limit| !limit.is_zero())
    }

    fn tell(states: &[NotifyState<'_>]) {
        if let Err(error) = sd_notify::notify(states) {
            warn!(%error, "cannot reach systemd");
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod supervisor {
    use std::time::Duration;

    pub(crate) fn ready(_status: &str) {}
    pub(crate) fn reloading() {}
    pub(crate) fn stopping() {}
    pub(crate) fn alive() {}
    pub(crate) fn watchdog() -> Option<Duration> {
        None
    }
}

use std::time::Duration;

use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tracing::warn;

use crate::model::query::Inquiry;

pub(crate) use self::supervisor::{ready, reloading, stopping, watchdog};

/// Sends `alive` to systemd while the pipeline answers inquiries. The pipeline answers between
/// batches, saves and surveys of all locks. Runs until it is dropped.
pub(crate) async fn report_life(limit: Duration, pipeline: watch::Receiver<Option<mpsc::Sender<Inquiry>>>) {
    let mut ticks = interval(limit / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_alive = true;
    loop {
        ticks.tick().await;
        let inquiries = pipeline.borrow().clone();
        // The interval and this timeout add up to 3/4 of the limit.
        let is_alive = match inquiries {
            Some(inquiries) => timeout(limit / 4, answers(inquiries)).await.is_ok(),
            None => true,
        };
        if is_alive {
            supervisor::alive();
        } else if was_alive {
            warn!("the pipeline does not answer, systemd will restart this process if that lasts");
        }
        was_alive = is_alive;
    }
}

/// Returns when the pipeline has answered. Also returns if the pipeline is gone: then a reload or a
/// stop is running, and both have their own time limits.
async fn answers(inquiries: mpsc::Sender<Inquiry>) {
    let (answer, answered) = oneshot::channel();
    if inquiries.send(Inquiry::Lock(String::new(), answer)).await.is_ok() {
        let _ = answered.await;
    }
}
