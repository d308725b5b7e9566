//! What systemd is told about this process (`sd_notify`): started, reloading, stopping, still alive.
//!
//! Nothing happens where systemd did not ask for it (`Type=notify`, `Type=notify-reload`, `WatchdogSec=`), and on other
//! systems. A message that cannot be sent is logged and forgotten.

#[cfg(target_os = "linux")]
mod supervisor {
    use std::time::Duration;

    use sd_notify::NotifyState;
    use tracing::warn;

    /// Started, or done with reloading. The status is a line for people, shown by `systemctl status`.
    pub(crate) fn ready(status: &str) {
        tell(&[NotifyState::Ready, NotifyState::Status(status)]);
    }

    /// To be followed by [`ready`].
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

    /// After this time without [`alive`] systemd ends the process. `None`: it does not watch.
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

/// Tells systemd that we are alive for as long as the pipeline answers questions, which it does between two batches, two
/// saves, two looks at all locks. Runs until it is dropped.
pub(crate) async fn report_life(limit: Duration, pipeline: watch::Receiver<Option<mpsc::Sender<Inquiry>>>) {
    let mut ticks = interval(limit / 2);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut was_alive = true;
    loop {
        ticks.tick().await;
        let inquiries = pipeline.borrow().clone();
        // Together with the pause this stays below the limit.
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

/// Ends when the pipeline has answered, or is gone: then it is being replaced, and who replaces it has time limits.
async fn answers(inquiries: mpsc::Sender<Inquiry>) {
    let (answer, answered) = oneshot::channel();
    if inquiries.send(Inquiry::Lock(String::new(), answer)).await.is_ok() {
        let _ = answered.await;
    }
}
