//! One process of the fleet: its log file, and the gate that freezes it. All workers of the process
//! share it. A log file that cannot be written stops the fleet.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use anyhow::Context as _;

use super::{CordumLogFormat, LineWriter, LogMessage, Nanos, Service, chatter};
use crate::rehearsal::fleet::{PauseGate, Random};

pub(super) struct SimulatedProcess {
    pub(super) service: Service,
    pub(super) node: &'static str,
    log: Mutex<Log>,
    /// Closed while the process is frozen. Everything that its workers do passes this gate.
    pub(super) gate: PauseGate,
}

struct Log {
    path: PathBuf,
    file: File,
    out: LineWriter,
}

impl SimulatedProcess {
    /// Opens `SERVICE-NODE.log`. Each service uses one of the log formats that are common in
    /// production.
    pub(super) fn start(service: Service, node: &'static str, logs: &Path) -> anyhow::Result<Self> {
        let form = match service {
            Service::Scheduler => CordumLogFormat::Json,
            Service::WorkflowEngine => CordumLogFormat::Docker,
            Service::Gateway => CordumLogFormat::Text,
        };
        let path = logs.join(format!("{}-{node}.log", service.name()));
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.with_context(|| format!("cannot open {}", path.display()))?;
        let log = Mutex::new(Log { path, file, out: LineWriter::new(form) });
        Ok(Self { service, node, log, gate: PauseGate::default() })
    }

    /// Logs a message. Returns the time of the line.
    pub(super) fn log(&self, message: LogMessage) -> anyhow::Result<Nanos> {
        let time = now();
        self.write(|out| message.write(out, time, self.service))?;
        Ok(time)
    }

    /// Logs one of the many lines that are not about locks.
    pub(super) fn chat(&self, random: &mut Random) -> anyhow::Result<()> {
        self.write(|out| match self.service {
            Service::Scheduler => chatter::write_scheduler(out, random, now()),
            Service::WorkflowEngine => chatter::write_workflow_engine(out, random, now()),
            Service::Gateway => chatter::write_gateway(out, random, now()),
        })
    }

    fn write(&self, write: impl FnOnce(&mut LineWriter)) -> anyhow::Result<()> {
        let mut log = self.log.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let Log { path, file, out } = &mut *log;
        write(out);
        file.write_all(&out.out).with_context(|| format!("cannot write {}", path.display()))?;
        out.out.clear();
        Ok(())
    }
}

fn now() -> Nanos {
    jiff::Timestamp::now().as_nanosecond() as Nanos
}
