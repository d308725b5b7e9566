//! `check --logs`: shows what the rules find in each line of a sample, or why they find nothing.
//!
//! `check` calls [`run`]. The lines pass through the extractor and the ledger of the daemon, so the
//! result is the same as with `run`. A line is *silent* if it contains no text that a rule searches
//! for and does not resemble a problem with a lock. Errors come only from reading or writing.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::Write;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use anyhow::Context as _;
use memchr::memchr_iter;
use regex::bytes::Regex;

use super::report::{CheckReport, CheckSummary, LineOutcome, LineReport, NO_TEXT};
use crate::cli::CheckArgs;
use crate::commands::input::{self, EventTimes};
use crate::config::{Config, DEFAULT_MAX_LINE_BYTES};
use crate::ledger::Ledger;
use crate::logs::blocks::Cut;
use crate::logs::extract::{Extractor, InspectedLine, LineAssembler};
use crate::logs::line::{LogRecord, unwrap_line};
use crate::logs::rules::{RuleMatch, RuleSet};
use crate::model::failure::Failure;
use crate::model::label::Label;
use crate::model::log_event::{LogEvent, Statement};
use crate::model::namespace::NamespaceId;
use crate::util::clock;
use crate::util::clock::TimeMs;

/// A message identifies a line for people. It is cut, because it may contain a long stack trace.
const MAX_MESSAGE_CHARS: usize = 1000;

/// The maximum number of lines in a record.
const MAX_EARLIER: usize = 512;

/// A line that no rule matches is shown to the author of a rule if it mentions a lock (not a block
/// or a clock) and also matches [`TROUBLE`].
static A_LOCK: LazyLock<Regex> = LazyLock::new(|| {
    let words = r"(?:\b|_)(?i:lock|unlock|redlock|mutex|lease)(?i:s|ed|ing)?(?:\b|_)";
    let names = r"[a-z]Lock(?:[A-Z]|\b)|\b(?:Red)?Lock[A-Z]";
    Regex::new(&format!("{words}|{names}")).expect("a constant")
});
/// Words of problems. Without them, ordinary lines such as "lock acquired" would be shown too.
static TROUBLE: LazyLock<Regex> = LazyLock::new(|| {
    let words = "warn|err|fail|fatal|panic|lost|lose|stolen|expire|abandon|busy|conten|conflict|timeout|timed out|deadline\
                 |mismatch|not own|no longer|held|cannot|could not|couldn|unable|refus|denied|exception";
    Regex::new(&format!("(?i:{words})")).expect("a constant")
});

/// Reads the sample and prints the result. Fails if reading or writing fails.
pub(in crate::commands) fn run(
    path: &Path,
    args: &CheckArgs,
    config: &Config,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let mut pieces = input::open(path)?.pieces;
    let mut report = CheckReport::new(args, config, out)?;
    let mut sample = LogSample::new(config);
    sample.summary.generic_rules_only = args.has_generic_rules_only();
    let mut skipping = false;
    let mut offset = 0;
    loop {
        let (cut, text) = pieces.next(skipping).with_context(|| format!("cannot read {:?}", path.display()))?;
        match cut {
            Cut::Unfinished | Cut::NeedMore => break,
            Cut::Skipped { ends, .. } => skipping = !ends,
            Cut::Lines(_) | Cut::TooLong(_) => {
                skipping = matches!(cut, Cut::TooLong(_));
                sample.summary.oversized += u64::from(skipping);
                report.lines(&sample.block(text, offset))?;
            }
        }
        offset += text.len() as u64;
    }
    report.lines(&sample.rest())?;
    report.finish(&sample.summary)
}

struct LogSample<'a> {
    config: &'a Config,
    rules: Arc<RuleSet>,
    extractor: Extractor,
    ledger: Ledger,
    now: TimeMs,
    times: EventTimes,
    joiner: LineAssembler,
    /// Line numbers of pieces of split lines, by offset. Their last piece may come in a later
    /// block.
    pieces: BTreeMap<u64, u64>,
    /// Offsets and numbers of the last lines of earlier blocks. A record may have begun there.
    earlier: VecDeque<(u64, u64)>,
    /// The line that counted a lock's last failure, per operation.
    counted: HashMap<(NamespaceId, String, Option<&'static str>), u64>,
    summary: CheckSummary,
}

/// A line and the result of the rules. `judged` is `None` if the line has no text that a rule
/// needs.
struct JudgedLine {
    offset: u64,
    text: Vec<u8>,
    time: Option<TimeMs>,
    judged: Option<Box<(LogRecord, RuleMatch)>>,
}

impl<'a> LogSample<'a> {
    fn new(config: &'a Config) -> Self {
        let rules = RuleSet::compile(config);
        Self {
            config,
            extractor: Extractor::new(Arc::clone(&rules), DEFAULT_MAX_LINE_BYTES),
            rules,
            ledger: Ledger::new(config.namespaces.clone(), config.join_window, Default::default()),
            now: clock::now(),
            times: EventTimes::new(clock::now()),
            joiner: LineAssembler::default(),
            pieces: BTreeMap::new(),
            earlier: VecDeque::new(),
            counted: HashMap::new(),
            summary: CheckSummary::default(),
        }
    }

    /// Reports on a block of complete lines, ordered by line number.
    fn block(&mut self, block: &[u8], offset: u64) -> Vec<LineReport<'a>> {
        let mut pieces = Vec::new();
        let mut looked = Vec::new();
        self.extractor.look(block, offset, &mut self.joiner, &mut |look| match look {
            InspectedLine::Piece { offset } => pieces.push(offset),
            InspectedLine::Line { offset, text, time, judged } => {
                looked.push(JudgedLine { offset, text: text.to_vec(), time, judged });
            }
        });
        let breaks = memchr_iter(b'\n', block).map(|at| at + 1).filter(|start| *start < block.len());
        let starts: Vec<usize> = std::iter::once(0).chain(breaks).collect();
        let first_number = self.summary.lines + 1;
        self.summary.lines += starts.len() as u64;
        // Offset of each line, and its index in the block.
        let mut left: BTreeMap<u64, usize> = starts.iter().map(|start| offset + *start as u64).zip(0..).collect();
        for piece in pieces {
            self.pieces.extend(left.remove(&piece).map(|index| (piece, first_number + index as u64)));
        }
        let mut findings = Vec::new();
        for line in looked {
            let index = left.remove(&line.offset).map(|index| first_number + index as u64);
            let number = index.or_else(|| self.number_of(line.offset)).unwrap_or(first_number);
            findings.push(self.judge(number, line));
        }
        for (line_offset, index) in left {
            let end = starts.get(index + 1).map_or(block.len(), |next| *next);
            let unwrapped = unwrap_line(block[starts[index]..end].trim_ascii_end());
            let (text, time) = (unwrapped.text.into_owned(), unwrapped.time);
            let line = JudgedLine { offset: line_offset, text, time, judged: None };
            findings.push(self.judge(first_number + index as u64, line));
        }
        if !self.joiner.is_waiting() {
            self.pieces.clear();
        }
        let last = starts.len().saturating_sub(MAX_EARLIER);
        for (index, start) in starts.iter().enumerate().skip(last) {
            self.earlier.push_back((offset + *start as u64, first_number + index as u64));
        }
        self.earlier.drain(..self.earlier.len().saturating_sub(MAX_EARLIER));
        findings.sort_by_key(|finding| finding.line);
        findings
    }

    /// Returns the number of a line from an earlier block.
    fn number_of(&self, offset: u64) -> Option<u64> {
        let earlier = self.earlier.iter().find(|(other, _)| *other == offset).map(|(_, number)| *number);
        self.pieces.get(&offset).copied().or(earlier)
    }

    /// Reports on pieces of split lines whose other pieces are not in the sample.
    fn rest(&mut self) -> Vec<LineReport<'a>> {
        let mut looked = Vec::new();
        self.extractor.look_at_rest(&mut self.joiner, &mut |look| {
            if let InspectedLine::Line { offset, text, time, judged } = look {
                looked.push(JudgedLine { offset, text: text.to_vec(), time, judged });
            }
        });
        let number = |line: &JudgedLine| self.number_of(line.offset).unwrap_or_default();
        let numbered: Vec<(u64, JudgedLine)> = looked.into_iter().map(|line| (number(&line), line)).collect();
        numbered.into_iter().map(|(number, line)| self.judge(number, line)).collect()
    }

    /// Builds the report of one line and counts it in the summary.
    fn judge(&mut self, number: u64, line: JudgedLine) -> LineReport<'a> {
        let finding = match line.judged.as_deref() {
            Some((_, RuleMatch::Event(event))) => self.taken(number, event),
            Some(_) | None => self.not_taken(number, &line),
        };
        self.summary.count(finding.outcome);
        finding
    }

    fn taken(&mut self, number: u64, event: &LogEvent) -> LineReport<'a> {
        let config = self.config;
        let namespace = &config.namespaces[usize::from(event.namespace.0)];
        let counted = self.ledger.apply(self.times.time_of(event, 0), self.now, event);
        let reported = match &event.statement {
            Statement::Failure(failure) => Some(*failure),
            Statement::FinalState { .. } => None,
        };
        let failure = counted.or(reported);
        let operation = failure.and_then(Failure::operation_name);
        let lock = namespace.name_lock(event.lock.as_deref());
        let mut finding = LineReport {
            time: event.time.and_then(clock::format),
            event: Some(counted.map_or_else(|| event.statement.event_name(), Failure::event_name)),
            lock_namespace: Some(&namespace.name),
            operation,
            reason: failure.and_then(Failure::reason).map(Label::as_str),
            lock_id: lock.id.map(str::to_owned),
            lock_key: lock.key.map(str::to_owned),
            rule: Some(config.rules.name(event.rule)),
            ..LineReport::new(number, event.offset, LineOutcome::Counted)
        };
        let of_lock = |operation| (event.namespace, event.lock.clone().unwrap_or_default(), operation);
        match (counted, reported) {
            (Some(_), _) => {
                self.counted.insert(of_lock(operation), number);
                self.counted.insert(of_lock(None), number);
            }
            (None, None) => finding.outcome = LineOutcome::Noted,
            (None, Some(_)) => {
                finding.outcome = LineOutcome::Joined;
                let same_operation = self.counted.get(&of_lock(operation));
                finding.joins_line = same_operation.or_else(|| self.counted.get(&of_lock(None))).copied();
            }
        }
        finding
    }

    fn not_taken(&self, number: u64, line: &JudgedLine) -> LineReport<'a> {
        let has_literal = line.judged.is_some();
        let is_lock_trouble = A_LOCK.is_match(&line.text) && TROUBLE.is_match(&line.text);
        let silent = || {
            let why = Some(NO_TEXT.to_owned());
            LineReport { why, ..LineReport::new(number, line.offset, LineOutcome::Silent) }
        };
        if !has_literal && !is_lock_trouble {
            return silent();
        }
        let rules = &self.rules;
        let judged = line.judged.clone().unwrap_or_else(|| {
            let record = LogRecord::parse(&line.text, line.time);
            let verdict = rules.evaluate(&record);
            Box::new((record, verdict))
        });
        let (record, verdict) = *judged;
        let (outcome, rule, why) = match verdict {
            RuleMatch::Ignored { rule } => (LineOutcome::Ignored, Some(rule), rules.why_ignored(rule).to_owned()),
            RuleMatch::Event(event) => {
                let why = "the rule would match, but colors or escapes hide its text from the search";
                (LineOutcome::Overlooked, Some(event.rule), why.to_owned())
            }
            RuleMatch::NoMatch => match rules.explain(&record) {
                Some(near) => (LineOutcome::Near, Some(near.rule), near.why),
                None if is_lock_trouble => (LineOutcome::Unknown, None, "no rule is like it".to_owned()),
                None => return silent(),
            },
        };
        LineReport {
            time: record.time.and_then(clock::format),
            rule: rule.map(|rule| self.config.rules.name(rule)),
            why: Some(why),
            message: Some(record.message.chars().take(MAX_MESSAGE_CHARS).collect()),
            ..LineReport::new(number, line.offset, outcome)
        }
    }
}
