//! Files that change while they are measured: a row says what was measured, or
//! fails.

use std::path::Path;
use std::time::Duration;

use pplx::eval::CheckpointOptions;
use pplx::experiment::Experiment;
use pplx::fetch::{FetchOptions, Quiet, TransferProgress};
use pplx::plan::{Plan, RunSpec};
use pplx::results::{Outcome, ResultRow, Tables, Wait};
use pplx::run::{Control, Observation, Reporter, Selection, Sweep};

use super::project::Project;
use crate::support::tiny::Tiny;

/// Does something to the files at a chosen moment of a sweep.
struct Meddler<'a> {
    /// At the beginning of this run, or when its first windows are done.
    run: usize,
    inside: bool,
    meddle: Option<Box<dyn FnOnce() + 'a>>,
    now: usize,
}

impl Meddler<'_> {
    fn act(&mut self, inside: bool) {
        if self.now == self.run
            && self.inside == inside
            && let Some(meddle) = self.meddle.take()
        {
            meddle();
        }
    }
}

impl Reporter for Meddler<'_> {
    fn begin(&mut self, n: usize, _: usize, _: &RunSpec) {
        self.now = n;
        self.act(false);
    }

    fn progress(&mut self, o: &Observation) {
        if o.windows_done > 0 {
            self.act(true);
        }
    }

    fn end(&mut self, _: &ResultRow, _: Duration) {}
    fn kept(&mut self, _: usize, _: usize, _: &ResultRow) {}

    fn transfers(&self) -> &dyn TransferProgress {
        &Quiet
    }
}

/// The tables of a sweep of llama, then gemma3, with `meddle` in run `run`.
fn sweep(project: &Project, run: usize, inside: bool, meddle: impl FnOnce()) -> Tables {
    let file = project.path("experiments/x.toml");
    let models = ["llama", "gemma3"].map(|name| {
        let path = project.path(&format!("m/{name}.gguf"));
        format!("[[models]]\npath = {path:?}\n")
    });
    let head = format!(
        "name = \"x\"\n[sweep]\ncorpora = [{:?}]\ncontexts = [32]\nplacements = [\"cpu\"]\n",
        project.path("c/t.txt")
    );
    std::fs::write(&file, head + &models.concat()).unwrap();
    let experiment = Experiment::load(&file, &[]).unwrap();
    let plan = Plan::new(&experiment).unwrap();
    let mut meddler = Meddler {
        run,
        inside,
        meddle: Some(Box::new(meddle)),
        now: 0,
    };
    let sweep = Sweep {
        plan: &plan,
        results: &project.path("results"),
        fetch: &FetchOptions::new(project.path("cache")),
        n_threads: 1,
        batch: Some(1),
        resume: false,
        selection: &Selection::default(),
        prune: false,
        wait: Wait::Forever,
        control: &Control {
            checkpoints: CheckpointOptions::default(),
            ..Control::default()
        },
    };
    let (tables, _) = sweep.run(&mut meddler).unwrap();
    assert!(meddler.meddle.is_none(), "nothing was done");
    tables
}

/// How llama's and gemma3's runs ended: `ok`, or why not.
fn statuses(tables: &Tables) -> [String; 2] {
    ["llama/", "gemma3/"].map(|model| {
        let row = tables.rows().find(|row| row.key.starts_with(model));
        match &row.unwrap().outcome {
            Outcome::Ok(_) => "ok".to_owned(),
            Outcome::Failed(why) => why.clone(),
            Outcome::NotRun => "not run".to_owned(),
        }
    })
}

fn check(tables: &Tables, failed: [Option<&str>; 2]) {
    let statuses = statuses(tables);
    for (status, failed) in statuses.iter().zip(failed) {
        match failed {
            None => assert_eq!(status, "ok"),
            Some(file) => assert!(
                status.contains(file) && status.contains("hash was taken")
                    || status.contains("was written to"),
                "{statuses:?}"
            ),
        }
    }
}

/// Another model of the same length.
fn other(path: &Path) {
    let other = Tiny::gemma3().edit("output_norm.weight", |w| w[0] *= 2.0);
    let aside = path.with_extension("other");
    other.write(&aside);
    assert_eq!(
        std::fs::metadata(&aside).unwrap().len(),
        std::fs::metadata(path).unwrap().len()
    );
}

#[test]
fn a_model_that_is_replaced_before_its_run() {
    let project = Project::new();
    let path = project.path("m/gemma3.gguf");
    other(&path);
    let tables = sweep(&project, 1, false, || {
        std::fs::rename(path.with_extension("other"), &path).unwrap();
    });
    check(&tables, [None, Some("gemma3.gguf")]);
}

/// The open file is still the one that was hashed: the row is right.
#[test]
fn a_model_that_is_replaced_during_its_run() {
    let project = Project::new();
    let path = project.path("m/gemma3.gguf");
    other(&path);
    let undisturbed = sweep(&project, 2, true, || ());
    let tables = sweep(&project, 2, true, || {
        std::fs::rename(path.with_extension("other"), &path).unwrap();
    });
    check(&tables, [None, None]);
    let figures = |t: &Tables| t.rows().map(|r| r.figures().cloned()).collect::<Vec<_>>();
    assert_eq!(figures(&tables), figures(&undisturbed));
}

#[test]
fn a_model_that_is_written_to_during_its_run() {
    for keep_time in [false, true] {
        let project = Project::new();
        let path = project.path("m/gemma3.gguf");
        let tables = sweep(&project, 2, true, || {
            use std::os::unix::fs::FileExt;
            let file = std::fs::File::options().write(true).open(&path).unwrap();
            let meta = file.metadata().unwrap();
            file.write_all_at(&[0x11], meta.len() - 9).unwrap();
            if keep_time {
                file.set_modified(meta.modified().unwrap()).unwrap();
            }
        });
        check(&tables, [None, Some("gemma3.gguf")]);
    }
}

/// A link or a change of mode is no change.
#[test]
fn a_model_whose_name_or_mode_changes() {
    let project = Project::new();
    let path = project.path("m/gemma3.gguf");
    let tables = sweep(&project, 2, true, || {
        std::fs::hard_link(&path, project.path("m/linked")).unwrap();
        let mut mode = std::fs::metadata(&path).unwrap().permissions();
        mode.set_readonly(true);
        std::fs::set_permissions(&path, mode).unwrap();
    });
    check(&tables, [None, None]);
}

#[test]
fn a_corpus_that_is_edited_before_it_is_read() {
    let project = Project::new();
    let text = project.read("c/t.txt");
    let tables = sweep(&project, 1, false, || {
        project.write("c/t.txt", &text.replacen("the", "it.", 1));
    });
    check(&tables, [Some("t.txt"), Some("t.txt")]);
}
