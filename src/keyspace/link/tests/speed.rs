//! Measures how fast a pass and watching are. Run with `cargo test --release --lib -- --ignored
//! --nocapture link::tests::speed`.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, and takes a while"]
async fn a_pass_over_a_million_keys() {
    let server = Server::start(&[]);
    let mut client = server.client().await;
    client.run("DEBUG POPULATE 900000 other 36").await;
    let fill = "for i=1,100000 do redis.call('set','lock:'..i,'c0ffee00-0000-4000-8000-'..i,'px',600000) end";
    client.run_parts(&[b"EVAL", fill.as_bytes(), b"0"]).await;
    for share in [1.0, 0.2] {
        let mut plan = Plan::new(&server);
        plan.config.scan.max_redis_share = share;
        client.run("CONFIG RESETSTAT").await;
        let mut watch = plan.run();
        assert!(watch.pass().await.len() >= 100_000);
        let status = watch.until(|status| status.last_pass.is_some()).await;
        let seconds = status.last_pass.unwrap().seconds;
        let stats = client.run("INFO commandstats").await;
        let spent = command_seconds(&String::from_utf8_lossy(super::super::owner::bytes(&stats).unwrap()));
        let taken = spent / seconds;
        eprintln!("share {share}: {seconds:.2} s, commands took {spent:.2} s of it, a share of {taken:.3}");
        assert!(taken <= share);
        watch.end().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "measures, and takes a while"]
async fn five_thousand_cycles_a_second() {
    let server = Server::start(&[]);
    let mut watch = Watch::begin(&server).await;
    let mut client = server.client().await;
    let writer = tokio::spawn(async move {
        let mut tick = tokio::time::interval(Duration::from_millis(10));
        for round in 0..500 {
            tick.tick().await;
            for half in ["SET", "DEL"] {
                client
                    .run_all((0..50).map(|index| {
                        let key = format!("lock:{}", (round * 50 + index) % 5000);
                        if half == "SET" { format!("SET {key} owner PX 60000") } else { format!("DEL {key}") }
                    }))
                    .await;
            }
        }
    });
    let (began, cpu) = (Instant::now(), cpu_seconds());
    let (mut total, mut latest_delay) = (0, 0);
    while total < 45_000 && !(writer.is_finished() && watch.news.is_empty() && watch.waiting.is_empty()) {
        let seen = watch.seen().await;
        total += usize::from(seen.pushes);
        latest_delay = latest_delay.max(seen.received - seen.until);
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu = cpu_seconds() - cpu;
    eprintln!(
        "{total} pushes in {seconds:.2} s, {cpu:.2} s of CPU with the writer, longest from push to reading {latest_delay} ms"
    );
    writer.await.unwrap();
    watch.end().await;
}

/// Time that Redis reports for the commands of a pass, without its overhead for each command.
fn command_seconds(stats: &str) -> f64 {
    let microseconds = stats.lines().filter_map(|line| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(':')?;
        let wanted = ["scan", "getrange", "pttl"].contains(&name);
        let text = rest.split(',').find_map(|part| part.strip_prefix("usec="))?;
        wanted.then(|| text.parse::<f64>().ok()).flatten()
    });
    microseconds.sum::<f64>() / 1e6
}

/// CPU time of this process.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0
}
