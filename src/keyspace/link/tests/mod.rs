//! A link with a real `redis-server`. The tests read its events from the channel to the pipeline.

mod changes;
mod cluster;
mod denied;
mod order;
mod passes;
mod server;
mod speed;
mod trouble;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use self::server::Server;
use crate::config::redis::{Address, Credentials, RedisConfig, RedisMode, ScanConfig, WatchConfig};
use crate::keyspace::status::LinkStatus;
use crate::keyspace::topology::Primary;
use crate::keyspace::{LinkSetup, Shared};
use crate::model::input::PipelineInput;
use crate::model::key_index::KeyMap;
use crate::model::key_template::KeyTemplate;
use crate::model::namespace::Namespace;
use crate::model::sighting::{Held, KeyState, LinkEvent, LinkId, OwnerHasher, ServerContinuity, Sighting};

/// Longer than any test takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(90);

/// The settings of a link before it runs.
struct Plan {
    config: RedisConfig,
    keys: Vec<&'static str>,
    fence: Option<&'static str>,
    replicas: Vec<Address>,
    /// Number of batches that the queue of the pipeline holds.
    room: usize,
}

impl Plan {
    fn new(server: &Server) -> Self {
        Self::at(server.address())
    }

    fn at(address: Address) -> Self {
        let config = RedisConfig {
            name: "test".to_owned(),
            mode: RedisMode::Single,
            addresses: vec![address],
            database: 0,
            credentials: Credentials::default(),
            tls: None,
            connect_timeout: Duration::from_secs(30),
            response_timeout: Duration::from_secs(30),
            scan: ScanConfig { max_redis_share: 1.0, ..ScanConfig::default() },
            watch: WatchConfig::default(),
            max_tracked_locks: 1000,
        };
        Self { config, keys: vec!["lock:{id}", "job:{id}:lock"], fence: None, replicas: Vec::new(), room: 1024 }
    }

    fn run(self) -> Watch {
        let template = |text: &str| KeyTemplate::parse(text).unwrap();
        let keys = self.keys.iter().map(|key| template(key)).collect();
        let fence = self.fence.map(template);
        let namespaces = vec![Arc::new(Namespace { keys, fence, ..Namespace::other() })];
        let (out, news) = mpsc::channel(self.room);
        let (reads, wanted) = mpsc::channel(16);
        let status = Arc::new(Mutex::new(LinkStatus::default()));
        let node = Primary { address: self.config.addresses[0].clone(), replicas: Vec::new(), slots: Vec::new() };
        let (_, replicas) = watch::channel(self.replicas);
        let hasher = OwnerHasher::new();
        let shared = Arc::new(Shared {
            config: self.config,
            keys: Arc::new(KeyMap::new(&namespaces)),
            namespaces,
            hasher: hasher.clone(),
            out,
            rediscover: Notify::new(),
        });
        let setup = LinkSetup {
            id: LinkId(1),
            node,
            replicas,
            continuity: ServerContinuity::None,
            shared,
            reads: wanted,
            status: Arc::clone(&status),
        };
        let stop = CancellationToken::new();
        let task = tokio::spawn(super::run(setup, stop.clone()));
        Watch { news, waiting: Vec::new(), reads, status, hasher, stop, task }
    }
}

/// A running link, as the pipeline sees it.
struct Watch {
    news: mpsc::Receiver<PipelineInput>,
    /// The latest first.
    waiting: Vec<LinkEvent>,
    reads: mpsc::Sender<Vec<Box<str>>>,
    status: Arc<Mutex<LinkStatus>>,
    hasher: OwnerHasher,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Watch {
    /// A link whose first pass is complete.
    async fn begin(server: &Server) -> Self {
        let mut watch = Plan::new(server).run();
        watch.pass_done().await;
        watch
    }

    async fn next(&mut self) -> LinkEvent {
        let deadline = Instant::now() + PATIENCE;
        while self.waiting.is_empty() {
            match timeout_at(deadline, self.news.recv()).await.expect("nothing was told for long") {
                Some(PipelineInput::Link(batch)) => self.waiting.extend(batch.news.into_iter().rev()),
                other => panic!("{other:?}"),
            }
        }
        self.waiting.pop().unwrap()
    }

    /// Waits for the next event that `pick` accepts. Other events are skipped.
    async fn find<T>(&mut self, pick: impl Fn(&LinkEvent) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        let mut passed_over = Vec::new();
        loop {
            let news = self.next().await;
            if let Some(found) = pick(&news) {
                return found;
            }
            if !matches!(news, LinkEvent::CaughtUp { .. }) {
                passed_over.push(news);
            }
            assert!(Instant::now() < deadline, "not told; but {passed_over:#?}");
        }
    }

    async fn pass_done(&mut self) -> LinkEvent {
        self.find(|news| matches!(news, LinkEvent::PassDone { .. }).then(|| news.clone())).await
    }

    /// The next sighting of any key.
    async fn seen(&mut self) -> Sighting {
        self.find(|news| match news {
            LinkEvent::Seen(sighting) => Some(sighting.clone()),
            _ => None,
        })
        .await
    }

    async fn seen_key(&mut self, key: &str) -> Sighting {
        self.find(|news| match news {
            LinkEvent::Seen(sighting) if &*sighting.key == key => Some(sighting.clone()),
            _ => None,
        })
        .await
    }

    /// All sightings until the end of the pass, sorted by key.
    async fn pass(&mut self) -> Vec<Sighting> {
        let mut seen = Vec::new();
        loop {
            match self.next().await {
                LinkEvent::Seen(sighting) => seen.push(sighting),
                LinkEvent::PassDone { .. } => break,
                _ => {}
            }
        }
        seen.sort_by(|left, right| left.key.cmp(&right.key));
        seen
    }

    fn held(&self, owner: &str, ttl_ms: Option<i64>, sight: &KeyState) {
        let KeyState::Held(held) = sight else { panic!("{sight:?}") };
        assert_eq!(held.owner, Some(self.hasher.hash(owner.as_bytes())));
        check_ttl(held, ttl_ms);
    }

    fn status(&self) -> LinkStatus {
        self.status.lock().unwrap().clone()
    }

    /// Waits until the status is as wanted.
    async fn until(&self, wanted: impl Fn(&LinkStatus) -> bool) -> LinkStatus {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if wanted(&status) {
                return status;
            }
            assert!(Instant::now() < deadline, "{status:#?}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(PATIENCE, self.task).await.expect("the link does not stop").unwrap();
    }
}

/// The TTL is at most what was set, and not much less.
fn check_ttl(held: &Held, set_to: Option<i64>) {
    match (held.ttl_ms, set_to) {
        (Some(ttl), Some(set_to)) => assert!(ttl <= set_to && ttl > set_to - 15_000, "{ttl} of {set_to}"),
        (left, right) => assert_eq!(left, right),
    }
}
