//! Checks the order of the modules: `src/lib.rs` lists them, and a module uses only modules above
//! it in that list.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[test]
fn modules_use_only_modules_above_them() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let order = listed_modules(&fs::read_to_string(source.join("lib.rs")).unwrap());
    let position = |module: &str| order.iter().position(|listed| listed == module);

    let mut violations = Vec::new();
    let mut present = BTreeSet::new();
    for file in rust_files(&source) {
        let relative = file.strip_prefix(&source).unwrap().with_extension("");
        let module = relative.iter().next().unwrap().to_str().unwrap();
        if ["lib", "main"].contains(&module) {
            continue;
        }
        present.insert(module.to_owned());
        let Some(own) = position(module) else { panic!("the list in src/lib.rs lacks {module}") };
        let text = fs::read_to_string(&file).unwrap();
        for used in used_modules(&text) {
            if position(&used).is_some_and(|used| used > own) {
                violations.push(format!("{} uses {used}, which is below {module}", file.display()));
            }
        }
    }
    assert_eq!(violations, Vec::<String>::new());
    assert_eq!(present, order.into_iter().collect(), "modules in src/, and those listed in src/lib.rs");
}

#[test]
fn the_documentation_names_files_that_exist() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = fs::read_dir(root.join("docs/decisions")).unwrap().map(|entry| entry.unwrap().path());
    let mut n_paths = 0;
    for page in pages.chain([root.join("docs/architecture.md")]) {
        let text = fs::read_to_string(&page).unwrap();
        // Code spans that are a path: `ledger/mod.rs`, `src/exposition/`.
        for span in text.split('`').skip(1).step_by(2) {
            let is_path = span.contains('/') && (span.ends_with(".rs") || span.ends_with('/'));
            if !is_path || span.starts_with('/') || span.contains(' ') {
                continue;
            }
            n_paths += 1;
            let exists = root.join("src").join(span).exists() || root.join(span).exists();
            assert!(exists, "{}: there is no {span}", page.display());
        }
    }
    assert!(n_paths > 30, "only {n_paths} paths were found");
}

#[test]
fn paths_are_found_in_code() {
    let text = "//! crate::cli is only mentioned.\n\
                use crate::model::failure::Cause; // not crate::http\n\
                use crate::{config, util::clock};\n\
                use crate::{\n    ledger::{Ledger, Saved},\n    report,\n};\n\
                fn f() -> crate::snapshot::Snapshot {}\n";
    let expected = ["config", "ledger", "model", "report", "snapshot", "util"];
    assert_eq!(used_modules(text), expected.map(str::to_owned).into());
}

/// Returns the modules that the crate documentation lists, in order: `//! * [`name`]: purpose`.
fn listed_modules(lib: &str) -> Vec<String> {
    let entries = lib.lines().filter_map(|line| line.strip_prefix("//! * [`"));
    let modules: Vec<String> = entries.map(|entry| entry.split('`').next().unwrap().to_owned()).collect();
    assert!(modules.len() > 10, "src/lib.rs lists only {modules:?}");
    modules
}

fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// Returns the top-level modules in paths that begin with `crate::`. Ignores comments.
fn used_modules(text: &str) -> BTreeSet<String> {
    let without_comment = |line: &str| line.split("//").next().unwrap_or_default().to_owned() + "\n";
    let code: String = text.lines().map(without_comment).collect();
    let mut used = BTreeSet::new();
    for path in code.split("crate::").skip(1) {
        match path.strip_prefix('{') {
            None => used.extend(first_word(path)),
            Some(group) => {
                // Splits the entries of the outer braces.
                let mut depth = 0;
                let mut entry = String::new();
                for character in group.chars() {
                    match character {
                        '{' => depth += 1,
                        '}' if depth == 0 => break,
                        '}' => depth -= 1,
                        ',' if depth == 0 => used.extend(first_word(&std::mem::take(&mut entry))),
                        other => entry.push(other),
                    }
                }
                used.extend(first_word(&entry));
            }
        }
    }
    used
}

fn first_word(path: &str) -> Option<String> {
    let word: String =
        path.trim_start().chars().take_while(|character| *character == '_' || character.is_alphanumeric()).collect();
    (!word.is_empty()).then_some(word)
}
