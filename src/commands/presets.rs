//! The `presets` command: lists the presets, and shows what one preset reads, sees and does not
//! see.
//!
//! `main` calls [`run`]. `docs/presets.md` has the same text; [`markdown`] generates it.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use serde::Serialize;

use crate::cli::{CheckOutput, EXIT_FAILED, EXIT_OK, EXIT_USAGE, PresetsArgs, PresetsCommand};
use crate::config::presets::{self, Preset};
use crate::config::{About, Checked, Coverage};

/// Runs the command and returns the exit code.
pub fn run(args: &PresetsArgs) -> u8 {
    let text = match (&args.command, args.output) {
        (None, CheckOutput::Text) => list(),
        (None, CheckOutput::Json) => json(&presets::all().iter().map(PresetRow::of).collect::<Vec<_>>()),
        (Some(PresetsCommand::Show { name }), output) => {
            let Some(preset) = presets::preset(name) else {
                eprintln!("there is no preset `{name}`; `redis_lock_exporter presets` lists them");
                return EXIT_USAGE;
            };
            match output {
                CheckOutput::Text => explain(&preset),
                CheckOutput::Json => json(&preset),
            }
        }
    };
    match io::stdout().lock().write_all(text.as_bytes()) {
        // `| head` closes the pipe when it has enough lines.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => EXIT_OK,
        Err(error) => {
            eprintln!("cannot write to standard output: {error}");
            EXIT_FAILED
        }
        Ok(()) => EXIT_OK,
    }
}

/// One row of the list.
#[derive(Serialize)]
struct PresetRow<'a> {
    name: &'a str,
    title: &'a str,
    language: &'a str,
    library: &'a str,
}

impl<'a> PresetRow<'a> {
    fn of(preset: &'a Preset) -> Self {
        let About { title, language, library, .. } = &preset.about;
        Self { name: &preset.name, title, language, library }
    }
}

fn json(value: &impl Serialize) -> String {
    // Serializing text, lists and options cannot fail.
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

fn list() -> String {
    let presets = presets::all();
    let width = presets.iter().map(|preset| preset.name.len()).max().unwrap_or_default();
    let mut text = String::new();
    for preset in &presets {
        let PresetRow { name, language, library, .. } = PresetRow::of(preset);
        let _ = writeln!(text, "{name:<width$}  {language:<10}  {library}");
    }
    text + "\n`presets show NAME` shows what a preset can and cannot observe.\n"
}

fn explain(preset: &Preset) -> String {
    let about = &preset.about;
    let mut text = format!("{} ({})\n{}\n", about.title, about.language, about.library);
    for (title, sentences) in sections(preset) {
        let _ = writeln!(text, "\n{title}:");
        for sentence in sentences {
            let _ = writeln!(text, "  - {sentence}");
        }
    }
    text + "\nThe preset itself:\n\n" + &preset.yaml
}

/// Returns the titled lists of sentences about a preset. Empty lists are omitted.
fn sections(preset: &Preset) -> Vec<(&'static str, Vec<String>)> {
    let About { checked, logs, log_level, keyspace, keys_from_user, notes, .. } = &preset.about;
    let plain = |sentences: &[String]| sentences.to_vec();
    let sees = |side: &Coverage| plain(&side.sees);
    let mut needed = Vec::new();
    if let Some(level) = log_level {
        needed.push(format!("the library's own lines, logged at the level {} and above", level.as_str()));
    }
    needed.extend(keys_from_user.iter().map(|keys| {
        let (namespace, example) = (&keys.namespace, &keys.example);
        format!("with Redis, the keys of your locks: namespaces: [{{name: {namespace}, keys: [\"{example}\"]}}]")
    }));
    let checked = checked.iter().map(|checked| match checked {
        Checked::Run(what) => format!("run against a live Redis: {what}"),
        Checked::Source(what) => format!("read in the source: {what}"),
    });
    let sections = vec![
        ("Observed in the logs", sees(logs)),
        ("Not observed in the logs", plain(&logs.blind_to)),
        ("Observed in Redis", sees(keyspace)),
        ("Not observed in Redis", plain(&keyspace.blind_to)),
        ("It needs", needed),
        ("To know", plain(notes)),
        ("Namespaces", preset.namespaces.clone()),
        ("Checked", checked.collect()),
    ];
    sections.into_iter().filter(|(_, sentences)| !sentences.is_empty()).collect()
}

/// Returns the text of `docs/presets.md`.
pub fn markdown() -> String {
    let mut text = String::from(
        "# Presets\n\n\
         <!-- Made from presets/*.yaml by `make docs`: change those, not this page. -->\n\n\
         A preset knows the messages and keys of a program or a lock library. `presets: [NAME]` in the configuration or\n\
         `--preset NAME` uses it, several of them together if you like; `redis_lock_exporter presets show NAME` prints the same as this\n\
         page, and the preset itself.\n\n\
         Your own file goes first. A namespace of the same name changes the fields it gives (`keys: []`: none, the logs are enough),\n\
         a rule of the same name takes the place of the preset's, and `event: ignore` silences a message. [Your own rule in five\n\
         minutes](own-rules.md) shows how.\n\n\
         | preset | for | in | checked by |\n|---|---|---|---|\n",
    );
    let presets = presets::all();
    for preset in &presets {
        let About { title, language, checked, .. } = &preset.about;
        // The part before the colon names what was run.
        let runs = checked.iter().filter_map(|checked| match checked {
            Checked::Run(what) => what.split(": ").next(),
            Checked::Source(_) => None,
        });
        let runs = runs.collect::<Vec<_>>().join("; ");
        let by = if runs.is_empty() { "its source".to_owned() } else { format!("running {}", escaped(&runs)) };
        let _ = writeln!(text, "| [{name}](#{name}) | {title} | {language} | {by} |", name = preset.name);
    }
    for preset in &presets {
        let _ = write!(text, "\n## {}\n\n{}.\n", preset.name, escaped(&preset.about.library));
        for (title, sentences) in sections(preset) {
            let _ = write!(text, "\n{title}:\n\n");
            for sentence in sentences {
                let _ = writeln!(text, "* {}", escaped(&sentence));
            }
        }
    }
    text
}

/// Escapes characters that Markdown would interpret. Inside code nothing is escaped.
fn escaped(text: &str) -> String {
    let mut in_code = false;
    let mut out = String::new();
    for character in text.chars() {
        in_code ^= character == '`';
        if !in_code && matches!(character, '*' | '<' | '_') {
            out.push('\\');
        }
        out.push(character);
    }
    out
}
