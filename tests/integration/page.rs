//! Tests the page and the runbooks over HTTP, and the API responses behind them. Browser tests in
//! `tests/browser` check how the page looks and works.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use redis_lock_exporter::http::ConnectionLimits;
use regex::Regex;
use serde_json::Value;
use tokio::sync::watch;

use crate::api::{answering, body};
use crate::http::Answer;
use crate::redis::RedisServer;
use crate::server::Server;
use crate::site::Site;

const HTML: &str = "text/html; charset=utf-8";

/// The document contains no inline script or style, and loads nothing from other sites.
fn check_locked_down(answer: &Answer, scripts: &str) {
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some(HTML));
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
    let policy = answer.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; ") && !policy.contains("unsafe"), "{policy}");
    assert!(!policy.contains('*') && !policy.contains("http") && !policy.contains("data:"), "{policy}");
    assert_eq!(policy.contains("script-src 'self'"), scripts == "scripts", "{policy}");
    assert!(policy.contains("frame-ancestors 'none'") && policy.contains("base-uri 'none'"), "{policy}");
    let inline = Regex::new(r#"<style|<script(?: [^>]*)?>[^<]|\son[a-z]+=|\sstyle="|javascript:"#).unwrap();
    let page = answer.text();
    assert!(!inline.is_match(&page), "{:?}", inline.find(&page));
}

fn references(page: &str) -> Vec<String> {
    let reference = Regex::new(r#"(?:href|src)="([^"]*)""#).unwrap();
    reference.captures_iter(page).map(|captures| captures[1].to_owned()).collect()
}

/// Resolves a relative link as a browser does.
fn resolve(base: &str, link: &str) -> String {
    let (directory, _) = base.rsplit_once('/').unwrap();
    let mut parts: Vec<&str> = directory.split('/').skip(1).collect();
    for part in link.split('/') {
        match part {
            ".." => drop(parts.pop().unwrap_or_else(|| panic!("{link} in {base} leads above the top"))),
            "." => {}
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

#[test]
fn the_page_and_all_its_assets_are_served() {
    let server = answering();
    let answer = server.get("/");
    check_locked_down(&answer, "scripts");
    let page = answer.text();
    assert!(page.contains("<noscript>"), "{page}");
    let mut scripts = BTreeSet::new();
    for link in references(&page).into_iter().filter(|link| !link.starts_with('#')) {
        assert!(!link.contains("://") && !link.starts_with('/'), "{link} is not relative");
        let part = server.get(&resolve("/", &link));
        assert_eq!(part.status, 200, "{link}");
        if link.starts_with("page/") {
            let expected = match link.rsplit_once('.').unwrap().1 {
                "js" => "text/javascript; charset=utf-8",
                "css" => "text/css; charset=utf-8",
                "svg" => "image/svg+xml",
                other => panic!("{other}"),
            };
            assert_eq!(part.header("content-type"), Some(expected), "{link}");
            assert_eq!(part.header("x-content-type-options"), Some("nosniff"));
            scripts.extend(link.ends_with(".js").then_some(link));
        }
    }
    // Scripts import each other. Every imported script exists, and every script is used.
    let import = Regex::new(r#"from "\./([a-z]+\.js)""#).unwrap();
    let mut open: Vec<String> = scripts.iter().cloned().collect();
    while let Some(script) = open.pop() {
        let text = server.get(&format!("/{script}")).text();
        for captures in import.captures_iter(&text) {
            let name = format!("page/{}", &captures[1]);
            assert_eq!(server.get(&format!("/{name}")).status, 200, "{name}, wanted by {script}");
            if scripts.insert(name.clone()) {
                open.push(name);
            }
        }
        for markup in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "DOMParser", "://"] {
            let is_name_of_svg = markup == "://" && script == "page/dom.js";
            assert!(!text.contains(markup) || is_name_of_svg, "{markup} in {script}");
        }
    }
    let files = fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/http/page/assets")).unwrap();
    let files = files.map(|file| format!("page/{}", file.unwrap().file_name().into_string().unwrap()));
    let files: BTreeSet<String> = files.filter(|file| file.ends_with(".js")).collect();
    assert_eq!(scripts, files);
    for path in ["/page/", "/page/nothing.js", "/page/../page/main.js", "/page"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
}

#[test]
fn the_page_supports_head_and_gzip_and_rejects_other_methods() {
    let server = answering();
    for path in ["/", "/page/main.js", "/page/page.css", "/runbooks/", "/runbooks/common/causes", "/api/v1/namespaces"]
    {
        let get = server.get(path);
        let head = server.ask(&format!("HEAD {path} HTTP/1.1\r\nHost: a\r\n\r\n"));
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
        assert_eq!(head.header("content-length"), Some(get.body.len().to_string().as_str()), "{path}");
        assert_eq!(head.header("content-security-policy"), get.header("content-security-policy"), "{path}");
        let packed = server.ask(&format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n"));
        assert_eq!(packed.header("content-encoding"), Some("gzip"), "{path}");
        assert_eq!(packed.header("vary"), Some("Accept-Encoding"), "{path}");
        let mut text = String::new();
        std::io::Read::read_to_string(&mut flate2::read::GzDecoder::new(&packed.body[..]), &mut text).unwrap();
        assert_eq!(text, get.text(), "{path}");
        let post = server.ask(&format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n"));
        assert_eq!((post.status, post.header("allow")), (405, Some("GET, HEAD")), "{path}");
    }
}

#[test]
fn every_runbook_is_served_and_its_links_work() {
    let server = answering();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/runbooks");
    let (mut open, mut seen) = (vec!["/runbooks/".to_owned()], BTreeSet::new());
    let anchor = Regex::new(r#" id="([^"]+)""#).unwrap();
    while let Some(path) = open.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let answer = server.get(&path);
        check_locked_down(&answer, "no scripts");
        let page = answer.text();
        for link in references(&page).into_iter().filter(|link| !link.contains("://")) {
            let (file, fragment) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { path.clone() } else { resolve(&path, file) };
            let found = server.get(&target);
            assert_eq!(found.status, 200, "{link} in {path}");
            if !fragment.is_empty() && !fragment.starts_with('/') {
                let is_there = anchor.captures_iter(&found.text()).any(|captures| &captures[1] == fragment);
                assert!(is_there, "{link} in {path}: there is no such heading");
            }
            if target.starts_with("/runbooks/") {
                open.push(target);
            }
        }
        let web = references(&page).into_iter().filter(|link| link.contains("://"));
        for link in web {
            assert!(link.starts_with(concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/")), "{link} in {path}");
            let file = link.split_once("/blob/main/").unwrap().1.split('#').next().unwrap();
            assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(file).exists(), "{link} in {path}");
        }
    }
    let n_files = |directory: &Path| {
        let files = fs::read_dir(directory).unwrap().map(|file| file.unwrap().path());
        files.filter(|path| path.extension().is_some_and(|ending| ending == "md")).count()
    };
    assert_eq!(
        seen.len(),
        n_files(&directory) + n_files(&directory.join("common")),
        "the list must link to every runbook"
    );
}

#[test]
fn a_runbook_is_rendered_as_html() {
    let server = answering();
    let page = server.get("/runbooks/RedisLockNotOwnedRatioHigh").text();
    for expected in [
        "<h1 id=\"redislocknotownedratiohigh\">RedisLockNotOwnedRatioHigh</h1>",
        "<p><strong>critical · keeps firing 10m</strong>, <strong>warning · keeps firing 10m</strong></p>",
        "<h2 id=\"is-it-real\">Is it real?</h2>",
        "<code>lock_namespace:redis_lock_operations_complete:min\n</code></pre>",
        "<td><code>expired_never_renewed</code></td>",
        "<a href=\"./common/causes#decision-table\">why was the lock lost</a>",
        "<ol start=\"2\">",
    ] {
        assert!(page.contains(expected), "{expected} is not in {page}");
    }
    let unread = Regex::new(r"\n(?:#|\* |\d+\. |\|)|```|\]\(|\*\*").unwrap();
    let code = Regex::new(r"(?s)<pre.*?</pre>|<code>.*?</code>").unwrap();
    for path in ["", "RedisLockNotOwnedRatioHigh", "common/looking", "common/cordum", "common/safe-release"] {
        let page = server.get(&format!("/runbooks/{path}")).text();
        let prose = code.replace_all(&page, "");
        assert!(!unread.is_match(&prose), "{path}: Markdown is left: {:?}", unread.find(&prose));
    }
    let moved = server.get("/runbooks");
    assert_eq!((moved.status, moved.header("location")), (301, Some("runbooks/")));
    for path in ["/runbooks/Nothing", "/runbooks/RedisLockAbandoned.md", "/runbooks/common/", "/runbooks/README"] {
        assert_eq!(server.get(path).status, 404, "{path}");
    }
}

#[test]
fn every_referenced_runbook_exists() {
    let named = Regex::new(r#""(RedisLock[A-Za-z]+|common/[a-z-]+)""#).unwrap();
    let server = answering();
    let mut n_named = 0;
    for file in ["src/report/health.rs", "src/ledger/queries/mod.rs", "src/http/page/assets/lock.js"] {
        let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).unwrap();
        for captures in named.captures_iter(&text) {
            assert_eq!(server.get(&format!("/runbooks/{}", &captures[1])).status, 200, "{} in {file}", &captures[1]);
            n_named += 1;
        }
    }
    assert!(n_named > 30, "only {n_named} runbook names were found");
}

#[test]
fn the_page_can_be_turned_off() {
    let (_pipeline, inquiries) = watch::channel(None);
    let off = Server::start_without_page(inquiries);
    assert!(
        off.get("/").text().contains("href=\"/api/v1/overview\""),
        "the landing page must keep its counters and links"
    );
    for path in ["/page/main.js", "/page/page.css", "/runbooks/", "/runbooks", "/runbooks/RedisLockAbandoned"] {
        assert_eq!(off.get(path).status, 404, "{path}");
    }
    assert_eq!(off.get("/api/v1/overview").status, 200, "the API must stay on");
    // Without the API the page has nothing to show. The runbooks do not need the API.
    let without_api = Server::start(ConnectionLimits::default());
    let front = without_api.get("/").text();
    assert!(front.contains("Failures read from the logs") && !front.contains("<script"), "{front}");
    assert_eq!(without_api.get("/runbooks/").status, 200);
}

#[test]
fn flags_turn_off_the_api_and_the_page() {
    let site = Site::new();
    site.configure("logs: [{path: 'SITE/logs/*.log'}]\npresets: [cordum]\n");
    let daemon = site.start_configured(&["--web.disable-page"]);
    assert!(!daemon.get("/").text().contains("<script"));
    assert_eq!((daemon.get("/runbooks/").status, daemon.get("/api/v1/overview").status), (404, 200));
    assert!(daemon.stop().success());
    let daemon = site.start_configured(&["--web.disable-api"]);
    assert!(!daemon.get("/").text().contains("<script"));
    assert_eq!((daemon.get("/runbooks/").status, daemon.get("/api/v1/overview").status), (200, 404));
}

#[test]
fn the_overview_shows_levels_and_explanations() {
    let server = answering();
    let answer = server.get("/api/v1/overview");
    assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")));
    let overview = body(&answer);
    // The sample is from another day.
    assert_eq!(overview["level"], "blind");
    assert!(overview["summary"].as_str().unwrap().contains("nothing here proves that all is well"));
    assert!(overview["now"].as_f64() > overview["taken_at"].as_f64());
    let findings = overview["findings"].as_array().unwrap();
    let about = |runbook: &str| findings.iter().find(|finding| finding["runbook"] == runbook);
    assert_eq!(about("RedisLockExporterAbsent").unwrap()["lock_namespace"], Value::Null);
    let overlong = about("RedisLockHeldTooLong").unwrap();
    assert_eq!((&overlong["lock_namespace"], &overlong["level"]), (&"workflow".into(), &"warning".into()));
    let levels: Vec<&str> = findings.iter().map(|finding| finding["level"].as_str().unwrap()).collect();
    let rank = |level: &&str| ["critical", "blind", "warning"].iter().position(|known| known == level).unwrap();
    assert!(levels.is_sorted_by_key(rank), "{levels:?}");
    let other = &overview["namespaces"][2];
    assert_eq!(
        (&other["lock_namespace"], &other["level"]),
        (&"other".into(), &"blind".into()),
        "not well while unseen"
    );
    let workflow = &overview["namespaces"][0];
    assert_eq!((&workflow["lock_namespace"], &workflow["keyspace"]["held"]), (&"workflow".into(), &1001.into()));
    assert_eq!(workflow["not_owned_ratio_threshold"], 0.02);
    assert_eq!(overview["namespaces"][2]["keyspace"], Value::Null);
    assert_eq!(overview["redis"]["complaints"][0], "user exporter may not HSCAN keys under lock:*");
    assert_eq!(overview["logs"][0]["lag_bytes"], 9000);
    assert_eq!(overview["exporter"]["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(server.get("/api/v1/overview?a=1").status, 400);
    assert_eq!(server.get("/api/v1/config").status, 503, "no configuration is active");
}

#[test]
fn a_failure_appears_in_the_chart_of_the_last_hour() {
    let site = Site::new();
    site.configure("logs: [{path: 'SITE/logs/*.log'}]\npresets: [cordum]\n");
    site.append("logs/engine.log", "");
    let daemon = site.start_configured(&[]);
    let at = redis_lock_exporter::util::clock::format(redis_lock_exporter::util::clock::now() - 20 * 60_000).unwrap();
    let attributes = [("run_id", "<b>run</b>"), ("error", "lock not owned")];
    let line = crate::lines::Line::new("workflow-engine", "run lock renewal failed", &attributes).json(&at);
    site.append("logs/engine.log", line + "\n");
    let workflow = |overview: &Value| {
        let all = overview["namespaces"].as_array().unwrap();
        all.iter().find(|one| one["lock_namespace"] == "workflow").unwrap().clone()
    };
    daemon.wait("one loss within the hour", |daemon| {
        workflow(&body(&daemon.get("/api/v1/overview")))["lately"]["1h"]["not_owned"] == 1
    });
    let one = workflow(&body(&daemon.get("/api/v1/overview")));
    assert_eq!(
        (&one["lately"]["5m"]["not_owned"], &one["level"]),
        (&0.into(), &"well".into()),
        "the failure is older than 5 minutes"
    );
    let line: Vec<u64> =
        one["line"]["not_owned"].as_array().unwrap().iter().map(|count| count.as_u64().unwrap()).collect();
    let place = line.iter().position(|count| *count == 1).unwrap();
    assert_eq!((line.len(), line.iter().sum::<u64>()), (120, 1));
    assert!((78..=79).contains(&place), "20 minutes are 40 steps before the last: {place}");
    let incident = &body(&daemon.get("/api/v1/incidents"))["incidents"][0];
    assert_eq!(
        incident["lock"], "cordum:wf:run:lock:<b>run</b>",
        "JSON must contain the original text without HTML escaping"
    );
    assert_eq!((&incident["cause"], &incident["verdict"]), (&"unknown".into(), &Value::Null));
}

#[test]
fn the_displayed_configuration_hides_secrets() {
    const SECRETS: [&str; 3] = ["in-the-url-7261", "in-the-file-9914", "in-the-environment-5503"];
    let server = RedisServer::start(&[]);
    let site = Site::new();
    fs::write(site.path("password"), SECRETS[1]).unwrap();
    let port = server.port();
    let redis = |more: &str| {
        format!(
            "redis: {{{more}}}\nlogs: [{{path: 'SITE/logs/*.log'}}]\nnamespaces: [{{name: jobs, keys: ['jobs:{{id}}']}}]\n"
        )
    };
    let with_url = redis(&format!("url: 'redis://exporter:{}@127.0.0.1:{port}/3'", SECRETS[0]));
    let with_file =
        redis(&format!("url: 'redis://127.0.0.1:{port}/3', username: exporter, password_file: 'SITE/password'"));
    let plain = redis(&format!("url: 'redis://127.0.0.1:{port}/3', username: exporter"));
    let file = site.path("password").display().to_string();
    let whereabouts = [
        "hidden".to_owned(),
        format!("in the file {file}"),
        "in the environment variable REDIS_LOCK_EXPORTER_REDIS_PASSWORD".to_owned(),
    ];
    for (yaml, expected) in [with_url, with_file, plain].iter().zip(whereabouts) {
        site.configure(yaml);
        let (config, state) = (site.path("config.yaml"), site.path("state"));
        let arguments = ["--config.file", config.to_str().unwrap(), "--state.dir", state.to_str().unwrap()];
        let daemon = crate::daemon::Daemon::start_with(&arguments, |command| {
            command.env("REDIS_LOCK_EXPORTER_REDIS_PASSWORD", SECRETS[2])
        });
        daemon.wait_ready();
        let config = body(&daemon.get("/api/v1/config"));
        let shown = &config["redis"];
        assert_eq!((&shown["password"], &shown["username"]), (&expected.clone().into(), &"exporter".into()));
        assert_eq!((&shown["addresses"][0], &shown["database"]), (&format!("127.0.0.1:{port}").into(), &3.into()));
        assert_eq!(config["namespaces"][0]["lock_namespace"], "jobs");
        assert!(config["logs"][0]["path"].as_str().unwrap().ends_with("/logs/*.log"));
        // Wrong passwords make Redis return errors, and the page shows those too.
        daemon.wait("Redis errors are reported", |daemon| {
            body(&daemon.get("/api/v1/overview"))["redis"]["complaints"].as_array().is_some_and(|all| !all.is_empty())
        });
        for path in ["/", "/metrics", "/-/ready", "/api/v1/overview", "/api/v1/config", "/api/v1/namespaces"] {
            let text = daemon.get(path).text();
            assert!(SECRETS.iter().all(|secret| !text.contains(secret)), "{path} has a secret: {text}");
        }
    }
}

/// `docs/api.md` lists every field, so that users do not have to read the code. It refers to
/// `docs/metrics.md` for the counters of failures.
#[test]
fn every_api_field_is_documented() {
    let read = |page: &str| fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(page)).unwrap();
    let (documentation, metrics) = (read("docs/api.md"), read("docs/metrics.md"));
    let server = answering();
    let site = Site::new();
    site.configure("logs: [{path: 'SITE/logs/*.log'}]\nredis: {url: 'redis://127.0.0.1:1/0'}\npresets: [cordum]\n");
    let daemon = site.start_configured(&[]);
    let mut n_fields = 0;
    let mut check = |answer: &Value, path: &str| {
        for field in fields(answer) {
            n_fields += 1;
            let forms = [format!("`{field}`"), format!(".{field}`")];
            let is_documented = forms.iter().any(|form| documentation.contains(form))
                || metrics.contains(&format!("`redis_lock_{field}_total`"));
            assert!(is_documented, "{field} of {path}");
        }
    };
    for path in ["overview", "locks", "locks/a", "incidents"] {
        check(&body(&server.get(&format!("/api/v1/{path}"))), path);
    }
    check(&body(&daemon.get("/api/v1/config")), "config");
    for route in ["overview", "namespaces", "locks", "locks/{key}", "incidents", "config"] {
        assert!(documentation.contains(&format!("[`GET /api/v1/{route}`](#")), "{route}");
    }
    assert!(n_fields > 120, "only {n_fields} fields were found");
}

/// Returns the names of all fields, without keys that are data, such as windows.
fn fields(value: &Value) -> BTreeSet<String> {
    match value {
        Value::Object(map) => {
            let own = map.keys().cloned();
            own.chain(map.values().flat_map(fields)).collect()
        }
        Value::Array(all) => all.iter().flat_map(fields).collect(),
        _ => BTreeSet::new(),
    }
}
