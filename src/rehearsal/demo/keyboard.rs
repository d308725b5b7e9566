//! Key presses of the visitor: at once on a terminal, letters of lines elsewhere.

use std::io::{IsTerminal as _, Read as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// The terminal is as it was when this is dropped.
pub(super) struct Keyboard {
    keys: mpsc::Receiver<char>,
    before: Option<Termios>,
}

impl Keyboard {
    pub(super) fn listen() -> Self {
        let before = if std::io::stdin().is_terminal() { take_single_keys() } else { None };
        let (out, keys) = mpsc::channel(16);
        // Nothing can wake a read of the terminal, so nobody waits for this thread.
        std::thread::spawn(move || {
            let mut key = [0];
            while std::io::stdin().read_exact(&mut key).is_ok() {
                if out.blocking_send(char::from(key[0])).is_err() {
                    return;
                }
            }
        });
        Self { keys, before }
    }

    /// Never comes back where there is no keyboard any more.
    pub(super) async fn key(&mut self) -> char {
        match self.keys.recv().await {
            Some(key) => key,
            None => std::future::pending().await,
        }
    }
}

impl Drop for Keyboard {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // A terminal that is gone needs no settings.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Neither lines nor echo; Ctrl-C still interrupts. Gives the settings to go back to. A terminal that refuses needs Enter.
fn take_single_keys() -> Option<Termios> {
    let before = tcgetattr(std::io::stdin()).ok()?;
    let mut settings = before.clone();
    settings.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    tcsetattr(std::io::stdin(), OptionalActions::Now, &settings).ok()?;
    Some(before)
}
