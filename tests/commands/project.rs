//! A project directory, and what pplx makes of it.

use std::collections::HashMap;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::support::tiny::{Tiny, text};

/// A line of a CSV file, by column.
pub type Line = HashMap<String, String>;

pub struct Project(tempfile::TempDir);

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// Stdout of a command that went well.
    pub fn good(self) -> String {
        assert_eq!(self.code, Some(0), "{}", self.stderr);
        self.stdout
    }

    /// The message of a command that ended with `code`.
    pub fn bad(self, code: i32) -> String {
        assert_eq!(self.code, Some(code), "{}{}", self.stdout, self.stderr);
        self.stderr
    }
}

impl Project {
    /// A llama and a gemma3 in `m/`, and a text of some 1,700 tokens.
    pub fn new() -> Self {
        let project = Self(tempfile::tempdir().unwrap());
        for directory in ["experiments", "m", "c"] {
            std::fs::create_dir(project.path(directory)).unwrap();
        }
        Tiny::llama().write(project.path("m/llama.gguf"));
        Tiny::gemma3().write(project.path("m/gemma3.gguf"));
        project.write("c/t.txt", &text(500));
        project
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    pub fn write(&self, path: &str, text: &str) {
        std::fs::write(self.path(path), text).unwrap();
    }

    pub fn read(&self, path: &str) -> String {
        let path = self.path(path);
        std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    }

    pub fn pplx(&self, arguments: &[&str]) -> Ended {
        self.pplx_with(arguments, &[])
    }

    pub fn pplx_with(&self, arguments: &[&str], variables: &[(&str, &str)]) -> Ended {
        let mut command = self.command(arguments);
        let output = command.envs(variables.iter().copied()).output().unwrap();
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// With `input` on its standard input, which is a pipe.
    pub fn pplx_fed(&self, arguments: &[&str], input: &str) -> Ended {
        let mut command = self.command(arguments);
        command.stdin(Stdio::piped());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut pipe = child.stdin.take().unwrap();
        let output = std::thread::scope(|scope| {
            // Whoever is refused does not read.
            scope.spawn(move || drop(pipe.write_all(input.as_bytes())));
            child.wait_with_output().unwrap()
        });
        Ended {
            code: output.status.code(),
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// pplx in this project, not started yet.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_pplx"));
        command.current_dir(self.0.path()).args(arguments);
        // The tests' own variables are no settings of the program.
        command
            .env_remove("PPLX_TEST_MODELS")
            .env_remove("PPLX_SHARED");
        command.env("PPLX_CACHE", self.path("cache"));
        // Nor is a GPU that this machine may have theirs.
        command.env("CUDA_VISIBLE_DEVICES", "");
        command
    }

    /// Names of the temporary files that are left anywhere in the project.
    pub fn temporaries(&self) -> Vec<PathBuf> {
        let mut directories = vec![self.path("")];
        let mut found = Vec::new();
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap() {
                let entry = entry.unwrap();
                if entry.file_type().unwrap().is_dir() {
                    directories.push(entry.path());
                } else if entry.file_name().to_string_lossy().starts_with(".pplx-") {
                    found.push(entry.path());
                }
            }
        }
        found
    }

    pub fn lines(&self, path: &str) -> Vec<Line> {
        let mut reader = csv::Reader::from_path(self.path(path)).unwrap();
        reader.deserialize().map(|line| line.unwrap()).collect()
    }

    /// Rewrites a CSV file: `edit` returns whether a line stays.
    pub fn edit(&self, path: &str, mut edit: impl FnMut(&mut Line) -> bool) {
        let columns = csv::Reader::from_path(self.path(path))
            .unwrap()
            .headers()
            .unwrap()
            .clone();
        let lines = self.lines(path);
        let mut writer = csv::Writer::from_path(self.path(path)).unwrap();
        writer.write_record(&columns).unwrap();
        for mut line in lines {
            if edit(&mut line) {
                writer
                    .write_record(columns.iter().map(|c| &line[c]))
                    .unwrap();
            }
        }
        writer.flush().unwrap();
    }
}

/// The number in a column.
pub fn number(line: &Line, column: &str) -> f64 {
    let text = &line[column];
    text.parse()
        .unwrap_or_else(|_| panic!("{column} holds '{text}'"))
}
