//! The signals that stop a command. `drill` and `demo` wait for them, because they must clean up
//! before they end.

use anyhow::Context as _;
use tokio::signal::unix::{Signal, SignalKind, signal};

/// SIGINT (Ctrl-C), SIGTERM (`kill`), SIGHUP (the terminal was closed) and SIGQUIT (Ctrl-\). The
/// processes that a command starts run in their own process groups, so none of these signals ends
/// them. The command must stop them itself.
pub(crate) struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
    quit: Signal,
}

impl StopSignals {
    /// After this call, none of these signals ends the program by itself.
    pub(crate) fn listen() -> anyhow::Result<Self> {
        let listen = |kind| signal(kind).context("cannot listen for signals");
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hang_up: listen(SignalKind::hangup())?,
            quit: listen(SignalKind::quit())?,
        })
    }

    pub(crate) async fn received(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
            _ = self.quit.recv() => {}
        }
    }
}
