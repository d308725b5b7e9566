//! The web configuration file of a running server: what it says now, and a task that follows its changes.
//!
//! The files are looked at about once a second, beside those that serve. A change is taken when two looks in a row agree on
//! what is in them: files are rarely replaced all at once. What cannot be used is logged, shown as a failed reload, and
//! changes nothing. New connections get the new certificate; users and headers count for the next request.

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
/// For files on a disk that does not answer.
const RELOAD_LIMIT: Duration = Duration::from_secs(10);

/// What every connection asks: how to serve it, and whether its requests are let in.
pub struct Web {
    config: watch::Receiver<Arc<WebConfig>>,
    access: Access,
}

impl Web {
    /// For a new connection. `None`: plain HTTP.
    pub(super) fn tls(&self) -> Option<Arc<ServerConfig>> {
        self.config.borrow().tls.clone()
    }

    /// `Err` is the answer to somebody who is not let in.
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
            // Whoever guesses pays with a connection for each guess, and a handshake where there is TLS.
            answer.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
            answer
        })
    }

    /// An answer that has a header already knows better.
    pub(super) fn add_headers(&self, answer: &mut HttpResponse) {
        for (name, value) in &self.config.borrow().headers {
            answer.headers_mut().entry(name).or_insert_with(|| value.clone());
        }
    }
}

/// Somebody wants the file to be read at once.
type WebFileReload = oneshot::Sender<Result<(), Problems>>;

/// The handle to a file that is followed.
#[derive(Clone)]
pub struct WebFile {
    pub web: Arc<Web>,
    requests: mpsc::Sender<WebFileReload>,
}

impl WebFile {
    /// Reads the file; the second part is to be spawned.
    pub fn open(path: &Path) -> Result<(Self, WebFollower), Problems> {
        let (loaded, fingerprint) = WebConfig::load(path);
        let current = watch::Sender::new(Arc::new(loaded?));
        let web = Arc::new(Web { config: current.subscribe(), access: Access::new() });
        let (requests, asked) = mpsc::channel(1);
        let follower =
            WebFollower { path: path.to_owned(), current, used: fingerprint.clone(), seen: fingerprint, asked };
        Ok((Self { web, requests }, follower))
    }

    /// Reads the file now. The error is for people.
    pub async fn reload(&self) -> Result<(), String> {
        let (answer, outcome) = oneshot::channel();
        let asked = async {
            self.requests.send(answer).await.ok()?;
            outcome.await.ok()
        };
        match timeout(RELOAD_LIMIT, asked).await {
            Ok(Some(outcome)) => outcome.map_err(|problems| problems.to_string()),
            Ok(None) => Err("the web configuration is not followed any more".to_owned()),
            Err(_) => Err("reading the web configuration takes too long".to_owned()),
        }
    }
}

/// Follows a file.
pub struct WebFollower {
    path: PathBuf,
    current: watch::Sender<Arc<WebConfig>>,
    /// What was loaded last, be it good or bad.
    used: Fingerprint,
    /// What the last look saw.
    seen: Fingerprint,
    asked: mpsc::Receiver<WebFileReload>,
}

impl WebFollower {
    /// Until `stop`. `report` is told whether the file as it is now can be used, each time it was read again.
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

    /// Is there something new, and was it the same at the look before?
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
