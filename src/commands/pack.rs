//! The `pack` command: writes the files that are embedded in the program to a directory.
//!
//! `main` calls [`run`]. If an existing file differs, the command writes nothing and lists such
//! files, unless `--force` is given. Identical files are not written again.

use std::fs;
use std::io;
use std::process::ExitCode;

use anyhow::{Context as _, bail};

use crate::bundle::{BundledFile, Changes, files};
use crate::cli::{EXIT_FAILED, EXIT_OK, EXIT_USAGE, PackArgs};

pub fn run(args: &PackArgs) -> ExitCode {
    let changes = Changes { runbook_base_url: args.runbook_base_url.clone(), selector: args.selector.clone() };
    if let Err(complaint) = changes.check() {
        eprintln!("{complaint}");
        return EXIT_USAGE.into();
    }
    match write(args, &files(&changes)) {
        Ok(()) => EXIT_OK.into(),
        Err(failure) => {
            eprintln!("{failure:#}");
            EXIT_FAILED.into()
        }
    }
}

fn write(args: &PackArgs, files: &[BundledFile]) -> anyhow::Result<()> {
    let mut pending = Vec::new();
    let mut changed = Vec::new();
    for file in files {
        let path = args.directory.join(file.path);
        match fs::read(&path) {
            Ok(bytes) if bytes == file.text.as_bytes() => {}
            Ok(_) => {
                changed.push(file.path);
                pending.push((path, file));
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => pending.push((path, file)),
            Err(error) => return Err(error).with_context(|| format!("cannot read {}", path.display())),
        }
    }
    if !changed.is_empty() && !args.force {
        let list = changed.join("\n  ");
        bail!("these files exist and differ, nothing was written (--force replaces them):\n  {list}");
    }
    for (path, file) in &pending {
        let directory = path.parent().unwrap_or(&args.directory);
        let written = fs::create_dir_all(directory).and_then(|()| fs::write(path, &file.text));
        written.with_context(|| format!("cannot write {}", path.display()))?;
    }
    let (n_written, n_same) = (pending.len(), files.len() - pending.len());
    println!("{n_written} files written to {}, {n_same} were there already", args.directory.display());
    Ok(())
}
