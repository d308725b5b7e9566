//! Users with restricted permissions, and servers without RESP3.

use super::*;
use crate::config::redis::PasswordSource;
use crate::keyspace::status::Command;

const ALL: &str = "+scan +getrange +pttl +type +hscan +zrange +info +ping +hello +client +readonly";

/// A link whose user has these ACL rules, and a lock of owner `a` that exists from the start.
async fn begin(server: &Server, rules: &str) -> Watch {
    let mut client = server.client().await;
    client.run(&format!("ACL SETUSER watcher on >secret {rules}")).await;
    client.run("SET lock:1 a PX 60000").await;
    let mut plan = Plan::new(server);
    let password = Some(PasswordSource::Inline("secret".to_owned()));
    plan.config.credentials = Credentials { username: Some("watcher".to_owned()), password };
    plan.config.scan.interval = Duration::from_millis(300);
    plan.run()
}

fn complaint<'a>(status: &'a LinkStatus, word: &str) -> &'a str {
    status.complaints.iter().find(|line| line.contains(word)).unwrap_or_else(|| panic!("{word}: {status:?}"))
}

#[tokio::test]
async fn the_documented_user_lacks_nothing() {
    let server = Server::start(&[]);
    let mut watch = begin(&server, &format!("{ALL} %R~lock:* %R~job:*")).await;
    watch.pass_done().await;
    let status = watch.status();
    assert!(status.tracking && status.denied.is_empty() && status.complaints.is_empty(), "{status:?}");
    watch.end().await;
}

#[tokio::test]
async fn without_tracking_there_are_passes() {
    let server = Server::start(&[]);
    let mut watch = begin(&server, &format!("{ALL} -client|tracking %R~lock:* %R~job:*")).await;
    assert!(matches!(watch.next().await, LinkEvent::Up { watching: false, past: ServerContinuity::None, .. }));
    let seen = watch.pass().await;
    watch.held("a", Some(60_000), &seen[0].sight);
    assert_eq!((seen[0].since, seen[0].pushes), (None, 0));
    server.client().await.run("SET lock:1 b PX 60000").await;
    let seen = watch.pass().await;
    watch.held("b", Some(60_000), &seen[0].sight);
    let status = watch.status();
    assert_eq!((status.tracking, &*status.denied), (false, &[Command::ClientTracking][..]));
    assert_eq!(status.scan_interval, Some(Duration::from_millis(300)));
    assert!(complaint(&status, "CLIENT TRACKING").contains("add +client|tracking"));
    watch.end().await;
}

#[tokio::test]
async fn without_values_there_are_no_owners() {
    let server = Server::start(&[]);
    // The user may read the values of some keys only, but may list all keys and read their TTLs.
    let rules = format!("{ALL} %R~job:* (+pttl +type %R~lock:*)");
    let mut watch = begin(&server, &rules).await;
    let seen = watch.pass().await;
    let KeyState::Held(held) = &seen[0].sight else { panic!("{seen:?}") };
    assert_eq!(held.owner, None);
    check_ttl(held, Some(60_000));
    let status = watch.status();
    assert_eq!(status.denied, [Command::Getrange, Command::Hscan, Command::Zrange]);
    let expected =
        "user watcher may not GETRANGE keys under lock:*: owners are not told apart; add +getrange %R~lock:*";
    assert_eq!(complaint(&status, "GETRANGE"), expected);
    watch.end().await;
}

#[tokio::test]
async fn without_any_key_nothing_is_known() {
    let server = Server::start(&[]);
    let mut watch = begin(&server, ALL).await;
    let seen = watch.pass().await;
    assert_eq!(seen[0].sight, KeyState::Unreadable);
    let status = watch.status();
    assert_eq!(status.totals.read_errors, 1);
    assert!(complaint(&status, "PTTL").contains("job:*, lock:*"));
    watch.end().await;
}

#[tokio::test]
async fn without_scan_changes_are_still_seen() {
    let server = Server::start(&[]);
    let mut watch = begin(&server, &format!("{ALL} -scan %R~lock:* %R~job:*")).await;
    watch.until(|status| status.tracking).await;
    server.client().await.run("SET lock:2 b PX 60000").await;
    assert_eq!(&*watch.seen().await.key, "lock:2");
    let status = watch.status();
    assert_eq!(status.denied, [Command::Scan]);
    assert_eq!(status.totals.scan_passes, 0);
    complaint(&status, "may not SCAN");
    watch.end().await;
}

#[tokio::test]
async fn without_info_nobody_is_said_to_have_changed() {
    let server = Server::start(&[]);
    let mut watch = begin(&server, &format!("{ALL} -info %R~lock:* %R~job:*")).await;
    watch.pass_done().await;
    server.client().await.run("CLIENT KILL USER watcher").await;
    let past = watch
        .find(|news| match news {
            LinkEvent::Up { past, .. } if *past != ServerContinuity::None => Some(*past),
            _ => None,
        })
        .await;
    assert_eq!(past, ServerContinuity::SameServer);
    let status = watch.status();
    assert_eq!(status.denied, [Command::Info]);
    complaint(&status, "INFO");
    watch.end().await;
}

#[tokio::test]
async fn without_resp3_there_are_passes() {
    let server = Server::start(&["--rename-command", "HELLO", ""]);
    server.client().await.run("SET lock:1 a PX 60000").await;
    let mut watch = Plan::new(&server).run();
    assert!(matches!(watch.next().await, LinkEvent::Up { watching: false, .. }));
    let seen = watch.pass().await;
    watch.held("a", Some(60_000), &seen[0].sight);
    complaint(&watch.status(), "RESP3");
    watch.end().await;
}
