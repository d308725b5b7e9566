//! Ordinary log lines of the services, most of which are not about locks.
//!
//! About one line in eight still contains the letters "lock" (`blocked`, `clock_skew_ms`, URLs). An
//! exporter must not count such lines as lock failures, and they must not make it slow.

use super::{LineWriter, Nanos};
use crate::rehearsal::fleet::Random;

const TOPICS: &[&str] = &[
    "job.billing.invoice",
    "job.mail.send",
    "job.report.render",
    "job.search.index",
    "job.default",
    "job.media.transcode",
];
const REGIONS: &[&str] = &["eu-central-1", "us-east-1", "ap-southeast-2"];
const TENANTS: &[&str] = &["default", "acme", "globex", "initech", "umbrella"];
const STEPS: &[&str] = &["fetch-input", "validate", "charge-card", "render-report", "notify-customer", "archive"];
const AGENTS: &[&str] =
    &["cordum-dashboard/2.9.1 (linux; x64)", "Mozilla/5.0 (X11; Linux x86_64; rv:128.0)", "cordumctl/2.9.1"];
const URLS: &[&str] = &[
    "https://packs.example.net/catalog/v2/index.json?channel=stable",
    "https://docs.example.net/guides/distributed-locking#renewal",
    "https://mirror.example.org/packs/blockchain-audit/1.4.2/pack.tgz",
];

pub fn write_scheduler(out: &mut LineWriter, random: &mut Random, time: Nanos) {
    let (job, worker, kind) = (random.uuid(), random.below(400), random.below(8));
    match kind {
        0 => out.begin(time, "scheduler", "INFO", "job submitted").uuid("job_id", "", job),
        1 => out.begin(time, "scheduler", "INFO", "job dispatched").uuid("job_id", "", job),
        2 => out
            .begin(time, "scheduler", "INFO", "policy decision")
            .uuid("job_id", "", job)
            .text("decision", random.pick(&["ALLOW", "ALLOW_WITH_CONSTRAINTS"]))
            .numbered("blocked_by", "rule-", random.below(90)),
        3 => out
            .begin(time, "scheduler", "DEBUG", "worker heartbeat")
            .text("region", random.pick(REGIONS))
            .number("clock_skew_ms", random.below(40))
            .number("cpu_load", random.below(100))
            .number("memory_load", random.below(100))
            .number("active_jobs", random.below(16)),
        4 => out
            .begin(time, "scheduler", "INFO", "job result received")
            .uuid("job_id", "", job)
            .text("status", "JOB_STATUS_SUCCEEDED")
            .uuid("result_ptr", "redis://res:", job),
        5 => out
            .begin(time, "scheduler", "INFO", "worker snapshot written")
            .number("workers", 100 + random.below(300))
            .number("bytes", 20_000 + random.below(200_000))
            .text("region", random.pick(REGIONS)),
        6 => out
            .begin(time, "scheduler", "INFO", "safety check passed")
            .uuid("job_id", "", job)
            .number("policy_version", 40 + random.below(3))
            .text("region", random.pick(REGIONS)),
        _ => out
            .begin(time, "scheduler", "INFO", "compensation recorded for rollback")
            .uuid("job_id", "", job)
            .text("step", random.pick(STEPS))
            .uuid("workflow_id", "", job),
    };
    out.numbered("worker_id", "worker-", worker)
        .text("topic", random.pick(TOPICS))
        .text("tenant", random.pick(TENANTS))
        .number("queue_depth", random.below(5000))
        .number("duration", 40_000 + random.below(90_000_000))
        .end();
}

pub fn write_gateway(out: &mut LineWriter, random: &mut Random, time: Nanos) {
    let request = random.uuid();
    match random.below(16) {
        0 => out
            .begin(time, "gateway", "WARN", "marketplace URL blocked: host not in allow list")
            .text("url", random.pick(URLS)),
        1 => out.begin(time, "gateway", "INFO", "pack catalog refreshed").text("url", random.pick(URLS)),
        2 => out.begin(time, "gateway", "WARN", "login rejected").text("code", "LOGIN_LOCKOUT").numbered(
            "remote",
            "10.20.0.",
            random.below(255),
        ),
        3..=6 => out
            .begin(time, "gateway", "INFO", "stream event forwarded")
            .uuid("job_id", "", request)
            .text("topic", random.pick(TOPICS))
            .number("clients", random.below(30)),
        _ => out
            .begin(time, "gateway", "INFO", "http request")
            .text("method", random.pick(&["GET", "POST", "PATCH"]))
            .uuid("path", "/api/v1/jobs/", request)
            .number("status", 200)
            .numbered("remote", "10.20.0.", random.below(255))
            .text("user_agent", random.pick(AGENTS)),
    };
    out.uuid("request_id", "req-", request)
        .text("tenant", random.pick(TENANTS))
        .number("duration", 90_000 + random.below(400_000_000))
        .end();
}

pub fn write_workflow_engine(out: &mut LineWriter, random: &mut Random, time: Nanos) {
    let run = random.uuid();
    match random.below(4) {
        0 => out
            .begin(time, "workflow-engine", "INFO", "workflow step transition")
            .text("from", random.pick(&["pending", "running", "waiting"]))
            .text("to", random.pick(&["running", "succeeded"])),
        1 => out
            .begin(time, "workflow-engine", "INFO", "step output stored")
            .uuid("result_ptr", "redis://res:", run)
            .number("bytes", random.below(60_000)),
        2 => out
            .begin(time, "workflow-engine", "INFO", "delay timer scheduled")
            .number("delay", 1_000_000_000 * random.below(600))
            .number("drift_us", random.below(900)),
        _ => out
            .begin(time, "workflow-engine", "INFO", "expression evaluated")
            .text("expression", "steps.validate.output.total > 100 and not input.dry_run")
            .text("result", random.pick(&["true", "false"])),
    };
    out.uuid("run_id", "", run)
        .text("step_id", random.pick(STEPS))
        .numbered("workflow_id", "wf-", random.below(5000))
        .text("tenant", random.pick(TENANTS))
        .number("duration", 10_000 + random.below(9_000_000))
        .end();
}

/// Lines that mention locks or renewals but report no lock failure.
pub fn write_near_miss(out: &mut LineWriter, random: &mut Random, time: Nanos) {
    let id = random.uuid();
    match random.below(4) {
        0 => out
            .begin(time, "scheduler", "WARN", "config set: optimistic lock failed (key changed during tx)")
            .text("scope", "tenant")
            .text("scope_id", random.pick(TENANTS)),
        1 => out
            .begin(time, "scheduler", "WARN", "instance registry: heartbeat renewal failed")
            .uuid("key", "cordum:instance:scheduler:", id)
            .text("error", "context deadline exceeded"),
        2 => out
            .begin(time, "scheduler", "WARN", "job lock renewal failed") // the normal end of the work
            .uuid("job_id", "", id)
            .number("attempt", 1)
            .text("error", &format!("job store renew lock cordum:scheduler:job:{id}: context canceled")),
        _ => out.begin(time, "gateway", "DEBUG", "approval lock acquired").uuid("job_id", "", id).number("wait_ms", 3),
    };
    out.end();
}
