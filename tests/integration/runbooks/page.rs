//! Parses a runbook for the tests: headings, links, and fenced blocks.

use std::fs;
use std::path::{Path, PathBuf};

use regex::Regex;

pub(super) const DIRECTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/runbooks");

pub(super) struct Page {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// A fenced block: the word after the fence, and the content.
pub(super) struct Block {
    pub(super) language: String,
    pub(super) text: String,
}

impl Page {
    pub(super) fn read(path: &Path) -> Self {
        Self { path: path.to_owned(), text: fs::read_to_string(path).unwrap() }
    }

    /// Returns the file name without its extension.
    pub(super) fn name(&self) -> &str {
        self.path.file_stem().unwrap().to_str().unwrap()
    }

    /// Returns the path relative to the directory of the runbooks, for messages.
    pub(super) fn place(&self) -> String {
        self.path.strip_prefix(DIRECTORY).unwrap().display().to_string()
    }

    pub(super) fn blocks(&self) -> Vec<Block> {
        let mut blocks = Vec::new();
        let mut open: Option<Block> = None;
        for line in self.text.lines() {
            match (line.strip_prefix("```"), open.take()) {
                (Some(language), None) => open = Some(Block { language: language.to_owned(), text: String::new() }),
                (Some(_), Some(block)) => blocks.push(block),
                (None, Some(mut block)) => {
                    block.text.push_str(line);
                    block.text.push('\n');
                    open = Some(block);
                }
                (None, None) => {}
            }
        }
        assert!(open.is_none(), "{}: a block is not closed", self.place());
        blocks
    }

    pub(super) fn blocks_of(&self, language: &str) -> Vec<String> {
        self.blocks().into_iter().filter(|block| block.language == language).map(|block| block.text).collect()
    }

    /// Returns the text without fenced blocks.
    pub(super) fn prose(&self) -> String {
        let mut is_open = false;
        let mut prose = String::new();
        for line in self.text.lines() {
            if line.starts_with("```") {
                is_open = !is_open;
            } else if !is_open {
                prose.push_str(line);
                prose.push('\n');
            }
        }
        prose
    }

    /// Returns the headings with `level` `#` characters.
    pub(super) fn headings(&self, level: usize) -> Vec<String> {
        let mark = format!("{} ", "#".repeat(level));
        self.prose().lines().filter_map(|line| line.strip_prefix(&mark)).map(str::to_owned).collect()
    }

    /// Returns the text under a second-level heading, up to the next one.
    pub(super) fn section(&self, heading: &str) -> String {
        let mark = format!("## {heading}\n");
        let start = self.text.find(&mark).unwrap_or_else(|| panic!("{}: no {heading:?}", self.place())) + mark.len();
        let rest = &self.text[start..];
        rest[..rest.find("\n## ").unwrap_or(rest.len())].trim().to_owned()
    }

    /// Returns the anchors that GitHub generates for the headings.
    pub(super) fn anchors(&self) -> Vec<String> {
        let headings = (1..=4).flat_map(|level| self.headings(level));
        let slug = |heading: String| {
            let kept = heading.to_lowercase();
            let kept = kept.chars().filter(|letter| letter.is_alphanumeric() || matches!(letter, ' ' | '-' | '_'));
            kept.collect::<String>().replace(' ', "-")
        };
        headings.map(slug).collect()
    }

    /// Returns the targets of links, without web addresses.
    pub(super) fn links(&self) -> Vec<String> {
        let code = Regex::new("`[^`]*`").unwrap();
        let link = Regex::new(r"\]\(([^)\s]+)\)").unwrap();
        let prose = self.prose();
        let prose = code.replace_all(&prose, "");
        let links = link.captures_iter(&prose).map(|captures| captures[1].to_owned());
        links.filter(|link| !link.contains("://")).collect()
    }
}

/// Returns one page for each alert.
pub(super) fn alert_pages() -> Vec<Page> {
    pages_in(Path::new(DIRECTORY)).into_iter().filter(|page| page.name() != "README").collect()
}

/// Returns the pages of the alerts, the shared pages, and the index.
pub(super) fn all_pages() -> Vec<Page> {
    let directory = Path::new(DIRECTORY);
    [pages_in(directory), pages_in(&directory.join("common"))].into_iter().flatten().collect()
}

fn pages_in(directory: &Path) -> Vec<Page> {
    let entries = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> =
        entries.filter(|path| path.extension().is_some_and(|ending| ending == "md")).collect();
    paths.sort();
    paths.iter().map(|path| Page::read(path)).collect()
}
