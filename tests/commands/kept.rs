//! Which rows of a table stay, and which are measured again.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use pplx::gguf::Value;

use super::project::Project;
use crate::support::tiny::Tiny;

const EXPERIMENT: &str = r#"name = "x"

[sweep]
corpora = ["c/t.txt"]
contexts = [32, 48]
placements = ["cpu"]

[[models]]
path = "m/llama.gguf"

[[models]]
path = "m/gemma3.gguf"
"#;

const FILE: &str = "experiments/x.toml";
const TABLES: [&str; 2] = ["results/x.csv", "results/x.windows.csv"];
const LLAMA_32: &str = "llama/t.txt/32/sw-s32-p17/cpu/exact";

fn project() -> Project {
    let project = Project::new();
    project.write(FILE, EXPERIMENT);
    project
}

fn tables(project: &Project) -> [String; 2] {
    TABLES.map(|path| project.read(path))
}

/// The keys that a command measured, from what it printed.
fn measured(stderr: &str) -> usize {
    stderr.lines().filter(|l| l.contains("  PPL ")).count()
}

/// Everything that moves a figure is measured again by --resume, and the table is
/// then that of a new run, byte for byte.
#[test]
fn resume_is_a_new_run_whatever_has_changed() {
    type Change = fn(&Project);
    let changes: [(&str, usize, Change); 8] = [
        ("nothing", 0, |_| ()),
        ("bos", 2, |p| {
            p.write(FILE, &(EXPERIMENT.to_owned() + "bos = false\n"));
        }),
        ("parse_special", 2, |p| {
            p.write(FILE, &(EXPERIMENT.to_owned() + "parse_special = true\n"));
        }),
        ("the corpus", 4, |p| {
            let text = p.read("c/t.txt");
            p.write("c/t.txt", &text.replacen("the", "it", 1));
        }),
        ("its end", 4, |p| {
            p.write("c/t.txt", &(p.read("c/t.txt") + " the token is on it."));
        }),
        ("a weight", 2, |p| {
            let model = Tiny::llama().edit("output_norm.weight", |w| w[0] *= 2.0);
            model.write(p.path("m/llama.gguf"));
        }),
        ("a hyper-parameter", 2, |p| {
            let model = Tiny::llama().set("rope.freq_base", Value::F32(5000.0));
            model.write(p.path("m/llama.gguf"));
        }),
        ("the engine", 4, |p| {
            p.edit(TABLES[0], |row| {
                row.insert("engine".into(), "pplx 0.1.0".into());
                true
            });
        }),
    ];
    for (what, again, change) in changes {
        let project = project();
        project.pplx(&["run", FILE]).good();
        change(&project);
        let ended = project.pplx(&["run", FILE, "--resume"]);
        assert_eq!(ended.code, Some(0), "{what}: {}", ended.stderr);
        assert_eq!(measured(&ended.stderr), again, "{what}: {}", ended.stderr);
        let resumed = tables(&project);
        project.pplx(&["run", FILE]).good();
        assert!(resumed == tables(&project), "{what}");
    }
}

/// Of two builds that differ in the commit alone, one may go on where the other
/// stopped; a build of changed sources may not.
#[test]
fn a_commit_is_not_the_arithmetic() {
    let project = project();
    project.pplx(&["run", FILE]).good();
    for (commit, again) in [("0123456789", 0), ("0123456789+12ab34cd", 4)] {
        project.edit(TABLES[0], |row| {
            let engine = format!("pplx 0.1.0, arithmetic {}", pplx::backend::ARITHMETIC);
            row.insert("engine".into(), format!("{engine}, commit {commit}"));
            true
        });
        let ended = project.pplx(&["run", FILE, "--resume"]);
        assert_eq!(measured(&ended.stderr), again, "{commit}: {}", ended.stderr);
    }
}

#[test]
fn rows_of_other_runs_are_never_dropped_unasked() {
    let project = project();
    project.pplx(&["run", FILE]).good();
    let before = tables(&project);
    let records = || {
        std::fs::read_dir(project.path("results/.records/x"))
            .unwrap()
            .count()
    };
    let smaller = ["run", FILE, "--set", "limits.windows=2"];
    for resume in [&[][..], &["--resume"]] {
        let error = project.pplx(&[&smaller[..], resume].concat()).bad(2);
        assert!(
            error.contains("x.csv holds the rows of 4 runs, such as 'gemma3/t.txt/32/")
                && error.contains("--prune"),
            "{error}"
        );
        assert_eq!((tables(&project), records()), (before.clone(), 4));
    }
    // Another file of the same name.
    project.write(
        "experiments/y.toml",
        &EXPERIMENT.replace("[32, 48]", "[40]"),
    );
    project.pplx(&["run", "experiments/y.toml"]).bad(2);
    assert_eq!((tables(&project), records()), (before.clone(), 4));

    let only = ["--only", "*/32/*", "--only", "llama/*"];
    project.pplx(&[&["run", FILE], &only[..]].concat()).good();
    assert_eq!(tables(&project), before);
    let one = [&smaller[..], &["--only", "llama/*/32/*"]].concat();
    project.pplx(&one).good();
    assert_eq!(project.lines(TABLES[0]).len(), 5);
    assert_eq!(records(), 5);

    project.pplx(&[&smaller[..], &["--prune"]].concat()).good();
    let lines = project.lines(TABLES[0]);
    assert!(lines.len() == 4 && lines.iter().all(|l| l["key"].ends_with("/w2")));
    assert_eq!(records(), 4);
}

#[test]
fn only_measures_a_part_and_leaves_the_rest() {
    let project = project();
    let error = project.pplx(&["run", FILE, "--only", "qwen*"]).bad(2);
    assert!(
        error.contains("no run of the experiment matches --only qwen*"),
        "{error}"
    );
    project.pplx(&["run", FILE, "--only", LLAMA_32]).good();
    let keys: Vec<String> = project
        .lines(TABLES[0])
        .iter()
        .map(|l| l["key"].clone())
        .collect();
    assert_eq!(keys, [LLAMA_32]);
    project.pplx(&["run", FILE, "--resume"]).good();
    let whole = tables(&project);
    project.pplx(&["run", FILE]).good();
    assert_eq!(tables(&project), whole);
}

#[test]
fn a_table_that_cannot_be_read_is_not_overwritten() {
    let project = project();
    std::fs::create_dir(project.path("results")).unwrap();
    project.write(TABLES[0], "not,a,table\n");
    project.pplx(&["run", FILE]).bad(2);
    assert_eq!(project.read(TABLES[0]), "not,a,table\n");
    project.pplx(&["run", FILE, "--prune"]).good();
    assert_eq!(project.lines(TABLES[0]).len(), 4);
}

#[test]
fn a_row_whose_perplexity_overflows_stops_no_other() {
    let project = project();
    let blown = Tiny::llama().edit("output_norm.weight", |w| {
        w.iter_mut().for_each(|x| *x *= 1e5)
    });
    blown.write(project.path("m/llama.gguf"));
    for resume in [&[][..], &["--resume"]] {
        project.pplx(&[&["run", FILE], resume].concat()).bad(1);
        let statuses = project
            .lines(TABLES[0])
            .into_iter()
            .map(|l| l["status"].clone());
        let statuses: Vec<String> = statuses.collect();
        assert_eq!(statuses[..2], ["ok", "ok"]);
        let overflows = |s: &String| s.starts_with("failed: perplexity overflows: with a mean NLL");
        assert!(statuses[2..].iter().all(overflows), "{statuses:?}");
    }
    let input = ["m/llama.gguf", "-f", "c/t.txt", "-c", "32"];
    let error = project.pplx(&[&["score"], &input[..]].concat()).bad(1);
    assert!(error.contains("perplexity overflows"), "{error}");
    let gemma = [
        "--model",
        "m/gemma3.gguf",
        "-f",
        "c/t.txt",
        "-c",
        "32",
        "--chunks",
        "4",
    ];
    for base in [["--base", "m/llama.gguf"], ["--base", "m/gemma3.gguf"]] {
        let ended = project.pplx(&[&["kld"], &gemma[..], &base[..]].concat());
        let blown = base[1].contains("llama");
        assert_eq!(ended.code, Some(i32::from(blown)), "{}", ended.stderr);
        assert!(!ended.stdout.contains("inf") && !ended.stdout.contains("NaN"));
    }
}

/// Holds a lock as a living pplx does.
struct Holder(Child);

impl Holder {
    fn new(project: &Project, name: &str) -> Self {
        std::fs::create_dir_all(project.path("results/.records")).unwrap();
        let lock = project.path(&format!("results/.records/{name}"));
        let child = Command::new("flock")
            .arg(&lock)
            .args(["sleep", "100"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let start = Instant::now();
        let file = loop {
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "flock does not run"
            );
            std::thread::sleep(Duration::from_millis(5));
            if let Ok(file) = std::fs::File::open(&lock) {
                break file;
            }
        };
        while file.try_lock().is_ok() {
            file.unlock().unwrap();
            assert!(
                start.elapsed() < Duration::from_secs(20),
                "flock does not lock"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        Self(child)
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn one_writer_of_a_table_at_a_time() {
    let project = project();
    for (verb, lock) in [("run", "x.lock"), ("noise", "x.noise.lock")] {
        let holder = Holder::new(&project, lock);
        let error = project.pplx(&[verb, FILE, "--wait=0"]).bad(2);
        assert!(
            error.contains("is being written by another pplx"),
            "{error}"
        );
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| project.pplx(&[verb, FILE, "--only", LLAMA_32]));
            std::thread::sleep(Duration::from_millis(500));
            assert!(!waiting.is_finished());
            // `flock` and the process that inherited the lock both end.
            let pid = holder.0.id().to_string();
            Command::new("pkill").args(["-P", &pid]).status().unwrap();
            drop(holder);
            let ended = waiting.join().unwrap();
            assert!(
                ended.stderr.contains("waiting for another pplx"),
                "{}",
                ended.stderr
            );
            ended.good();
        });
    }
}

#[test]
fn noise_keeps_the_runs_that_are_calibrated() {
    const NOISE: &str = "results/x.noise.csv";
    let project = project();
    let noise = |arguments: &[&str]| {
        let fixed = ["noise", FILE, "--set", "limits.windows=3", "--seeds", "1"];
        project.pplx(&[&fixed, arguments].concat())
    };
    noise(&[]).good();
    let whole = project.read(NOISE);
    let lines = project.lines(NOISE).len();
    // Another size is another experiment.
    project.pplx(&["noise", FILE, "--seeds", "1"]).bad(2);
    assert_eq!(project.read(NOISE), whole);
    let again = |stderr: &str| stderr.matches(": as it is").count();
    let resumed = noise(&["--resume"]);
    assert_eq!(
        (resumed.code, again(&resumed.stderr)),
        (Some(0), 0),
        "{}",
        resumed.stderr
    );
    // A run is measured again whole.
    project.edit(NOISE, |row| !row["key"].starts_with("llama/t.txt/32"));
    assert!(project.lines(NOISE).len() < lines);
    let resumed = noise(&["--resume"]);
    assert_eq!(
        (resumed.code, again(&resumed.stderr)),
        (Some(0), 1),
        "{}",
        resumed.stderr
    );
    assert_eq!(project.read(NOISE), whole);
    // Other seeds are another calibration.
    let more = project.pplx(&[
        "noise",
        FILE,
        "--set",
        "limits.windows=3",
        "--seeds",
        "2",
        "--resume",
        "--only",
        "llama/*",
    ]);
    assert_eq!(again(&more.stderr), 2, "{}", more.stderr);
    assert_eq!(project.lines(NOISE).len(), lines + 2);
}

#[test]
fn comparisons_with_a_base_are_never_dropped_unasked() {
    const KLD: &str = "results/x.kld.csv";
    let project = project();
    let limited = EXPERIMENT.replace(
        "[[models]]\npath = \"m/llama",
        "[limits]\nwindows = 3\n\n$&",
    );
    let limited = limited.replace("$&", "[[models]]\npath = \"m/llama");
    let compared = limited.clone() + "\n[kld]\nbase = \"gemma3\"\n";
    project.write(FILE, &compared);
    project.pplx(&["run", FILE]).good();
    let before = project.read(KLD);
    project.write(FILE, &limited);
    for options in [&[][..], &["--resume"], &["--only", "llama/*"]] {
        let error = project.pplx(&[&["run", FILE], options].concat()).bad(2);
        assert!(
            error.contains("x.kld.csv holds the rows of 2 runs"),
            "{error}"
        );
        assert_eq!(project.read(KLD), before);
    }
    // The base has no comparison of its own.
    project.pplx(&["run", FILE, "--only", "gemma3/*"]).good();
    assert_eq!(project.read(KLD), before);
    project.pplx(&["run", FILE, "--prune"]).good();
    assert_eq!(project.lines(KLD).len(), 0);
}
