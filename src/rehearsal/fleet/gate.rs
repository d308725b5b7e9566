//! What nobody of a process gets past while the process stands still: a long collection of garbage, a starved machine.

use std::sync::Arc;

use tokio::sync::watch;

#[derive(Clone, Debug, Default)]
pub struct Gate {
    is_closed: Arc<watch::Sender<bool>>,
}

impl Gate {
    pub fn close(&self, is_closed: bool) {
        self.is_closed.send_replace(is_closed);
    }

    /// Does not come back while it is closed.
    pub async fn pass(&self) {
        // The sender is part of the gate: it cannot be gone.
        let _ = self.is_closed.subscribe().wait_for(|is_closed| !is_closed).await;
    }
}
