use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::backend::cpu::Isa;
use crate::backend::cpu::footprint::Speed;
use crate::backend::cuda::{CUDA, CudaError};
use crate::eval::GeometryError;
use crate::gguf::{BlockType, GgufWriter, Value};

/// As fast as is assumed.
pub(super) fn pace(threads: usize) -> Pace {
    Pace { threads, part: 1.0 }
}

/// A project directory with `experiments/x.toml`, models and corpora. Paths in the
/// experiment resolve against it, since the tests' working directory lacks them.
pub(super) struct Project {
    dir: tempfile::TempDir,
}

impl Project {
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        for directory in ["experiments", "m", "c"] {
            std::fs::create_dir(dir.path().join(directory)).unwrap();
        }
        let project = Self { dir };
        project.model("m/a.gguf", 2048);
        project.file("c/t.txt", 40_000);
        project
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// A model file with a header and a few weights.
    pub fn model(&self, path: &str, context_length: u32) {
        GgufWriter::new("llama")
            .meta("llama.block_count", Value::U32(2))
            .meta("llama.embedding_length", Value::U32(8))
            .meta("llama.context_length", Value::U32(context_length))
            .f32_tensor("token_embd.weight", &[8, 10], &[0.0; 80])
            .f32_tensor("blk.0.ffn_up.weight", &[8, 4], &[0.0; 32])
            .write(self.path().join(path))
            .unwrap();
    }

    pub fn file(&self, path: &str, bytes: usize) {
        std::fs::write(self.path().join(path), vec![b'a'; bytes]).unwrap();
    }

    pub fn plan(&self, text: &str) -> Result<Plan, String> {
        let file = self.path().join("experiments/x.toml");
        std::fs::write(&file, text).unwrap();
        let prefix = format!("{}/", self.path().display());
        Experiment::load(&file, &[])
            .and_then(|x| Plan::on(&x, &Machine::with(CUDA, Err(CudaError::NoDevice.into()))))
            .map_err(|e| e.to_string().replace(&prefix, ""))
    }

    pub fn keys(&self, text: &str) -> Vec<String> {
        let plan = self.plan(text).unwrap();
        plan.runs.into_iter().map(|r| r.key).collect()
    }

    pub fn error(&self, text: &str) -> String {
        self.plan(text).map(|p| p.runs).unwrap_err()
    }
}

pub(super) const MINIMAL: &str = r#"name = "x"
[sweep]
corpora = ["c/t.txt"]
contexts = [256]
modes = ["llama.cpp"]
placements = ["auto"]
[[models]]
path = "m/a.gguf"
"#;

#[test]
fn a_run_says_everything() {
    let project = Project::new();
    let plan = project
        .plan(&MINIMAL.replace(
            "[[models]]",
            "[limits]\nwindows = 32\n[[models]]\nbos = true",
        ))
        .unwrap();
    let [run] = &plan.runs[..] else {
        panic!("{:?}", plan.runs);
    };
    assert_eq!(run.key, "a/t.txt/256/sw-s256-p129/cpu/exact/w32");
    assert_eq!(run.geometry, Geometry::llama_cpp(256));
    assert_eq!((run.mode_name, run.context), ("sliding-window", 256));
    assert_eq!(run.model.path, project.path().join("m/a.gguf"));
    assert_eq!(run.model.bos, Some(true));
    assert_eq!(run.corpus.bytes, Some(40_000));
    let facts = run.model.facts.as_ref().unwrap();
    assert_eq!((facts.parameters, facts.tensor_bytes), (112, 448));
    assert_eq!((facts.head_parameters, facts.layer_parameters), (80, 32));
    assert_eq!(
        plan.notes,
        ["placement 'auto' is cpu here: the CUDA driver sees no device"]
    );
}

#[cfg(unix)]
#[test]
fn a_glob_leaves_no_file_out_in_silence() {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let project = Project::new();
    let strange = |directory: &str, name: &[u8]| {
        let directory = project.path().join(directory);
        std::fs::create_dir_all(&directory).unwrap();
        directory.join(OsStr::from_bytes(name))
    };
    let text = |glob: &str| MINIMAL.replace("c/t.txt", glob);

    let other = strange("c", b"b\xff.md");
    std::fs::write(&other, "x").unwrap();
    assert_eq!(project.keys(&text("c/*.txt")).len(), 1);

    let same = strange("c", b"b\xff.txt");
    std::fs::write(&same, "x").unwrap();
    for glob in ["c/*.txt", "[c]/*.txt", "c/**/*.txt", "c/?[!a].txt"] {
        let error = project.error(&text(glob));
        assert!(error.contains("3:12: "), "{glob}: {error}");
        assert!(
            error.contains("b\\xff.txt\", whose name is not UTF-8"),
            "{glob}: {error}"
        );
    }
    std::fs::remove_file(&same).unwrap();

    // A directory on the way, a link to nothing.
    let directory = strange("c/deep", b"d\xfe");
    std::fs::create_dir(&directory).unwrap();
    assert_eq!(project.keys(&text("c/*.txt")).len(), 1);
    let error = project.error(&text("c/**/*.txt"));
    assert!(
        error.contains("d\\xfe\", whose name is not UTF-8"),
        "{error}"
    );
    std::fs::remove_dir(&directory).unwrap();
    let link = project.path().join("c/link.txt");
    std::os::unix::fs::symlink("nowhere", &link).unwrap();
    let error = project.error(&text("c/*.txt"));
    assert!(
        error.contains("c/link.txt, which cannot be read: "),
        "{error}"
    );
    std::fs::remove_file(&link).unwrap();
    std::fs::create_dir(project.path().join("c/directory.txt")).unwrap();
    assert_eq!(project.keys(&text("c/*.txt")).len(), 1);
}

#[test]
fn a_file_without_a_training_context_is_named() {
    let project = Project::new();
    project.model("m/zero.gguf", 0);
    let error = project.error(&MINIMAL.replace("m/a.gguf", "m/zero.gguf"));
    assert!(
        error.contains(
            "7:1: m/zero.gguf: metadata key 'llama.context_length' is 0, so that no window"
        ),
        "{error}"
    );
    GgufWriter::new("llama")
        .meta("llama.block_count", Value::U32(2))
        .meta("llama.embedding_length", Value::U32(8))
        .write(project.path().join("m/none.gguf"))
        .unwrap();
    let error = project.error(&MINIMAL.replace("m/a.gguf", "m/none.gguf"));
    assert!(
        error.contains("m/none.gguf: has no metadata key 'llama.context_length'"),
        "{error}"
    );
}

#[test]
fn runs_are_the_product_of_the_axes_in_file_order() {
    let project = Project::new();
    project.model("m/b.gguf", 2048);
    project.file("c/u.txt", 10);
    let text = MINIMAL
        .replace(
            "contexts = [256]",
            "contexts = [512, { n_ctx = 256, windows = 8 }]",
        )
        .replace(
            "[\"llama.cpp\"]",
            "[\"teacher-forced\", \"llama.cpp\", { mode = \"llama.cpp-strided\", stride = 64 }]",
        )
        .replace("c/t.txt", "c/*.txt")
        + "[[models]]\nglob = \"m/*.gguf\"\n[limits]\nwindows = 20\nmax_tokens = 4000\n";
    let keys = project.keys(&text);
    // 2 models (the glob does not add m/a.gguf again), 2 corpora, 2 contexts, 3 modes.
    assert_eq!(keys.len(), 24);
    assert_eq!(keys[0], "a/t.txt/512/tf/cpu/exact/w20/t4000");
    assert_eq!(keys[1], "a/t.txt/512/sw-s512-p257/cpu/exact/w20/t4000");
    assert_eq!(keys[2], "a/t.txt/512/llama-strided-s64/cpu/exact/w20/t4000");
    // The tighter bound holds.
    assert_eq!(keys[3], "a/t.txt/256/tf/cpu/exact/w8/t4000");
    assert_eq!(keys[23], "b/u.txt/256/llama-strided-s64/cpu/exact/w8/t4000");
}

#[test]
fn the_same_run_is_planned_once() {
    let project = Project::new();
    let text = MINIMAL
        .replace("[\"llama.cpp\"]", "[\"llama.cpp\", \"sliding-window\", { mode = \"sliding-window\", stride = 256, unscored_prefix = 129 }]")
        .replace("[\"auto\"]", "[\"auto\", \"cpu\"]");
    let plan = project.plan(&text).unwrap();
    assert_eq!((plan.runs.len(), plan.merged), (1, 5));
}

#[test]
fn excludes() {
    let project = Project::new();
    project.model("m/big-70b.gguf", 2048);
    let text = MINIMAL
        .replace("path = \"m/a.gguf\"", "glob = \"m/*.gguf\"")
        .replace("[256]", "[256, 512]")
        .replace("[\"llama.cpp\"]", "[\"llama.cpp\", \"teacher-forced\"]")
        .replace("[\"auto\"]", "[\"cpu\", \"cuda\"]");
    let plan = project
        .plan(
            &(text.clone()
                + "[[exclude]]\nplacement = \"cuda\"\n\
               [[exclude]]\nmodel = \"*70b*\"\ncontext = 512\n\
               [[exclude]]\nmode = \"llama.cpp\"\nmodel = \"a\"\n\
               [[exclude]]\nmode = \"tf\"\ncontext = \"25?\"\nmodel = \"big*\"\n\
               [[exclude]]\nmodel = \"b\"\n"),
        )
        .unwrap();
    let keys: Vec<&str> = plan.runs.iter().map(|r| r.key.as_str()).collect();
    assert_eq!(
        keys,
        [
            "a/t.txt/256/tf/cpu/exact",
            "a/t.txt/512/tf/cpu/exact",
            "big-70b/t.txt/256/sw-s256-p129/cpu/exact",
        ]
    );
    // 8 on cuda, 2 of 70b at 512, 2 of a with the preset, 1 of 70b teacher-forced.
    assert_eq!(plan.excluded, 13);
    assert_eq!(plan.notes.len(), 1);
    assert!(
        plan.notes[0].contains("x.toml:21:1: this [[exclude]] matches no run"),
        "{}",
        plan.notes[0]
    );
    let error = project.error(&(text + "[[exclude]]\nmodel = \"*\"\n"));
    assert!(
        error.contains("nothing is left to run: [[exclude]] removes all 16"),
        "{error}"
    );
}

/// What is wrong with the combination or its files, at the setting to change.
#[test]
fn refusals() {
    let project = Project::new();
    std::fs::write(project.path().join("m/bad.txt"), "no GGUF").unwrap();
    let at = "experiments/x.toml:";
    let cases = [
        (
            "[\"auto\"]",
            "[\"cuda\"]",
            "6:15: run a/t.txt/256/sw-s256-p129/cuda/exact: placement 'cuda' cannot be run: the CUDA driver sees no device",
        ),
        (
            "[\"auto\"]",
            "[\"cpu\", { gpu_layers = 8, cycle = true }]",
            "6:22: run a/t.txt/256/sw-s256-p129/gpu_layers=8+cycle/exact: placement",
        ),
        (
            "[\"auto\"]",
            "[\"cpu\"]\nnumerics = [\"f16\"]",
            "7:13: run a/t.txt/256/sw-s256-p129/cpu/f16: numerics 'f16' is not for layers on cpu; use",
        ),
        (
            "[256]",
            "[256, 4096]",
            "4:18: run a/t.txt/4096/sw-s4096-p2049/auto/exact: windows of 4096 tokens are beyond the 2048 that 'a' was trained on",
        ),
        (
            "[\"llama.cpp\"]",
            "[{ mode = \"sliding-window\", unscored_prefix = 256 }]",
            "5:10: run a/t.txt/256/sw-s256-p256/auto/exact: unscored_prefix 256 must be",
        ),
        (
            "[\"llama.cpp\"]",
            "[{ mode = \"sliding-window\", stride = 300 }]",
            "5:10: run a/t.txt/256/sw-s300-p129/auto/exact: stride 300 is larger",
        ),
        (
            "[[models]]",
            "[limits]\nmax_tokens = 500\n[[models]]",
            "4:13: run a/t.txt/256/sw-s256-p129/auto/exact: the corpus has 500 tokens",
        ),
        (
            "c/t.txt",
            "c/none.txt",
            "3:12: 'c/none.txt' is neither a file nor the name of a [[corpora]] table",
        ),
        ("c/t.txt", "c/*.md", "3:12: glob 'c/*.md' matches no file"),
        ("c/t.txt", "c", "3:12: 'c' is not a file"),
        (
            "path = \"m/a.gguf\"",
            "glob = \"m/*.bin\"",
            "7:1: glob 'm/*.bin' matches no file",
        ),
        (
            "m/a.gguf",
            "m/none.gguf",
            "7:1: 'm/none.gguf' does not exist and has no 'source'",
        ),
        (
            "m/a.gguf",
            "m/bad.txt",
            "7:1: m/bad.txt: is not a GGUF file",
        ),
        (
            "path = \"m/a.gguf\"",
            "path = \"m/a.gguf\"\n[[models]]\npath = \"n/a.gguf\"\nsource = \"https://e.org/a\"",
            "9:1: two models are named 'a': m/a.gguf and n/a.gguf",
        ),
        (
            "path = \"m/a.gguf\"",
            "path = \"m/a.gguf\"\n[reference]\nfiles = [\"r.csv\"]",
            "10:10: 'r.csv' is no file",
        ),
    ];
    for (from, to, expected) in cases {
        let error = project.error(&MINIMAL.replace(from, to));
        assert!(
            error.starts_with(&format!("{at}{expected}")),
            "{to}:\n  {error}\n  {expected}"
        );
        assert!(!error.contains('\n'), "{error}");
    }
}

#[test]
fn one_message_a_setting_not_one_a_run() {
    let project = Project::new();
    project.model("m/b.gguf", 2048);
    let text = MINIMAL.replace("path = \"m/a.gguf\"", "glob = \"m/*.gguf\"");
    let text = text
        .replace("[256]", "[256, 512, 1024]")
        .replace("[\"auto\"]", "[\"cuda\"]");
    assert_eq!(project.error(&text).lines().count(), 1);
}

#[test]
fn what_can_be_fetched_need_not_be_there() {
    let project = Project::new();
    let text = MINIMAL
        .replace(
            "path = \"m/a.gguf\"",
            "path = \"m/x.gguf\"\nsource = [\"pypi:a==1/x\", \"pypi:b==1/y\"]",
        )
        .replace("c/t.txt", "wiki")
        + "[[corpora]]\nname = \"wiki\"\npath = \"c/w.raw\"\nsource = \"https://e.org/w\"\n";
    let plan = project.plan(&text).unwrap();
    let run = &plan.runs[0];
    assert_eq!(run.key, "x/wiki/256/sw-s256-p129/cpu/exact");
    assert_eq!(run.model.path, Path::new("m/x.gguf"));
    assert_eq!(run.model.source.len(), 2);
    assert!(run.model.facts.is_none() && run.corpus.bytes.is_none());
    let estimate = Estimate::new(run, None, pace(2));
    assert_eq!((estimate.tokens, estimate.work), (Tokens::Unknown, None));
    assert_eq!((estimate.memory_bytes, estimate.seconds), (None, None));
}

#[test]
fn a_path_that_a_corpora_table_describes_is_that_corpus() {
    let project = Project::new();
    for written in ["c/t.txt", "c/../c/t.txt", "c/*.txt", "t"] {
        let text = MINIMAL.replace("c/t.txt", written)
            + "[[corpora]]\nname = \"t\"\npath = \"c/t.txt\"\nsha256 = \"173c87a53759e0201f33e0ccf978e510c2042d7f2cb78229d9a50d79b9e7dd08\"\n";
        let plan = project.plan(&text).unwrap();
        assert_eq!(plan.runs[0].corpus.name, "t", "{written}");
        assert!(plan.runs[0].corpus.sha256.is_some());
    }
    let error = project.error(&MINIMAL.replace("c/t.txt", "wikki").replace(
        "[[models]]",
        "[[corpora]]\nname = \"wiki\"\npath = \"c/t.txt\"\n[[models]]",
    ));
    assert!(error.contains("did you mean 'wiki'?"), "{error}");
}

#[test]
fn two_files_cannot_share_a_corpus_name() {
    let project = Project::new();
    project.file("m/t.txt", 10);
    let error = project.error(&MINIMAL.replace("[\"c/t.txt\"]", "[\"c/t.txt\", \"m/t.txt\"]"));
    assert!(
        error.contains("x.toml:3:23: two corpora are named 't.txt'"),
        "{error}"
    );
}

#[test]
fn estimates() {
    let project = Project::new();
    let plan = project.plan(MINIMAL).unwrap();
    let run = &plan.runs[0];
    // Unknown tokens: a quarter of the bytes. 10,000 / 256 = 39 windows.
    let rough = Estimate::new(run, None, pace(1));
    assert_eq!(rough.tokens, Tokens::Estimated(10_000));
    let exact = Estimate::new(run, Some(1024), pace(1));
    let work = Work {
        windows: 4,
        evaluated: 1024,
        scored: 4 * 127,
    };
    assert_eq!(exact.tokens, Tokens::Exact(1024));
    assert_eq!(exact.work, Some(Ok(work)));
    // 32 layer weights, half of them in the last layer, which like the 80 weights of the
    // head meets scored rows only; no attention. All weights are decoded once.
    let speed = Speed::assumed(Isa::detect(), Numerics::Exact);
    let products = 2.0 * 16.0 * (1024.0 + 508.0) + 2.0 * 508.0 * 80.0;
    let giga = products / speed.products + 4.0 * 112.0 / speed.decoding;
    let seconds = exact.seconds.unwrap();
    assert!((seconds - giga / 1e9).abs() < 1e-12 * seconds, "{seconds}");
    let short = Estimate::new(run, Some(511), pace(1));
    assert!(matches!(
        short.work,
        Some(Err(GeometryError::CorpusTooShort { .. }))
    ));
    assert_eq!(short.seconds, None);
    assert_eq!(exact.checkpoint_bytes, Some(0));
}

/// What experts add, and what 8 bits change.
#[test]
fn estimates_of_experts_and_of_q8() {
    let project = Project::new();
    let up: u64 = 64 * 96 * 8;
    let zeros = vec![0.0; up as usize];
    GgufWriter::new("llama")
        .meta("llama.block_count", Value::U32(1))
        .meta("llama.embedding_length", Value::U32(64))
        .meta("llama.context_length", Value::U32(2048))
        .meta("llama.expert_used_count", Value::U32(2))
        .f32_tensor("token_embd.weight", &[64, 10], &[0.0; 640])
        .f32_tensor("blk.0.ffn_up_exps.weight", &[64, 96, 8], &zeros)
        .write(project.path().join("m/a.gguf"))
        .unwrap();
    let text = MINIMAL.replace("placements", "numerics = [\"exact\", \"q8\"]\nplacements");
    let plan = project.plan(&text).unwrap();
    let facts = plan.runs[0].model.facts.as_ref().unwrap();
    assert_eq!(
        (facts.parameters, facts.layer_parameters),
        (640 + up, up / 4)
    );
    let seconds = |run| Estimate::new(run, Some(1024), pace(1)).seconds.unwrap();
    let (exact, q8) = (seconds(&plan.runs[0]), seconds(&plan.runs[1]));
    // How much faster 8 bits are is the processor's.
    assert!(exact > q8, "{exact} {q8}");
}

#[test]
fn overlapping_targets_are_noted() {
    let project = Project::new();
    let mode = "[{ mode = \"sliding-window\", stride = 64, unscored_prefix = 129 }]";
    let plan = project
        .plan(&MINIMAL.replace("[\"llama.cpp\"]", mode))
        .unwrap();
    assert!(plan.notes.iter().any(|n| n.starts_with("sw-s64-p129 at context 256 scores some targets more than once")));
}

#[test]
fn placements_are_partitions() {
    assert_eq!(Placement::CPU.partition(30).to_string(), "cpu[0,30)");
    let cycle = Placement::cpu_cycle(4);
    assert_eq!(cycle.partition(30).to_string(), "cycle cpu[0,4)..[28,30)");
    assert_eq!(cycle.to_string(), "cpu_layers=4+cycle");
}

/// What a cycle keeps is told beforehand, and so is what it saves.
#[test]
fn estimates_of_a_cycle() {
    let project = Project::new();
    let placement = "[{ device = \"cpu\", layers_per_window = 1, cycle = true }]";
    let plan = project
        .plan(&MINIMAL.replace("[\"auto\"]", placement))
        .unwrap();
    let run = &plan.runs[0];
    assert_eq!(run.key, "a/t.txt/256/sw-s256-p129/cpu_layers=1+cycle/exact");
    let estimate = Estimate::new(run, Some(1024), pace(1));
    // 4 windows of 256, 8 channels of 4 bytes.
    assert_eq!(estimate.checkpoint_bytes, Some(4 * 256 * 8 * 4));
    let whole = Estimate::new(&project.plan(MINIMAL).unwrap().runs[0], Some(1024), pace(1));
    // The only layer with weights is mapped in place of the whole file.
    let file = run.model.facts.as_ref().unwrap().file_bytes;
    let less = whole.memory_bytes.unwrap() - estimate.memory_bytes.unwrap();
    assert_eq!(less, file - 32 * 4);
}

/// The files that the repository ships, with stand-ins for what they name.
#[test]
fn shipped_experiments() {
    let shipped = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    for (file, runs, first) in [
        (
            "quickstart.toml",
            1,
            "smollm2-135m-instruct-q4_1/on-measuring.txt/256/sw-s256-p129/cpu/exact",
        ),
        (
            "wikitext.toml",
            6,
            "smollm2-135m-instruct-q4_1/wiki.test.raw/256/sw-s256-p129/cpu/exact/w64",
        ),
    ] {
        let project = Project::new();
        for directory in ["corpora", "experiments/references"] {
            std::fs::create_dir(project.path().join(directory)).unwrap();
        }
        project.file("corpora/on-measuring.txt", 30_000);
        project.file("experiments/references/llama.cpp.csv", 1);
        let text = std::fs::read_to_string(shipped.join(file)).unwrap();
        let plan = project.plan(&text).unwrap();
        assert_eq!(plan.runs.len(), runs, "{file}");
        assert_eq!(plan.runs[0].key, first);
        assert_eq!(plan.name, file.trim_end_matches(".toml"));
        assert!(
            plan.runs
                .iter()
                .all(|r| r.model.sha256.is_some() && !r.model.source.is_empty())
        );
    }
}

/// A subset of `items`, in random order.
fn shuffled(items: &[&str]) -> impl Strategy<Value = Vec<String>> {
    let items: Vec<String> = items.iter().map(|s| (*s).to_owned()).collect();
    let all = items.len();
    proptest::sample::subsequence(items, 1..=all).prop_shuffle()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// Distinct runs have distinct keys, and the order of lists moves no key.
    #[test]
    fn keys(
        contexts in shuffled(&["64", "128", "256", "{ n_ctx = 64, windows = 3 }", "{ n_ctx = 64, max_tokens = 900 }", "{ n_ctx = 64, windows = 3, max_tokens = 900 }"]),
        modes in shuffled(&["\"llama.cpp\"", "\"teacher-forced\"", "{ mode = \"sliding-window\", stride = 32 }", "{ mode = \"sliding-window\", unscored_prefix = 40 }", "{ mode = \"llama.cpp-strided\", stride = 32 }", "{ mode = \"llama.cpp-strided\", stride = 33 }"]),
        corpora in shuffled(&["c/t.txt", "c/u.txt", "c/v.txt"]),
    ) {
        let project = Project::new();
        project.model("m/b.gguf", 2048);
        project.file("c/u.txt", 10);
        project.file("c/v.txt", 10);
        let text = |contexts: &[String], modes: &[String], corpora: &[String], models: [&str; 2]| format!(
            "name = \"x\"\n[sweep]\ncorpora = {corpora:?}\ncontexts = [{}]\nmodes = [{}]\n[[models]]\npath = \"m/{}.gguf\"\n[[models]]\npath = \"m/{}.gguf\"\n",
            contexts.join(", "), modes.join(", "), models[0], models[1],
        );
        let plan = project.plan(&text(&contexts, &modes, &corpora, ["a", "b"])).unwrap();
        prop_assert_eq!(plan.runs.len(), 2 * contexts.len() * modes.len() * corpora.len());
        prop_assert_eq!(plan.merged, 0);
        let keys: HashSet<String> = plan.runs.iter().map(|r| r.key.clone()).collect();
        prop_assert_eq!(keys.len(), plan.runs.len());
        let reversed = |list: &[String]| list.iter().rev().cloned().collect::<Vec<_>>();
        let other = project.keys(&text(&reversed(&contexts), &reversed(&modes), &reversed(&corpora), ["b", "a"]));
        prop_assert_eq!(keys, other.into_iter().collect::<HashSet<_>>());
    }
}

#[test]
fn numerics_that_the_weights_have_no_products_for_are_refused() {
    let project = Project::new();
    let text = |numerics: &str| {
        format!(
            "name = \"x\"\n[sweep]\ncorpora = [\"c/t.txt\"]\ncontexts = [256]\n\
             numerics = [{numerics}]\n[[models]]\npath = \"m/k.gguf\"\n"
        )
    };
    let model = |ty: BlockType| {
        GgufWriter::new("llama")
            .meta("llama.block_count", Value::U32(1))
            .meta("llama.embedding_length", Value::U32(256))
            .meta("llama.context_length", Value::U32(2048))
            .f32_tensor("token_embd.weight", &[256, 1], &[0.0; 256])
            .tensor(
                "blk.0.ffn_up.weight",
                &[256, 1],
                ty,
                vec![0; ty.block_bytes()],
            )
            .write(project.path().join("m/k.gguf"))
            .unwrap();
    };
    model(BlockType::Q4_K);
    let both = project.keys(&text("\"exact\", \"q8\""));
    assert_eq!(both.len(), 2);
    assert!(both[1].ends_with("/q8"), "{both:?}");
    model(BlockType::Q8_K);
    assert_eq!(project.keys(&text("\"exact\"")).len(), 1);
    let error = project.plan(&text("\"exact\", \"q8\"")).unwrap_err();
    let expected = "numerics 'q8' has no product for the weights of type Q8_K in 'k'; use";
    assert!(
        error.contains("5:22: ") && error.contains(expected),
        "{error}"
    );
}
