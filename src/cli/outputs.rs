//! Whether results can be written, asked before the work that makes them.

use std::fs::{self, OpenOptions};
use std::io;
use std::path::Path;

use super::Failure;
use crate::results::COMPANIONS;

/// A file that is opened where it is: pipes and devices will do.
pub fn opened(option: &str, path: &Path) -> Result<(), Failure> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => refuse(option, path, "it is a folder; name a file"),
        Ok(meta) if meta.is_file() => {
            let open = OpenOptions::new().append(true).open(path);
            open.map(drop).map_err(|e| unwritable(option, path, &e))
        }
        // Opening a pipe waits for its reader, so it is left to the writing.
        Ok(_) => Ok(()),
        Err(_) => beside(option, path),
    }
}

/// A file that is written beside its place and moved there when it is whole.
pub fn replaced(option: &str, path: &Path) -> Result<(), Failure> {
    match fs::metadata(path) {
        Ok(meta) if meta.is_dir() => refuse(option, path, "it is a folder; name a file"),
        Ok(meta) if !meta.is_file() => refuse(
            option,
            path,
            "it is a pipe or a device, which cannot be replaced by a whole file; name a file",
        ),
        _ => beside(option, path),
    }
}

/// As [`replaced`]; the file's folder is made.
pub fn replaced_in_new_folder(option: &str, path: &Path) -> Result<(), Failure> {
    match path.parent() {
        Some(parent) if !parent.exists() => folder(option, parent),
        _ => replaced(option, path),
    }
}

/// A folder of tables named `name`, which is made where it is missing.
pub fn tables(option: &str, results: &Path, name: &str) -> Result<(), Failure> {
    folder(option, results)?;
    let companions = COMPANIONS.iter().map(|c| format!("{name}.{c}.csv"));
    for table in companions.chain([format!("{name}.csv")]) {
        let path = results.join(table);
        if path.exists() {
            replaced(option, &path)?;
        }
    }
    Ok(())
}

/// A folder that is made where it is missing.
pub fn folder(option: &str, path: &Path) -> Result<(), Failure> {
    let there = path.ancestors().find(|p| p.exists());
    let there = there.unwrap_or(Path::new("."));
    match there.is_dir() {
        true => probe(option, path, there),
        false if there == path => refuse(option, path, "it is a file; name a folder"),
        false => {
            let why = format!("{} is a file, not a folder", there.display());
            refuse(option, path, &why)
        }
    }
}

/// A new file at `path`, in a folder that must be there.
fn beside(option: &str, path: &Path) -> Result<(), Failure> {
    if path.file_name().is_none() {
        return refuse(option, path, "name a file");
    }
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let parent = parent.unwrap_or(Path::new("."));
    match parent.is_dir() {
        true => probe(option, path, parent),
        false => {
            let why = format!("there is no folder {}", parent.display());
            refuse(option, path, &why)
        }
    }
}

/// Makes a file in `folder` that has no name there.
fn probe(option: &str, path: &Path, folder: &Path) -> Result<(), Failure> {
    can_hold_files(folder).map_err(|e| unwritable(option, path, &e))
}

/// Whether a folder, or the one in which it would be made, takes files.
///
/// # Errors
/// What the system says.
pub fn can_hold_files(folder: &Path) -> io::Result<()> {
    let there = folder.ancestors().find(|p| p.exists());
    tempfile::tempfile_in(there.unwrap_or(Path::new("."))).map(drop)
}

fn refuse(option: &str, path: &Path, why: &str) -> Result<(), Failure> {
    let path = path.display();
    Err(Failure::usage(format!(
        "{option} {path}: cannot be written: {why}"
    )))
}

/// A full disk is no one's usage.
fn unwritable(option: &str, path: &Path, e: &io::Error) -> Failure {
    let message = format!("{option} {}: cannot be written: {e}", path.display());
    match e.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Failure::failed(message),
        _ => Failure::usage(message),
    }
}
