//! Tests the evaluation with small rule sets built in code. The tests of the presets cover the
//! lines of real programs.

use regex::Regex;

use super::*;
use crate::config::rules::rule::{IdSource, ReasonDraft, TextTest};
use crate::model::failure::{ConflictKind, FailureKind, Operation};
use crate::model::key_template::KeyTemplate;
use crate::model::label::Label;

/// Parses `name key,key component,component` for each lock namespace and adds `other`.
fn namespaces(texts: &[&str]) -> Vec<Arc<Namespace>> {
    let split =
        |text: Option<&str>| text.unwrap_or_default().split_terminator(',').map(str::to_owned).collect::<Vec<_>>();
    let make = |text: &&str| {
        let mut words = text.split(' ');
        Arc::new(Namespace {
            name: words.next().unwrap().to_owned(),
            keys: split(words.next()).iter().map(|key| KeyTemplate::parse(key).unwrap()).collect(),
            components: split(words.next()),
            severity: Default::default(),
            ..Namespace::other()
        })
    };
    texts.iter().chain(&["other"]).map(make).collect()
}

fn rule(message: &str, action: RuleAction, namespace: Option<u16>) -> RuleDraft {
    RuleDraft {
        name: message.to_owned(),
        matcher: RuleMatcher::Message(vec![message.to_owned()]),
        conditions: Vec::new(),
        action,
        namespace: namespace.map(NamespaceId),
        id: Vec::new(),
        reason: None,
        joins: None,
    }
}

fn regex_rule(regex: &str, action: RuleAction, namespace: Option<u16>) -> RuleDraft {
    RuleDraft { matcher: RuleMatcher::Regex(Regex::new(regex).unwrap()), ..rule(regex, action, namespace) }
}

fn lost_at(operation: Operation) -> RuleAction {
    RuleAction::Report { kind: FailureKind::NotOwned, operation, conflict: None }
}

const STALE_WRITE: RuleAction = RuleAction::Report {
    kind: FailureKind::ConflictingWrite,
    operation: Operation::Unknown,
    conflict: Some(ConflictKind::StaleWriteRejected),
};

fn condition(field: &str, test: FieldTest) -> Condition {
    Condition { field: field.to_owned(), test }
}

fn equals(value: &str) -> FieldTest {
    FieldTest::AnyOf(vec![value.to_owned()])
}

fn reasons() -> Vec<ReasonDraft> {
    let contains = |text: &str, reason| ReasonDraft { test: TextTest::Contains(text.to_owned()), reason };
    vec![
        contains("lock not owned", Reason::NotOwned),
        contains("context canceled", Reason::Canceled),
        contains("refused", Reason::RedisUnavailable),
    ]
}

const NAMESPACES: [&str; 5] = [
    "approval job:{job_id} gateway",
    "scheduler job:{job_id} scheduler",
    "run run:{run_id}",
    "leader leader:default",
    "packs lock:packs,lock:pack:{pack_id},lock:tenant:{tenant}:packs",
];

fn rule_set(rules: Vec<RuleDraft>) -> RuleSet {
    let finder = Regex::new(r"release lock (?P<key>\S+): ").unwrap();
    let namespaces = namespaces(&NAMESPACES);
    RuleSet::new(Arc::new(RuleConfig::new(rules, reasons(), vec![finder], namespaces.len())), &namespaces)
}

/// `expected` is `event reason namespace lock`, or `state predecessor namespace lock`, or `ignored`, or empty if no rule matches.
fn check(rules: &RuleSet, line: &str, expected: &str) {
    let found = match rules.evaluate(&LogRecord::parse(line.as_bytes(), None)) {
        RuleMatch::NoMatch => String::new(),
        RuleMatch::Ignored { .. } => "ignored".to_owned(),
        RuleMatch::Event(event) => {
            let namespace = namespaces(&NAMESPACES)[usize::from(event.namespace.0)].name.clone();
            let lock = event.lock.unwrap_or("-".to_owned());
            format!("{} {namespace} {lock}", shown(&event.statement))
        }
    };
    assert_eq!(found, expected, "{line}");
}

fn shown(statement: &Statement) -> String {
    match statement {
        Statement::Failure(failure) => {
            format!("{} {}", failure.event_name(), failure.reason().map_or("-", Reason::as_str))
        }
        Statement::FinalState { state, may_follow } => format!("{state} {}", may_follow.as_deref().unwrap_or("-")),
    }
}

#[test]
fn takes_whole_messages_first_and_in_order() {
    let mut narrow = rule("lock lost", RuleAction::report(FailureKind::AcquireFailed), Some(2));
    narrow.conditions = vec![condition("component", equals("gateway"))];
    let rules = rule_set(vec![
        regex_rule("lock lost", RuleAction::report(FailureKind::Abandoned), None),
        narrow,
        rule("lock lost", RuleAction::report(FailureKind::ReleaseFailed), None),
        rule("lock lost", RuleAction::report(FailureKind::RenewalFailed), None),
    ]);
    check(&rules, "[GATEWAY] WARN lock lost", "acquire_failed other run -");
    check(&rules, "[SCHEDULER] WARN lock lost", "release_failed other other -");
    check(&rules, "[SCHEDULER] WARN the lock lost again", "abandoned - other -");
    check(&rules, "[SCHEDULER] WARN all well", "");
}

#[test]
fn tests_conditions() {
    let mut draft = rule("m lock", RuleAction::report(FailureKind::ReleaseFailed), None);
    draft.conditions = vec![
        condition("error", FieldTest::Regex(Regex::new("^saga lock: ").unwrap())),
        condition("skip", FieldTest::Absent),
        condition("n", FieldTest::AnyOf(vec!["1".to_owned(), "2".to_owned()])),
        condition("message", equals("m lock")),
    ];
    let rules = rule_set(vec![draft]);
    check(&rules, "[A] WARN m lock error=saga lock: x n=2", "release_failed other other -");
    check(&rules, r#"{"msg":"m lock","error":"saga lock: refused","n":1}"#, "release_failed redis_unavailable other -");
    check(&rules, "[A] WARN m lock error=saga lock: x n=3", "");
    check(&rules, "[A] WARN m lock error=saga lock: x n=2 skip=", "");
    check(&rules, "[A] WARN m lock error=a saga lock: x n=2", "");
    check(&rules, "[A] WARN m lock n=2", "");
}

#[test]
fn looks_for_regexes_in_message_and_errors_only() {
    let rules = rule_set(vec![regex_rule("lock not owned", lost_at(Operation::Unknown), None)]);
    check(&rules, "release: lock not owned", "not_owned not_owned other -");
    check(&rules, r#"{"msg":"failed","err":{"message":"lock not owned"}}"#, "not_owned not_owned other -");
    check(&rules, r#"{"msg":"said","body":"lock not owned"}"#, "");
    check(&rules, r#"    raise LockError("lock not owned")"#, "");
    check(&rules, "\tat lock not owned", "");
    check(&rules, "Caused by: lock not owned", "");
}

#[test]
fn finds_the_lock() {
    let mut by_id = rule("by id", RuleAction::report(FailureKind::ReleaseFailed), Some(2));
    by_id.id = vec![IdSource::new("run"), IdSource::new("run_id")];
    let mut by_key = rule("by key", RuleAction::report(FailureKind::ReleaseFailed), Some(4));
    by_key.id = vec![IdSource::new("lock:{resource}"), IdSource::new("lock:packs")];
    let mut bare = rule("bare", RuleAction::report(FailureKind::ReleaseFailed), None);
    bare.id = vec![IdSource::new("run")];
    let mut packs = rule("packs lock", RuleAction::report(FailureKind::ReleaseFailed), Some(4));
    packs.id = vec![IdSource::new("lock")];
    let rules = rule_set(vec![
        by_id,
        by_key,
        bare,
        packs,
        rule("job", RuleAction::report(FailureKind::ReleaseFailed), None),
        rule("own", RuleAction::report(FailureKind::ReleaseFailed), Some(0)),
        rule("led", RuleAction::report(FailureKind::ReleaseFailed), Some(3)),
        regex_rule(r"run lock busy: (?P<id>\S+)", RuleAction::report(FailureKind::AcquireFailed), Some(2)),
        regex_rule(
            r"lock at (?P<key>\S+) gone(?: because (?P<error>.*))?",
            RuleAction::report(FailureKind::ReleaseFailed),
            None,
        ),
    ]);
    // A key in the line takes precedence over the rule's lock namespace, unless that is one of
    // those that share the key.
    check(&rules, "[GATEWAY] WARN own lock_key=run:a:b@c", "release_failed other run run:a:b@c");
    check(&rules, "[SCHEDULER] WARN own key=job:7", "release_failed other approval job:7");
    check(&rules, "[SCHEDULER] WARN job key=job:7", "release_failed other scheduler job:7");
    check(&rules, "[GATEWAY] WARN job key=job:7", "release_failed other approval job:7");
    check(&rules, "[ELSE] WARN job key=job:7", "release_failed other approval job:7");
    check(&rules, "[ELSE] WARN job key=unknown:7", "release_failed other other unknown:7");
    check(&rules, "[ELSE] WARN own key=unknown:7", "release_failed other approval unknown:7");
    check(&rules, "[ELSE] WARN job key=lock:tenant:t:packs", "release_failed other packs lock:tenant:t:packs");
    // A key inside a text.
    check(&rules, "[X] WARN own error=release lock run:a:b: refused", "release_failed redis_unavailable run run:a:b");
    check(&rules, "[X] WARN the lock at run:9 gone because lock not owned", "release_failed not_owned run run:9");
    check(&rules, "[X] WARN the lock at x:9 gone", "release_failed other other x:9");
    // The key built from fields.
    check(&rules, "[X] WARN own job_id=7", "release_failed other approval job:7");
    check(&rules, "[X] WARN by id run_id=a:b", "release_failed other run run:a:b");
    check(&rules, "[X] WARN by id run=a", "release_failed other run run:a");
    check(&rules, "[X] ERROR handler err=retry: run lock busy: r-1", "acquire_failed other run run:r-1");
    check(&rules, "[X] WARN by key resource=pack:7", "release_failed other packs lock:pack:7");
    check(&rules, "[X] WARN by key", "release_failed other packs lock:packs");
    check(&rules, "[X] WARN packs lock lock=packs:global", "release_failed other packs packs:global");
    check(&rules, "[X] WARN led", "release_failed other leader leader:default");
    check(&rules, "[X] WARN bare run=7", "release_failed other other 7");
    check(&rules, "[X] WARN own", "release_failed other approval -");
}

#[test]
fn finds_the_reason() {
    let mut busy = rule("busy", RuleAction::report(FailureKind::AcquireFailed), None);
    busy.reason = Some(Reason::Busy);
    let rules = rule_set(vec![
        rule("renew", RuleAction::report(FailureKind::RenewalFailed), None),
        rule("release", RuleAction::report(FailureKind::ReleaseFailed), None),
        rule("gave up", RuleAction::report(FailureKind::Abandoned), None),
        rule("no lock: refused", RuleAction::report(FailureKind::UnlockedWork), None),
        rule("mismatch", lost_at(Operation::Release), None),
        rule("stale", lost_at(Operation::Renew), None),
        rule("old write", STALE_WRITE, None),
        rule("fine", RuleAction::Ignore, None),
        busy,
    ]);
    check(&rules, "[X] WARN renew error=lock not owned", "renewal_failed not_owned other -");
    check(&rules, "[X] WARN renew error=context canceled", "ignored");
    check(&rules, "[X] WARN release error=context canceled", "release_failed canceled other -");
    check(&rules, "[X] WARN release error=huh", "release_failed other other -");
    check(&rules, "[X] WARN release err=lock not owned", "release_failed not_owned other -");
    check(&rules, "[X] WARN gave up", "abandoned - other -");
    check(&rules, "[X] WARN gave up error=huh", "abandoned other other -");
    check(&rules, "[X] WARN gave up error=lock not owned", "abandoned not_owned other -");
    check(&rules, "[X] WARN no lock: refused", "unlocked_work redis_unavailable other -");
    check(&rules, "[X] WARN mismatch", "release_failed not_owned other -");
    check(&rules, "[X] WARN stale", "renewal_failed not_owned other -");
    check(&rules, "[X] WARN old write", "stale_write_rejected - other -");
    check(&rules, "[X] WARN fine", "ignored");
    check(&rules, "[X] WARN busy error=lock not owned", "acquire_failed busy other -");
}

#[test]
fn knows_final_states() {
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let legal = vec![("DONE".to_owned(), "HELD".to_owned())];
    let action = FinalStateRule { state: "new".to_owned(), terminal: texts(&["DONE", "HELD"]), legal };
    let action = RuleAction::FinalState(action);
    let rules = rule_set(vec![rule("changed", action, Some(1))]);
    check(&rules, "[X] INFO changed job_id=7 new=DONE", "DONE - scheduler job:7");
    check(&rules, "[X] INFO changed job_id=7 new=HELD", "HELD DONE scheduler job:7");
    check(&rules, "[X] INFO changed job_id=7 new=RUNNING", "ignored");
    check(&rules, "[X] INFO changed job_id=7", "ignored");
}

#[test]
fn gives_the_texts_of_what_counts() {
    let rules = rule_set(vec![
        rule("job lock lost", RuleAction::report(FailureKind::ReleaseFailed), None),
        rule("all is well", RuleAction::Ignore, None),
        regex_rule("lock (?:lost)", RuleAction::report(FailureKind::ReleaseFailed), None),
    ]);
    let needed = [vec![vec![b"job lock lost".to_vec()]], vec![vec![b"lock lost".to_vec()]]];
    assert_eq!(rules.needed_texts(), needed);
}

fn check_near(rules: &RuleSet, line: &str, expected: &str) {
    let near = rules.explain(&LogRecord::parse(line.as_bytes(), None));
    let found = near.map(|near| format!("{}: {}", rules.config.name(near.rule), near.why)).unwrap_or_default();
    assert_eq!(found, expected, "{line}");
}

#[test]
fn explains_near_misses() {
    let mut narrow = rule("job lock renewal failed", RuleAction::report(FailureKind::RenewalFailed), None);
    narrow.conditions = vec![condition("component", equals("scheduler"))];
    let rules = rule_set(vec![narrow, regex_rule("lock stolen", RuleAction::report(FailureKind::ReleaseFailed), None)]);
    let name = "job lock renewal failed";
    check_near(&rules, "[SCHEDULER] WARN job lock renewal failed", "");
    check_near(&rules, "[SCHEDULER] WARN all is well", "");
    check_near(
        &rules,
        "[GATEWAY] WARN job lock renewal failed",
        &format!("{name}: `component` is \"gateway\", the rule requires \"scheduler\""),
    );
    check_near(
        &rules,
        "job lock renewal failed",
        &format!("{name}: there is no field `component`, the rule requires \"scheduler\""),
    );
    check_near(
        &rules,
        "[X] WARN job lock renewal failed, again",
        &format!("{name}: the message contains \"{name}\" but is longer"),
    );
    check_near(
        &rules,
        "[X] WARN Job lock renewal failed",
        &format!("{name}: the message differs from \"{name}\" in upper and lower case only"),
    );
    check_near(
        &rules,
        "[X] WARN job lock renewal stopped",
        &format!("{name}: the message is like \"{name}\" up to \"job lock renewal\""),
    );
    check_near(
        &rules,
        "  raise LockError('lock stolen')",
        "lock stolen: the line is the source code that a traceback shows, not a message",
    );
}
