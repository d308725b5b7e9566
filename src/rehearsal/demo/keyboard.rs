//! Reads the keys that the user presses: immediately on a terminal, otherwise as the characters of
//! input lines.

use std::io::{IsTerminal as _, Read as _};

use rustix::termios::{LocalModes, OptionalActions, Termios, tcgetattr, tcsetattr};
use tokio::sync::mpsc;

/// Restores the settings of the terminal when it is dropped.
pub(super) struct Keyboard {
    keys: mpsc::Receiver<char>,
    before: Option<Termios>,
}

impl Keyboard {
    pub(super) fn listen() -> Self {
        let before = if std::io::stdin().is_terminal() { take_single_keys() } else { None };
        let (out, keys) = mpsc::channel(16);
        // Nothing can interrupt a blocking read of the terminal, so nothing joins this thread.
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

    /// Waits for the next key. Waits forever if standard input was closed.
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
            // An error means that the terminal is gone, and then there is nothing to restore.
            let _ = tcsetattr(std::io::stdin(), OptionalActions::Now, before);
        }
    }
}

/// Turns off line buffering and echo; Ctrl-C still interrupts. Returns the previous settings. If
/// the terminal refuses, the user must press Enter after each key.
fn take_single_keys() -> Option<Termios> {
    let before = tcgetattr(std::io::stdin()).ok()?;
    let mut settings = before.clone();
    settings.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO);
    tcsetattr(std::io::stdin(), OptionalActions::Now, &settings).ok()?;
    Some(before)
}
