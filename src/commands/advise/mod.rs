//! The `advise` command: recommends TTLs and renewal intervals, from the numbers of an exporter or
//! of Prometheus.
//!
//! `main` calls [`run`]. [`crate::report::advice`] decides, as it does for `/metrics`. Exit code 1
//! if something should change, 2 if no advice is possible. In reading order:
//!
//! * `exporter`: the numbers of a running exporter, from `/api/v1/namespaces`
//! * `prometheus`: the numbers of a longer time, from Prometheus
//! * `text`: advice for people
//! * `json`: advice for scripts

mod exporter;
mod json;
mod prometheus;
mod text;

use std::io::{self, BufWriter, Write};

use anyhow::bail;

use super::input::is_closed_pipe;
use crate::cli::{AdviseArgs, AdviseOutput, EXIT_FAILED, EXIT_FINDINGS, EXIT_OK};
use crate::model::namespace::Namespace;
use crate::report::advice::{Advice, Evidence, Note, advise};

/// One lock namespace and the evidence about it.
struct AdvisedNamespace {
    /// The label `cluster` of the Prometheus targets. Empty if they have none.
    cluster: String,
    namespace: Namespace,
    evidence: Evidence,
    notes: Vec<Note>,
}

struct Advised {
    cluster: String,
    namespace: Namespace,
    advice: Advice,
}

impl Advised {
    fn of(subject: AdvisedNamespace) -> Self {
        let AdvisedNamespace { cluster, namespace, evidence, notes } = subject;
        let mut advice = advise(&namespace, &evidence);
        advice.notes.extend(notes);
        Self { cluster, namespace, advice }
    }

    /// The name in the table.
    fn name(&self) -> String {
        match self.cluster.as_str() {
            "" => self.namespace.name.clone(),
            cluster => format!("{cluster}/{}", self.namespace.name),
        }
    }

    fn changes_ttl(&self) -> bool {
        self.advice.ttl.is_some() && self.advice.ttl != self.namespace.ttl
    }

    fn changes_renewal(&self) -> bool {
        self.advice.renew_every.is_some() && self.advice.renew_every != self.namespace.renew_every
    }
}

/// Runs the command and returns the exit code.
pub fn run(args: &AdviseArgs) -> u8 {
    let mut out = BufWriter::new(io::stdout().lock());
    match answer(args, &mut out) {
        Ok(exit_code) => exit_code,
        Err(failure) if is_closed_pipe(&failure) => EXIT_OK,
        Err(failure) => {
            eprintln!("{failure:#}");
            EXIT_FAILED
        }
    }
}

fn answer(args: &AdviseArgs, out: &mut impl Write) -> anyhow::Result<u8> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let found = runtime.block_on(async {
        match (&args.exporter, &args.prometheus) {
            (Some(url), _) => exporter::subjects(url, args).await,
            (None, Some(url)) => prometheus::subjects(url, args).await,
            (None, None) => bail!("neither --exporter nor --prometheus is given"),
        }
    })?;
    let advised: Vec<Advised> = chosen(found, args)?.into_iter().map(Advised::of).collect();
    match args.output {
        AdviseOutput::Text => text::write(out, &advised)?,
        AdviseOutput::Json => json::write(out, &advised)?,
    }
    out.flush()?;
    let has_findings = advised.iter().any(|advised| !advised.advice.findings.is_empty());
    Ok(if has_findings { EXIT_FINDINGS } else { EXIT_OK })
}

/// Keeps the lock namespaces that the user asked for. Fails if one of them does not exist.
fn chosen(mut subjects: Vec<AdvisedNamespace>, args: &AdviseArgs) -> anyhow::Result<Vec<AdvisedNamespace>> {
    for name in &args.namespaces {
        if !subjects.iter().any(|subject| subject.namespace.name == *name) {
            let mut known: Vec<&str> = Vec::new();
            for subject in &subjects {
                if !known.contains(&subject.namespace.name.as_str()) {
                    known.push(&subject.namespace.name);
                }
            }
            bail!("nothing was observed in Redis of a lock namespace {name:?}; there are: {}", known.join(", "));
        }
    }
    if !args.namespaces.is_empty() {
        subjects.retain(|subject| args.namespaces.contains(&subject.namespace.name));
    }
    for subject in &mut subjects {
        subject.evidence.pause = args.pause.unwrap_or_default();
    }
    Ok(subjects)
}
