use std::collections::BTreeMap;

use pplx::gguf::{BlockType, Value};
use pplx::results::{TablePaths, Tables};

use super::project::{Line, Project, number};
use crate::support::tiny::Tiny;

const EXPERIMENT: &str = r#"name = "x"

[sweep]
corpora = ["c/t.txt"]
contexts = [32, 48]

[[models]]
path = "m/llama.gguf"

[[models]]
path = "m/gemma3.gguf"
"#;

const FILE: &str = "experiments/x.toml";
const TABLE: &str = "results/x.csv";
const WINDOWS: &str = "results/x.windows.csv";
const LLAMA_32: &str = "llama/t.txt/32/sw-s32-p17/cpu/exact";
const LLAMA_48: &str = "llama/t.txt/48/sw-s48-p25/cpu/exact";
const GEMMA_32: &str = "gemma3/t.txt/32/sw-s32-p17/cpu/exact";
const GEMMA_48: &str = "gemma3/t.txt/48/sw-s48-p25/cpu/exact";

fn project() -> Project {
    let project = Project::new();
    project.write(FILE, EXPERIMENT);
    project
}

fn tables(project: &Project) -> [String; 2] {
    [TABLE, WINDOWS].map(|path| project.read(path))
}

fn row(project: &Project, key: &str) -> Line {
    let rows = project.lines(TABLE);
    let row = rows.into_iter().find(|row| row["key"] == key);
    row.unwrap_or_else(|| panic!("no row {key}"))
}

fn keys(project: &Project) -> Vec<String> {
    let rows = project.lines(TABLE);
    rows.into_iter().map(|row| row["key"].clone()).collect()
}

#[test]
fn tables_are_the_same_bytes_each_time() {
    let project = project();
    let out = project.pplx(&["run", FILE]).good();
    assert!(out.ends_with("results/x.csv\n"), "{out}");
    let first = tables(&project);
    assert_eq!(keys(&project), [GEMMA_32, GEMMA_48, LLAMA_32, LLAMA_48]);
    for options in [
        ["--threads", "1", "--batch", "1"],
        ["--threads", "2", "--batch", "4"],
        ["--threads", "3", "--batch", "7"],
    ] {
        let mut arguments = vec!["run", FILE];
        arguments.extend(options);
        project.pplx(&arguments).good();
        assert_eq!(tables(&project), first, "{options:?}");
    }
}

/// The record files of the project, by name.
fn records(project: &Project) -> BTreeMap<String, Vec<u8>> {
    let files = std::fs::read_dir(project.path("results/.records/x")).unwrap();
    let file = |f: std::io::Result<std::fs::DirEntry>| {
        let f = f.unwrap();
        let name = f.file_name().into_string().unwrap();
        (name, std::fs::read(f.path()).unwrap())
    };
    files.map(file).collect()
}

#[test]
fn every_finished_run_leaves_its_record() {
    let project = project();
    project.pplx(&["run", FILE]).good();
    let first = records(&project);
    assert_eq!(first.len(), 4);
    project
        .pplx(&["run", FILE, "--threads", "1", "--batch", "1"])
        .good();
    assert!(records(&project) == first, "not the same bytes");

    let paths = TablePaths::beside(&project.path(TABLE));
    let tables = Tables::load(&project.path("results"), "x").unwrap();
    for row in tables.rows() {
        let record = paths.records.load(row).unwrap().unwrap();
        let t = record.tokens();
        assert_eq!(Some(t.len()), row.provenance.scored_tokens);
        let mut windows = tables.windows(&row.key).to_vec();
        windows.iter_mut().for_each(|w| w.target_bytes = 0);
        assert_eq!(record.window_rows(), windows);
        let text: Vec<u8> = t.target[..9]
            .iter()
            .flat_map(|&id| record.piece(id).unwrap())
            .copied()
            .collect();
        let text = String::from_utf8(text).unwrap();
        assert!(project.read("c/t.txt").contains(text.trim()), "{text}");
        // A target that is the most likely token has its probability.
        let top = (0..t.len()).filter(|&i| t.top_id[i] == t.target[i]);
        let top: Vec<usize> = top.collect();
        assert!(!top.is_empty());
        for i in top {
            assert!((f64::from(t.top_p[i]) - f64::from(-t.nll[i]).exp()).abs() < 1e-6);
            assert_eq!(t.rank[i], 0);
        }
    }
    let out = project
        .pplx(&["diff", TABLE, TABLE, "--max-sigma", "0", "--details"])
        .good();
    assert!(out.contains(" tokens: same top 100.00 "), "{out}");

    // What fails or is no longer planned leaves none, what is kept keeps its own.
    Tiny::gemma3()
        .edit("blk.1.ffn_up.weight", |w| w[5] = f32::NAN)
        .write(project.path("m/gemma3.gguf"));
    project.write(FILE, &EXPERIMENT.replace("[32, 48]", "[48]"));
    project.pplx(&["run", FILE, "--resume", "--prune"]).bad(1);
    let left = records(&project);
    assert_eq!(left.len(), 1);
    assert!(left.iter().all(|(name, bytes)| first[name] == *bytes));
    assert!(left.keys().all(|name| name.starts_with("llama_t.txt_48_")));
}

#[test]
fn a_row_says_what_was_measured() {
    let project = project();
    project.pplx(&["run", FILE]).good();
    let row = row(&project, GEMMA_48);
    let tokens = number(&row, "tokens") as usize;
    for (column, expected) in [
        ("status", "ok"),
        ("architecture", "gemma3"),
        ("model_type", "F32"),
        ("mode", "sliding-window"),
        ("stride", "48"),
        ("unscored_prefix", "25"),
        ("bos", "true"),
        ("placement", "cpu"),
        ("layer_placement", "cpu[0,3)"),
        ("numerics", "exact"),
        ("windows", &(tokens / 48).to_string()),
        ("scored_tokens", &(tokens / 48 * 23).to_string()),
    ] {
        assert_eq!(row[column], expected, "{column}");
    }
    let windows = project.lines(WINDOWS);
    let ours: Vec<&Line> = windows.iter().filter(|w| w["key"] == GEMMA_48).collect();
    assert_eq!(ours.len(), tokens / 48);
    let sum: f64 = ours.iter().map(|w| number(w, "nll_sum")).sum();
    let mean = sum / number(&row, "scored_tokens");
    assert!((mean - number(&row, "mean_nll")).abs() < 1e-12 * mean);
    assert!((mean.exp() - number(&row, "ppl")).abs() < 1e-10 * mean.exp());
}

#[test]
fn resume_measures_what_is_missing_and_nothing_else() {
    let project = project();
    project.pplx(&["run", FILE]).good();
    let whole = tables(&project);
    // One run not begun, one lost, and a mark on one that is finished.
    let gone = |key: &str| key == LLAMA_48 || key == GEMMA_32;
    project.edit(WINDOWS, |w| !gone(&w["key"]));
    project.edit("results/x.timing.csv", |t| !gone(&t["key"]));
    project.edit(TABLE, |row| {
        match row["key"].as_str() {
            GEMMA_32 => return false,
            LLAMA_32 => row.insert("note".into(), "marked".into()),
            LLAMA_48 => {
                for column in [
                    "ppl",
                    "ppl_err",
                    "mean_nll",
                    "ppl_err_clustered",
                    "bits_per_byte",
                ] {
                    row.insert(column.into(), String::new());
                }
                row.insert("status".into(), "not run".into())
            }
            _ => None,
        };
        true
    });
    project.pplx(&["run", FILE, "--resume"]).good();
    assert_eq!(row(&project, LLAMA_32)["note"], "marked");
    project.edit(TABLE, |row| {
        if row["key"] == LLAMA_32 {
            row.insert("note".into(), String::new());
        }
        true
    });
    assert_eq!(tables(&project), whole);
    // Without it, all is measured again.
    project.edit(TABLE, |row| {
        row.insert("note".into(), "marked".into());
        true
    });
    project.pplx(&["run", FILE]).good();
    assert_eq!(tables(&project), whole);
}

#[test]
fn resume_does_not_keep_the_figures_of_another_file() {
    let project = project();
    project.pplx(&["run", FILE]).good();
    let before = [LLAMA_32, GEMMA_32].map(|key| row(&project, key));
    let mut other = Tiny::gemma3();
    other = other.edit("output_norm.weight", |w| w[0] *= 2.0);
    other.write(project.path("m/gemma3.gguf"));
    project.pplx(&["run", FILE, "--resume"]).good();
    let after = [LLAMA_32, GEMMA_32].map(|key| row(&project, key));
    assert_eq!(after[0], before[0]);
    assert_ne!(after[1]["model_sha256"], before[1]["model_sha256"]);
    assert_ne!(after[1]["ppl"], before[1]["ppl"]);
}

#[test]
fn settings_from_the_command_line_and_the_environment() {
    let project = project();
    let windows = |project: &Project| -> Vec<String> {
        let rows = project.lines(TABLE);
        rows.iter().map(|r| r["windows"].clone()).collect()
    };
    let environment = [("PPLX_LIMITS__WINDOWS", "3")];
    project.pplx_with(&["run", FILE], &environment).good();
    assert_eq!(windows(&project), ["3"; 4]);
    let arguments = [
        "run",
        FILE,
        "--set",
        "limits.windows=2",
        "--set",
        "sweep.contexts=[40]",
        "--prune",
    ];
    project.pplx_with(&arguments, &environment).good();
    assert_eq!(windows(&project), ["2"; 2]);
    assert_eq!(keys(&project)[0], "gemma3/t.txt/40/sw-s40-p21/cpu/exact/w2");
    project.pplx(&["run", FILE, "--results", "out"]).good();
    assert_eq!(project.lines("out/x.csv").len(), 4);
}

#[test]
fn a_run_that_fails_says_so_and_stops_no_other() {
    let project = project();
    project.pplx(&["run", FILE]).good();
    let good = tables(&project);
    let model = project.path("m/gemma3.gguf");
    Tiny::gemma3()
        .edit("blk.1.ffn_up.weight", |w| w[5] = f32::NAN)
        .write(&model);
    let error = project.pplx(&["run", FILE]).bad(1);
    assert!(
        error.ends_with("pplx: 2 runs failed: their rows say why\n"),
        "{error}"
    );
    for key in [GEMMA_32, GEMMA_48] {
        let row = row(&project, key);
        assert_eq!(
            row["status"],
            "failed: not finite: layer 1, window 0, position 0"
        );
        for column in [
            "ppl",
            "ppl_err",
            "mean_nll",
            "ppl_err_clustered",
            "bits_per_byte",
            "delta",
        ] {
            assert_eq!(row[column], "", "{column}");
        }
    }
    for key in [LLAMA_32, LLAMA_48] {
        assert_eq!(row(&project, key)["status"], "ok");
    }
    assert!(
        project
            .lines(WINDOWS)
            .iter()
            .all(|w| w["key"].starts_with("llama/"))
    );
    // Once mended, only what failed is left to do.
    Tiny::gemma3().write(&model);
    project.pplx(&["run", FILE, "--resume"]).good();
    assert_eq!(tables(&project), good);
}

#[test]
fn what_fails_before_it_is_measured() {
    let project = project();
    // Few enough bytes that the plan cannot know.
    project.write("c/t.txt", "the model and the window. the token is on it.");
    let error = project.pplx(&["run", FILE]).bad(1);
    assert!(error.contains("4 runs failed"), "{error}");
    let status = &row(&project, LLAMA_32)["status"];
    assert!(
        status.starts_with("failed: the corpus has ")
            && status.contains(" tokens, context 32 needs at least 64: use a longer corpus"),
        "{status}"
    );
    project.write("c/t.txt", "THE TOKENIZER HAS NO CAPITALS");
    project.pplx(&["run", FILE]).bad(1);
    let status = &row(&project, LLAMA_32)["status"];
    assert!(status.starts_with("failed: "), "{status}");
    let tiny = Tiny::llama().set("rope.scaling.type", Value::String("su".into()));
    tiny.write(project.path("m/llama.gguf"));
    project.pplx(&["run", FILE]).bad(1);
    assert_eq!(
        row(&project, LLAMA_32)["status"],
        "failed: m/llama.gguf: RoPE scaling 'su' is not supported; supported are none, linear, yarn"
    );
}

#[test]
fn mistakes_leave_the_tables_alone() {
    let project = project();
    project.pplx(&["run", FILE]).good();
    let good = tables(&project);
    for (from, to, expected) in [
        (
            "contexts",
            "contxts",
            "experiments/x.toml:5:1: unknown key 'contxts' in [sweep]; did you mean 'contexts'?",
        ),
        (
            "path = \"m/llama.gguf\"",
            "glob = \"n/*.gguf\"",
            "glob 'n/*.gguf' matches no file",
        ),
        ("[32, 48]", "[32, 256]", "beyond the 128"),
    ] {
        project.write(FILE, &EXPERIMENT.replace(from, to));
        let error = project.pplx(&["run", FILE]).bad(2);
        assert!(error.contains(expected), "{error}");
    }
    assert_eq!(tables(&project), good);
}

#[test]
fn reference_rows_join_and_near_misses_are_said() {
    let project = project();
    project.pplx(&["run", FILE]).good();
    let ours = row(&project, LLAMA_32);
    assert_eq!(ours["ref_ppl"], "");
    let (ppl, err) = (number(&ours, "ppl"), number(&ours, "ppl_err"));
    let line = |context: &str, windows: &str, scored: &str| {
        format!(
            "llama.cpp,b1,cpu,llama,{},t.txt,{},{context},{windows},{scored},{},0.5\n",
            ours["model_sha256"],
            ours["corpus_sha256"],
            ppl - 1.0
        )
    };
    let header = "engine,build,backend,model,model_sha256,corpus,corpus_sha256,n_ctx,windows,\
                  scored_tokens,ppl,ppl_err\n";
    let rows = [
        line("32", &ours["windows"], &ours["scored_tokens"]),
        line("48", "2", "46"),
    ];
    project.write("experiments/r.csv", &format!("{header}{}", rows.concat()));
    let reference = "\n[reference]\nfiles = [\"experiments/r.csv\"]\n";
    project.write(FILE, &format!("{EXPERIMENT}{reference}"));
    project.pplx(&["run", FILE]).good();

    let joined = row(&project, LLAMA_32);
    let close = |column: &str, want: f64| {
        let value = number(&joined, column);
        assert!(
            (value - want).abs() < 1e-9 * want,
            "{column}: {value}, not {want}"
        );
    };
    close("ppl", ppl);
    close("ref_ppl", ppl - 1.0);
    close("ref_err", 0.5);
    close("delta", 1.0);
    close("delta_pct", 100.0 / (ppl - 1.0));
    close("sigma", 1.0 / (err * err + 0.25).sqrt());
    assert_eq!(joined["ref_engine"], "llama.cpp b1 cpu");
    let near = row(&project, LLAMA_48);
    assert_eq!(near["ref_ppl"], "");
    let expected = format!("reference row has 2 windows, this run {}", near["windows"]);
    assert_eq!(near["ref_note"], expected);
    assert_eq!(row(&project, GEMMA_32)["ref_note"], "");
}

/// Numerics are runs of their own: neither takes the other's model or row.
#[test]
fn numerics_side_by_side() {
    let project = Project::new();
    let model = Tiny::wide_llama().quantized(BlockType::Q4_1);
    model.write(project.path("m/wide.gguf")).unwrap();
    let experiment = |numerics: &str| {
        format!(
            "name = \"x\"\n[sweep]\ncorpora = [\"c/t.txt\"]\ncontexts = [32]\n\
             placements = [\"cpu\", {{ device = \"cpu\", layers_per_window = 1, cycle = true }}]\n\
             numerics = [{numerics}]\n[[models]]\npath = \"m/wide.gguf\"\n"
        )
    };
    project.write(FILE, &experiment("\"exact\", \"q8\""));
    project.pplx(&["run", FILE]).good();
    let ppl = |numerics: &str| {
        let rows = project.lines(TABLE);
        let mut rows = rows.into_iter().filter(|r| r["numerics"] == numerics);
        let [a, b] = [rows.next(), rows.next()].map(Option::unwrap);
        assert_eq!(a["ppl"], b["ppl"], "a cycle changes no bit");
        number(&a, "ppl")
    };
    let (exact, q8) = (ppl("exact"), ppl("q8"));
    let delta = (q8 / exact).ln().abs();
    assert!((1e-6..1e-2).contains(&delta), "{exact} and {q8}");

    for (numerics, want) in [("exact", exact), ("q8", q8)] {
        let arguments = [
            "score",
            "m/wide.gguf",
            "-f",
            "c/t.txt",
            "-c",
            "32",
            "--json",
        ];
        let out = project.pplx(&[&arguments[..], &["--numerics", numerics]].concat());
        let json: serde_json::Value = serde_json::from_str(&out.good()).unwrap();
        assert_eq!(json["numerics"], numerics);
        let ppl = json["ppl"].as_f64().unwrap();
        assert!((ppl - want).abs() < 1e-12 * want, "{numerics}");
    }
    // In the other order, by another cache.
    project.write(FILE, &experiment("\"q8\", \"exact\""));
    let table = project.read(TABLE);
    project.pplx(&["run", FILE]).good();
    assert_eq!(project.read(TABLE), table);
}
