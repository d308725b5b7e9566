//! Tests certificates that are replaced while the exporter runs, correctly and incorrectly.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;

use super::{PASSWORD, Reply, Secured, TLS, curl, hash};
use crate::daemon::{Daemon, text};
use crate::redis::certificates::Certificates;
use crate::redis::eventually;

const RELOAD_OK: &str = "redis_lock_exporter_config_last_reload_successful";

fn trusting(daemon: &Daemon, certificates: &Certificates, path: &str) -> Reply {
    curl(&["--cacert", text(&certificates.path("ca.pem")), &format!("https://{}{path}", daemon.address)])
}

fn replace(secured: &Secured, others: &Certificates, names: &[&str]) {
    for name in names {
        // Certificate managers work like this: complete files replace the old ones.
        let new = secured.path(&format!("{name}.new"));
        fs::copy(others.path(name), &new).unwrap();
        fs::rename(&new, secured.path(name)).unwrap();
    }
}

fn reload_ok(daemon: &Daemon, certificates: &Certificates) -> bool {
    trusting(daemon, certificates, "/metrics").body.contains(&format!("\n{RELOAD_OK} 1\n"))
}

#[test]
fn new_connections_get_the_new_certificate_and_no_request_fails() {
    let (secured, others) = (Secured::new(TLS), Certificates::new());
    let daemon = secured.start(&[]);
    // This client trusts both CAs, so its requests must never fail.
    let both = secured.path("both.pem");
    let bundle = fs::read(secured.path("ca.pem")).unwrap().into_iter().chain(fs::read(others.path("ca.pem")).unwrap());
    fs::write(&both, bundle.collect::<Vec<u8>>()).unwrap();
    assert_eq!(trusting(&daemon, &secured.certificates, "/-/healthy").status, 200);
    assert_eq!(trusting(&daemon, &others, "/-/healthy").status, 0);
    let (done, asked) = (AtomicBool::new(false), AtomicUsize::new(0));
    thread::scope(|scope| {
        let client = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let reply = curl(&["--cacert", &both, &format!("https://{}/metrics", daemon.address)]);
                assert_eq!(reply.status, 200, "{}", reply.error);
                asked.fetch_add(1, Ordering::Relaxed);
            }
        });
        replace(&secured, &others, &["server.pem", "server.key"]);
        eventually("the exporter to use the new certificate", || {
            (trusting(&daemon, &others, "/-/healthy").status == 200).then_some(())
        });
        let so_far = asked.load(Ordering::Relaxed);
        eventually("three more requests", || (asked.load(Ordering::Relaxed) > so_far + 3).then_some(()));
        done.store(true, Ordering::Relaxed);
        client.join().unwrap();
    });
    assert_eq!(
        trusting(&daemon, &secured.certificates, "/-/healthy").status,
        0,
        "the old certificate must not be served"
    );
    assert!(daemon.log().contains("web configuration loaded again"), "{}", daemon.log());
    assert!(!daemon.log().contains("refused"), "{}", daemon.log());
}

#[test]
fn unusable_certificates_are_reported_and_change_nothing() {
    let (secured, others) = (Secured::new(TLS), Certificates::new());
    let daemon = secured.start(&[]);
    secured.wait_for_status(&daemon, "/-/ready", &[], 200);
    let own = &secured.certificates;
    let good_key = fs::read(secured.path("server.key")).unwrap();
    let break_and_mend = |what: &str, told: &str, break_it: &dyn Fn(), mend_it: &dyn Fn()| {
        break_it();
        eventually(what, || (!reload_ok(&daemon, own)).then_some(()));
        assert_eq!(trusting(&daemon, own, "/-/healthy").status, 200, "{what}");
        assert!(daemon.log().contains(told), "{what}: no {told:?} in\n{}", daemon.log());
        mend_it();
        eventually("a successful reload", || reload_ok(&daemon, own).then_some(()));
    };
    let key = secured.path("server.key");
    break_and_mend(
        "a key of another certificate",
        "the key does not belong to the certificate",
        &|| {
            replace(&secured, &others, &["server.key"]);
        },
        &|| fs::write(&key, &good_key).unwrap(),
    );
    break_and_mend("no key", "cannot read", &|| fs::remove_file(&key).unwrap(), &|| {
        fs::write(&key, &good_key).unwrap();
    });
    break_and_mend(
        "half a key",
        "there is no private key in server.key",
        &|| {
            fs::write(&key, &good_key[..good_key.len() / 2]).unwrap();
        },
        &|| fs::write(&key, &good_key).unwrap(),
    );
    break_and_mend("bad YAML", "web.yml:2:1: not valid YAML", &|| secured.configure(&format!("{TLS}]")), &|| {
        secured.configure(TLS);
    });
    break_and_mend("an empty file", "TLS would be removed or weakened", &|| secured.configure(""), &|| {
        secured.configure(TLS);
    });
}

#[test]
fn tls_client_checks_and_passwords_cannot_be_removed_while_running() {
    let strong = format!(
        "{}, client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.pem}}\nbasic_auth_users: {{me: {}}}\n",
        TLS.trim_end().trim_end_matches('}'),
        hash(PASSWORD)
    );
    let secured = Secured::new(&strong);
    let daemon = secured.start(&["--web.enable-lifecycle"]);
    let (certificate, key, me) = (secured.path("client.pem"), secured.path("client.key"), format!("me:{PASSWORD}"));
    let known = ["--cert", &certificate, "--key", &key, "--user", &me];
    secured.wait_for_status(&daemon, "/-/ready", &known, 200);
    for (weaker, lost) in [
        (String::new(), "TLS would"),
        (strong.replace("RequireAndVerifyClientCert", "VerifyClientCertIfGiven"), "the check of client certificates"),
        (strong.split("basic_auth").next().unwrap().to_owned(), "the list of users"),
    ] {
        secured.configure(&weaker);
        let reply = secured.get(&daemon, "/-/reload", &[&known[..], &["--request", "POST"]].concat());
        assert_eq!(reply.status, 500, "{lost}");
        assert!(reply.body.contains(lost) && reply.body.contains("restart"), "{}", reply.body);
        assert_eq!(secured.get(&daemon, "/metrics", &known).status, 200);
        assert_eq!(secured.get(&daemon, "/metrics", &known[..4]).status, 401);
        assert_eq!(secured.get(&daemon, "/metrics", &[]).status, 0);
    }
    secured.configure(&strong);
    assert_eq!(secured.get(&daemon, "/-/reload", &[&known[..], &["--request", "POST"]].concat()).status, 200);
}

/// Each type of client authentication checks something that another one does not.
#[test]
fn weaker_client_authentication_requires_a_restart() {
    let with = |more: &str| format!("{}{more}}}\n", TLS.trim_end().trim_end_matches('}'));
    let auth = |kind: &str, more: &str| with(&format!(", client_auth_type: {kind}, client_ca_file: ca.pem{more}"));
    let any = with(", client_auth_type: RequireAnyClientCert");
    let names = |names: &str| auth("RequireAndVerifyClientCert", &format!(", client_allowed_sans: [{names}]"));
    let (check, list) = ("the check of client certificates would", "the list of allowed names in client certificates");
    for (strong, weaker, lost) in [
        (any.clone(), auth("VerifyClientCertIfGiven", ""), check),
        (auth("VerifyClientCertIfGiven", ""), any, check),
        (names("client.test"), auth("RequireAndVerifyClientCert", ""), list),
        (names("client.test"), names("client.test, other.test"), list),
        (with(", min_version: TLS13"), with(", min_version: TLS12"), "the oldest version of TLS"),
        (with(", min_version: TLS13"), with(""), "the oldest version of TLS"),
    ] {
        let secured = Secured::new(&strong);
        let daemon = secured.start(&[]);
        secured.configure(&weaker);
        daemon.wait_for_log("web configuration refused");
        assert!(daemon.log().contains(lost), "{strong}{weaker}{}", daemon.log());
        // An equally strong configuration is accepted.
        let secured = Secured::new(&strong);
        let daemon = secured.start(&[]);
        secured.configure(&format!("# the same\n{strong}"));
        daemon.wait_for_log("web configuration loaded again");
    }
}

#[test]
fn sighup_reads_the_web_configuration_too() {
    let (secured, others) = (Secured::new(TLS), Certificates::new());
    let daemon = secured.start(&[]);
    replace(&secured, &others, &["server.pem", "server.key"]);
    daemon.signal("HUP");
    eventually("the exporter to use the new certificate", || {
        (trusting(&daemon, &others, "/-/healthy").status == 200).then_some(())
    });
}
