//! Names the commit that the program is built from, for `--version` and for the
//! `engine` of rows: `PPLX_COMMIT`, where a packager sets it, else what git says of
//! this checkout, else nothing.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::process::Command;

/// What the program is made of.
const SOURCES: [&str; 4] = ["src", "Cargo.toml", "Cargo.lock", "build.rs"];

fn main() {
    println!("cargo::rerun-if-env-changed=PPLX_COMMIT");
    let commit = match std::env::var("PPLX_COMMIT") {
        Ok(commit) => commit,
        Err(_) => of_checkout().unwrap_or_default(),
    };
    println!("cargo::rustc-env=PPLX_COMMIT={commit}");
}

/// The commit of the checkout; `+` and a hash of the changes where the sources are
/// not the commit's. `None` where this is no checkout of pplx itself.
fn of_checkout() -> Option<String> {
    // A copy of the sources within another project's repository is not its commit.
    let top = git(&["rev-parse", "--show-toplevel"])?;
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).canonicalize().ok()?;
    if Path::new(&top).canonicalize().ok()? != here {
        return None;
    }
    let mut watched: Vec<String> = SOURCES.map(str::to_owned).into();
    let branch = git(&["symbolic-ref", "-q", "HEAD"]);
    for name in ["HEAD", "packed-refs"].into_iter().chain(branch.as_deref()) {
        watched.extend(git(&["rev-parse", "--git-path", name]));
    }
    // A path that is missing would have this run at every build.
    for path in watched.iter().filter(|p| Path::new(p).exists()) {
        println!("cargo::rerun-if-changed={path}");
    }
    let commit = git(&["rev-parse", "--short=10", "HEAD"])?;
    let with_sources = |arguments: &[&str]| git(&[arguments, &["--"], &SOURCES].concat());
    let changes = with_sources(&["diff", "HEAD", "--no-ext-diff", "--no-textconv"])?;
    let new_files = with_sources(&["ls-files", "--others", "--exclude-standard"])?;
    if changes.is_empty() && new_files.is_empty() {
        return Some(commit);
    }
    let mut hash = DefaultHasher::new();
    changes.hash(&mut hash);
    for file in new_files.lines() {
        (file, std::fs::read(file).ok()).hash(&mut hash);
    }
    Some(format!("{commit}+{:08x}", hash.finish() as u32))
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.trim_end().to_owned())
}
