//! The web configuration file of a running server: its current content, and a task that follows its
//! changes.
//!
//! `run` opens the file and spawns the follower; each connection uses [`Web`]. The follower reads
//! the files every 500 ms on a blocking thread. It loads a change after two reads in a row return
//! the same content, because files are rarely replaced all at once. An invalid file is logged and
//! reported as a failed reload, and the old configuration stays in effect. New connections use the
//! new certificate; users and headers apply from the next request.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use hyper::header::{CONNECTION, HeaderMap, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};
use rustls::ServerConfig;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

use super::access::{Access, AccessDenied};
use super::routes::{HttpResponse, text};
use crate::config::{Fingerprint, Problems, WebConfig};

const LOOKS_APART: Duration = Duration::from_millis(500);
/// Limits the wait for files on a disk that does not respond.
const RELOAD_LIMIT: Duration = Duration::from_secs(10);

/// The current web configuration and the access control that all connections share.
pub struct Web {
    config: watch::Receiver<Arc<WebConfig>>,
    access: Access,
}

impl Web {
    /// TLS settings for a new connection. `None` means plain HTTP.
    pub(super) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.config.borrow().tls.clone()
    }

    /// Returns the response for the client as `Err` if the request is refused.
    pub(super) async fn admit(&self, headers: &HeaderMap) -> Result<(), HttpResponse> {
        let config = Arc::clone(&self.config.borrow());
        let admitted = match self.access.spend(config.rate_limit) {
            Ok(()) => self.access.admit(&config.users, headers).await,
            refused => refused,
        };
        admitted.map_err(|refusal| {
            let (status, words) = match refusal {
                AccessDenied::Unauthorized => (StatusCode::UNAUTHORIZED, "unauthorized\n"),
                AccessDenied::Busy => {
                    (StatusCode::SERVICE_UNAVAILABLE, "too many passwords are being checked, try again\n")
                }
                AccessDenied::TooMany => (StatusCode::TOO_MANY_REQUESTS, "too many requests\n"),
            };
            let mut answer = text(status, words);
            let (name, value) = match refusal {
                AccessDenied::Unauthorized => {
                    (WWW_AUTHENTICATE, "Basic realm=\"redis_lock_exporter\", charset=\"UTF-8\"")
                }
                AccessDenied::Busy | AccessDenied::TooMany => (RETRY_AFTER, "1"),
            };
            answer.headers_mut().insert(name, HeaderValue::from_static(value));
            // Each wrong guess costs the client a new connection, and a new handshake with TLS.
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            answer
        })
    }

    /// Does not replace headers that the response already has.
    pub(super) fn add_headers(&self, answer: &mut HttpResponse) {
        for (name, value) in &self.config.borrow().headers {
            answer.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
    }
}

/// A request to read the file now. The sender receives the result.
type WebFileReload = oneshot::Sender<Result<(), Problems>>;

/// Handle to a followed file.
#[derive(Clone)]
pub struct WebFile {
    pub web: Arc<Web>,
    requests: mpsc::Sender<WebFileReload>,
}

impl WebFile {
    /// Reads the file. The caller must spawn [`WebFollower::run`].
    pub fn open(path: &Path) -> Result<(Self, WebFollower), Problems> {
        let (loaded, fingerprint) = WebConfig::load(path);
        let current = watch::Sender::new(Arc::new(loaded?));
        let web = Arc::new(Web { config: current.subscribe(), access: Access::new() });
        let (requests, asked) = mpsc::channel(1);
        let follower =
            WebFollower { path: path.to_owned(), current, used: fingerprint.clone(), seen: fingerprint, asked };
        Ok((Self { web, requests }, follower))
    }

    /// Reads the file now. The error is text for people.
    pub async fn reload(&self) -> Result<(), String> {
        let (answer, outcome) = oneshot::channel();
        let asked = async {
            self.requests.send(answer).await.ok()?;
            outcome.await.ok()
        };
        match timeout(RELOAD_LIMIT, asked).await {
            Ok(Some(outcome)) => outcome.map_err(|problems| problems.to_string()),
            Ok(None) => Err("the web configuration is no longer followed".to_owned()),
            Err(_) => Err("reading the web configuration takes too long".to_owned()),
        }
    }
}

/// Follows changes of a web configuration file.
pub struct WebFollower {
    path: PathBuf,
    current: watch::Sender<Arc<WebConfig>>,
    /// Content that was loaded last, valid or not.
    used: Fingerprint,
    /// Content at the last check.
    seen: Fingerprint,
    asked: mpsc::Receiver<WebFileReload>,
}

impl WebFollower {
    /// Runs until `stop`. Calls `report` after each load, with whether the file is valid.
    pub async fn run(mut self, report: impl Fn(bool), stop: CancellationToken) {
        let mut looks = interval(LOOKS_APART);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                Some(request) = self.asked.recv() => {
                    let outcome = self.load().await;
                    report(outcome.is_ok());
                    let _ = request.send(outcome);
                }
                _ = looks.tick() => {
                    if self.has_changed().await {
                        let outcome = self.load().await;
                        report(outcome.is_ok());
                        match outcome {
                            Ok(()) => info!(file = %self.path.display(), "web configuration loaded again"),
                            Err(problems) => {
                                error!("web configuration refused, the old one stays in effect:\n{problems}");
                            }
                        }
                    }
                }
            }
        }
    }

    /// Returns whether the content differs from the loaded one and was the same at the previous
    /// check.
    async fn has_changed(&mut self) -> bool {
        let used = self.used.clone();
        let Ok(now) = spawn_blocking(move || used.again()).await else { return false };
        let is_settled = now == self.seen;
        self.seen = now;
        is_settled && self.seen != self.used
    }

    async fn load(&mut self) -> Result<(), Problems> {
        let path = self.path.clone();
        let Ok((loaded, fingerprint)) = spawn_blocking(move || WebConfig::load(&path)).await else { return Ok(()) };
        self.used = fingerprint.clone();
        self.seen = fingerprint;
        let next = loaded?;
        self.current.borrow().refuse_weaker(&self.path, &next)?;
        self.current.send_replace(Arc::new(next));
        Ok(())
    }
}
