//! Tests of complete records: the format, the message and the fields that the rules get from a
//! line. The submodules test their own functions.

use super::*;

const TIME: TimeMs = 1_782_394_624_000;

/// `expected` contains the message, followed by `name=value` for each field to check, joined by
/// `|`.
fn check(line: &str, format: RecordFormat, expected: &str) -> LogRecord {
    let record = LogRecord::parse(line.as_bytes(), None);
    let mut parts = expected.split('|');
    assert_eq!(record.message, parts.next().unwrap(), "{line}");
    assert_eq!(record.format, format, "{line}");
    for part in parts {
        let (name, value) = part.split_once('=').unwrap();
        assert_eq!(record.field(name), Some(value), "{name} of {line}");
    }
    record
}

#[test]
fn reads_json() {
    let record = check(
        r#"{"time":"2026-06-25T13:37:04Z","msg":"lock lost","component":"workflow-engine","component":"workflow","ttl":60000000000}"#,
        RecordFormat::Json,
        "lock lost|component=workflow|ttl=60000000000|message=lock lost",
    );
    assert_eq!(record.time, Some(TIME));
    check(r#"scheduler-1  | {"msg":"lock lost"}"#, RecordFormat::Json, "lock lost");
    check(r#"Jun 25 13:37:04 host app[7]: {"msg":"lock lost"}"#, RecordFormat::Json, "lock lost");
    check(r#"{"a":{"b":{"id":"deep"}},"c":{"id":"shallow"},"msg":"m"}"#, RecordFormat::Json, "m|id=shallow");
    check(r#"{"a":{"id":"deep"},"msg":"m"}"#, RecordFormat::Json, "m|a.id=deep|id=deep");
    check(r#"{"level":"warn","n":1}"#, RecordFormat::Json, "|n=1");
    check("\u{feff}{\"msg\":\"a\tb\"}\r", RecordFormat::Json, "a b");
    check(r#"{"msg":"\u001b[31mlock lost\u001b[0m\n"}"#, RecordFormat::Json, "lock lost");
}

#[test]
fn descends_into_messages() {
    let line =
        r#"{"log":"{\"msg\":\"lock lost\",\"host\":\"inner\"}\n","host":"outer","pod":"p","@timestamp":1782394624}"#;
    let record = check(line, RecordFormat::Json, "lock lost|host=inner|pod=p");
    assert_eq!(record.time, Some(TIME));
    check(
        r#"{"log":"[GATEWAY] WARN lock lost key=a:b\n","kubernetes":{"pod":"p"},"component":"shipper"}"#,
        RecordFormat::Bracketed,
        "lock lost|key=a:b|component=gateway|pod=p",
    );
    check(r#"{"message":"level=warn msg=\"lock lost\" k=v"}"#, RecordFormat::Logfmt, "lock lost|k=v");
    let mut nested = r#"{"msg":"end"}"#.to_owned();
    for _ in 0..6 {
        nested = serde_json::json!({ "msg": nested }).to_string();
    }
    assert!(LogRecord::parse(nested.as_bytes(), None).message.starts_with('{'));
}

#[test]
fn keeps_the_start_of_a_cut_object() {
    check(r#"{"msg":"lock lost","key":"a:b","blob":"xxxxx"#, RecordFormat::Json, "lock lost|key=a:b");
    check(r#"app | {"msg":"lock lost","blob":"xxxxx"#, RecordFormat::Json, "lock lost");
}

#[test]
fn reads_text() {
    check(
        "[SCHEDULER] WARN lock lost error=lock not owned",
        RecordFormat::Bracketed,
        "lock lost|component=scheduler|error=lock not owned",
    );
    let record = check("2026-06-25T13:37:04Z app: [SCHEDULER] WARN lock lost", RecordFormat::Bracketed, "lock lost");
    assert_eq!(record.time, Some(TIME));
    let record = check(
        r#"time=2026-06-25T13:37:04Z level=WARN msg="lock lost" k="v v""#,
        RecordFormat::Logfmt,
        "lock lost|k=v v",
    );
    assert_eq!(record.time, Some(TIME));
    let record = check("2026-06-25 13:37:04,000 lock lost id=7", RecordFormat::Plain, "lock lost id=7|id=7");
    assert_eq!(record.time, Some(TIME));
    check("[2026-06-25 13:37:04] lock lost", RecordFormat::Plain, "lock lost");
    check("redis: 2026/06/25 13:37:04 pool.go:7: x", RecordFormat::Plain, "redis: 2026/06/25 13:37:04 pool.go:7: x");
    check(
        r#"[GATEWAY] INFO got body={"msg":"lock not owned"}"#,
        RecordFormat::Bracketed,
        r#"got|body={"msg":"lock not owned"}"#,
    );
    check(r#"got {"a":1} and {"msg":"x"}"#, RecordFormat::Plain, r#"got {"a":1} and {"msg":"x"}"#);
}

#[test]
fn tells_asides() {
    let aside = |line: &str| LogRecord::parse(line.as_bytes(), None).aside;
    assert_eq!(aside("    raise LockNotOwnedError(\"x\")"), Some(NonStatement::SourceEcho));
    assert_eq!(aside("throw new ExecutionError(\"x\")"), Some(NonStatement::SourceEcho));
    for line in ["\tat a.b.Lock", " x", "at a.b.Lock", "Caused by: a", "... 7 more"] {
        assert_eq!(aside(line), Some(NonStatement::Continuation), "{line}");
    }
    for line in ["redis.exceptions.LockNotOwnedError: x", "raised", "\0\0lock lost", " {\"msg\":\"raise x\"}"] {
        assert_eq!(aside(line), None, "{line}");
    }
}

#[test]
fn finds_errors() {
    let errors = |line: &str| LogRecord::parse(line.as_bytes(), None).errors().collect::<Vec<_>>().join("|");
    assert_eq!(errors(r#"{"msg":"m","err":"b","error":"a","user":"c"}"#), "a|b");
    assert_eq!(errors(r#"{"msg":"m","err":{"type":"E","message":"lost","stack":"at x"}}"#), "E: lost|at x");
    assert_eq!(errors(r#"{"message":"m"}"#), "");
}

#[test]
fn takes_the_time_of_the_record_itself() {
    let time = |line: &str| LogRecord::parse(line.as_bytes(), Some(5)).time;
    assert_eq!(time(r#"{"msg":"m","user":{"time":"2026-06-25T13:37:04Z"}}"#), Some(5));
    assert_eq!(time(r#"{"msg":"m","time":"soon","ts":1782394624}"#), Some(TIME));
    assert_eq!(time("plain"), Some(5));
}

proptest::proptest! {
    #[test]
    fn survives_any_bytes(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..200)) {
        let _ = LogRecord::parse(&unwrap_line(&bytes).text, None);
    }

    #[test]
    fn survives_text_that_looks_right(text in r#"(\{|"|\\|\[|\]|:|,|=| |log|msg|A|WARN|u|1|\n|\x1b|é){0,40}"#) {
        for head in ["", "{\"log\":\"", "{\"msg\":\"", "2026-06-25T13:37:04Z stderr F ", "[A] WARN ", "msg="] {
            let line = format!("{head}{text}");
            let _ = LogRecord::parse(&unwrap_line(line.as_bytes()).text, None);
        }
    }
}
