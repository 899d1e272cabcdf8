//! Whether an output can be written, before the work that it is for.

use std::path::Path;

use super::Failure;
use crate::files::NewFile;

/// Checks that a file can be written at `path`; leaves none.
///
/// # Errors
/// A directory of that name, a place where nothing can be written.
pub fn check(path: &Path) -> Result<(), Failure> {
    let shown = path.display();
    if path.is_dir() {
        return Err(Failure::usage(format!(
            "{shown} is a directory, not a file"
        )));
    }
    let begun = NewFile::create(path).map(drop);
    begun.map_err(|e| Failure::failed(format!("{shown} cannot be written: {e}")))
}
