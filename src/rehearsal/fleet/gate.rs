//! Pauses all tasks of a simulated process at once, like a long garbage collection or a machine
//! without free CPU time.

use std::sync::Arc;

use tokio::sync::watch;

#[derive(Clone, Debug, Default)]
pub struct PauseGate {
    is_closed: Arc<watch::Sender<bool>>,
}

impl PauseGate {
    pub fn close(&self, is_closed: bool) {
        self.is_closed.send_replace(is_closed);
    }

    /// Waits while the gate is closed.
    pub async fn pass(&self) {
        // The wait cannot fail, because the gate owns the sender.
        let _ = self.is_closed.subscribe().wait_for(|is_closed| !is_closed).await;
    }
}
