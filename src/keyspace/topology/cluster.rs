//! Discovers the primaries of a cluster and their slots with `CLUSTER SLOTS`.
//!
//! `topology::discover` calls it. A node that was cut off from the cluster may report an outdated
//! view, so several nodes are asked.

use std::sync::Arc;

use redis::Value;
use tokio::task::JoinSet;
use tracing::error;

use super::{DiscoverError, Primary, accept, items, port, text};
use crate::config::redis::{Address, RedisConfig};
use crate::keyspace::connect::{RedisTarget, connect};
use crate::keyspace::status::{Command, LinkTotals};

/// Number of nodes asked at the same time.
const AT_ONCE: usize = 3;
/// Number of nodes whose equal views are accepted. A node that was cut off may have a different
/// view.
const ENOUGH: usize = 2;

type SlotsReply = (Result<Vec<Primary>, DiscoverError>, LinkTotals);

pub(super) async fn discover(
    config: &Arc<RedisConfig>,
    known: &[Primary],
    totals: &mut LinkTotals,
) -> Result<Vec<Primary>, DiscoverError> {
    let mut candidates: Vec<Address> = Vec::new();
    add_candidates(&mut candidates, known.iter().map(|node| &node.address));
    add_candidates(&mut candidates, config.addresses.iter());
    agree(candidates, |address| ask_node(Arc::clone(config), address), totals).await
}

/// Asks nodes until two of them share a view. If no two nodes agree, returns the first view
/// received.
async fn agree<F>(
    mut candidates: Vec<Address>,
    ask: impl Fn(Address) -> F,
    totals: &mut LinkTotals,
) -> Result<Vec<Primary>, DiscoverError>
where
    F: Future<Output = SlotsReply> + Send + 'static,
{
    let mut n_asked = 0;
    let mut asked: JoinSet<SlotsReply> = JoinSet::new();
    let mut views: Vec<(Vec<Primary>, usize)> = Vec::new();
    let mut failure = DiscoverError::NoAddress;
    loop {
        while asked.len() < AT_ONCE && n_asked < candidates.len() {
            asked.spawn(ask(candidates[n_asked].clone()));
            n_asked += 1;
        }
        let (answer, took) = match asked.join_next().await {
            None => break,
            Some(Ok(replied)) => replied,
            // The other nodes are asked nevertheless.
            Some(Err(error)) => {
                error!(%error, "asking a node of the cluster failed");
                failure = DiscoverError::Failed(error);
                continue;
            }
        };
        totals.add(&took);
        match answer {
            Ok(nodes) => {
                add_candidates(
                    &mut candidates,
                    nodes.iter().flat_map(|node| [&node.address].into_iter().chain(&node.replicas)),
                );
                match views.iter_mut().find(|(view, _)| is_same_view(view, &nodes)) {
                    Some((_, votes)) => *votes += 1,
                    None => views.push((nodes, 1)),
                }
                if let Some(at) = views.iter().position(|(_, votes)| *votes >= ENOUGH) {
                    return Ok(views.swap_remove(at).0);
                }
            }
            Err(error) => failure = error,
        }
    }
    views.into_iter().next().map(|(nodes, _)| nodes).ok_or(failure)
}

fn add_candidates<'a>(candidates: &mut Vec<Address>, more: impl Iterator<Item = &'a Address>) {
    for address in more {
        if !candidates.contains(address) {
            candidates.push(address.clone());
        }
    }
}

fn is_same_view(left: &[Primary], right: &[Primary]) -> bool {
    let primaries = |nodes: &[Primary]| -> Vec<(Address, Vec<(u16, u16)>)> {
        nodes.iter().map(|node| (node.address.clone(), node.slots.clone())).collect()
    };
    primaries(left) == primaries(right)
}

async fn ask_node(config: Arc<RedisConfig>, address: Address) -> SlotsReply {
    let mut totals = LinkTotals::default();
    let answer = ask(&config, &address, &mut totals).await;
    (answer, totals)
}

async fn ask(config: &RedisConfig, address: &Address, totals: &mut LinkTotals) -> Result<Vec<Primary>, DiscoverError> {
    let connected = connect(&RedisTarget::node(config, address)).await;
    totals.count_commands(Command::Hello, 1);
    let mut wire = connected.inspect_err(|_| totals.connect_errors += 1)?;
    totals.count_commands(Command::ClusterSlots, 1);
    let answer = accept(address, "CLUSTER SLOTS", wire.ask(&[b"CLUSTER", b"SLOTS"]).await?)?;
    let nodes = read_slots(&answer, address);
    let unexpected = || DiscoverError::Unexpected { address: address.clone(), command: "CLUSTER SLOTS" };
    match nodes.ok_or_else(unexpected)? {
        nodes if nodes.is_empty() => Err(DiscoverError::NoSlots(address.clone())),
        nodes => Ok(nodes),
    }
}

/// Each range lists its primary first, then its replicas. The result is sorted by address, and the
/// slots and replicas of each node are sorted too.
fn read_slots(answer: &Value, asked: &Address) -> Option<Vec<Primary>> {
    let mut nodes: Vec<Primary> = Vec::new();
    for range in items(answer)? {
        let [first, last, primary, replicas @ ..] = items(range)? else { return None };
        let range = (port(first)?, port(last)?);
        let address = read_node(primary, asked)?;
        let replicas = replicas.iter().filter_map(|replica| read_node(replica, asked));
        let node = match nodes.iter_mut().find(|node| node.address == address) {
            Some(node) => node,
            None => {
                nodes.push(Primary { address, replicas: Vec::new(), slots: Vec::new() });
                nodes.last_mut()?
            }
        };
        node.slots.push(range);
        let replicas: Vec<Address> = replicas.filter(|replica| !node.replicas.contains(replica)).collect();
        node.replicas.extend(replicas);
    }
    for node in &mut nodes {
        node.slots.sort_unstable();
        node.replicas.sort_unstable();
    }
    nodes.sort_unstable_by(|left, right| left.address.cmp(&right.address));
    Some(nodes)
}

/// A node that does not know its own address omits it: the address is the one that was asked.
fn read_node(value: &Value, asked: &Address) -> Option<Address> {
    let [host, number, ..] = items(value)? else { return None };
    let host = match (text(host), asked) {
        (None | Some("" | "?"), Address::Tcp { host, .. }) => host.clone(),
        (Some(host), _) => host.to_owned(),
        (None, Address::Unix(_)) => return None,
    };
    Some(Address::Tcp { host, port: port(number)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp(host: &str, port: u16) -> Address {
        Address::Tcp { host: host.to_owned(), port }
    }

    fn node(host: &str, port: i64) -> Value {
        Value::Array(vec![Value::BulkString(host.as_bytes().to_vec()), Value::Int(port), Value::Nil])
    }

    fn range(first: i64, last: i64, nodes: Vec<Value>) -> Value {
        Value::Array([Value::Int(first), Value::Int(last)].into_iter().chain(nodes).collect())
    }

    #[test]
    fn slots_are_gathered_by_primary() {
        let answer = Value::Array(vec![
            range(10_000, 16_383, vec![node("b", 2), node("c", 3)]),
            range(0, 99, vec![node("b", 2), node("c", 3), node("", 9)]),
            range(100, 9_999, vec![node("", 1)]),
        ]);
        let nodes = read_slots(&answer, &tcp("asked", 7)).unwrap();
        let first = Primary { address: tcp("asked", 1), replicas: Vec::new(), slots: vec![(100, 9_999)] };
        let second = Primary {
            address: tcp("b", 2),
            replicas: vec![tcp("asked", 9), tcp("c", 3)],
            slots: vec![(0, 99), (10_000, 16_383)],
        };
        assert!(second.has_slot(99) && !second.has_slot(100) && first.has_slot(100));
        assert_eq!(nodes, [first, second]);
    }

    #[tokio::test]
    async fn a_task_that_panics_does_not_end_the_discovery() {
        let view = || vec![Primary { address: tcp("good", 2), replicas: Vec::new(), slots: vec![(0, 16_383)] }];
        let ask = |address: Address| async move {
            assert!(address != tcp("bad", 1), "the reply of this node is a bug");
            (Ok(view()), LinkTotals::default())
        };
        let bad = tcp("bad", 1);
        let candidates = vec![bad.clone(), tcp("good", 2), tcp("good", 3)];
        assert_eq!(agree(candidates, ask, &mut LinkTotals::default()).await.unwrap(), view());
        let failure = agree(vec![bad], ask, &mut LinkTotals::default()).await.unwrap_err();
        assert!(matches!(failure, DiscoverError::Failed(_)), "{failure}");
    }

    #[test]
    fn what_is_no_list_of_slots_is_refused() {
        for answer in [Value::Nil, Value::Array(vec![Value::Int(1)]), Value::Array(vec![range(0, 1, Vec::new())])] {
            assert_eq!(read_slots(&answer, &tcp("asked", 7)), None, "{answer:?}");
        }
        assert_eq!(read_slots(&Value::Array(Vec::new()), &tcp("asked", 7)), Some(Vec::new()));
    }
}
