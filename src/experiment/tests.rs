use std::path::PathBuf;

use proptest::prelude::*;

use super::*;
use crate::compare::MaxDelta;

/// Loads `text` as `x.toml` of a fresh directory.
fn load(text: &str, sets: &[&str]) -> Result<Experiment, String> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("x.toml");
    std::fs::write(&path, text).unwrap();
    let sets: Vec<String> = sets.iter().map(|s| (*s).to_owned()).collect();
    Experiment::load(&path, &sets).map_err(|e| {
        let prefix = format!("{}/", dir.path().display());
        e.to_string().replace(&prefix, "")
    })
}

const MINIMAL: &str = r#"name = "x"
[sweep]
corpora = ["c.txt"]
contexts = [256]
[[models]]
path = "m.gguf"
"#;

#[test]
fn defaults() {
    let x = load(MINIMAL, &[]).unwrap();
    let values = |modes: &[Located<ModeSpec>]| modes.iter().map(|m| m.value).collect::<Vec<_>>();
    assert_eq!(
        values(&x.sweep.modes)[..],
        [ModeSpec::SlidingWindow {
            stride: None,
            unscored_prefix: None
        }]
    );
    assert_eq!(x.sweep.placements[0].value, PlacementRequest::Auto);
    assert_eq!(x.sweep.numerics[0].value, Numerics::Exact);
    assert_eq!((x.limits, x.gate), (Limits::default(), Gate::default()));
    assert_eq!(x.noise.components, Component::HARMLESS);
    assert_eq!(x.noise.seeds, 4);
    assert_eq!(x.description, "");
    assert!(matches!(
        &x.models[0].value,
        ModelEntry {
            files: ModelFiles::File { name: None, source, .. },
            pre: None,
            bos: None,
            parse_special: false,
        } if source.is_empty()
    ));
}

#[test]
fn names_that_would_be_another_experiments_tables() {
    for end in ["windows", "timing", "noise", "kld", "compare", "Windows"] {
        let text = MINIMAL.replace("\"x\"", &format!("\"a.{end}\""));
        let said = load(&text, &[]).unwrap_err();
        let wanted = format!("x.toml:1:8: 'a.{end}' cannot name result files: ");
        assert!(said.starts_with(&wanted), "{said}");
        assert!(said.contains("experiment 'a'"), "{said}");
    }
    for name in ["windows", "a.windows.b", "a-noise", "a.v2"] {
        let text = MINIMAL.replace("\"x\"", &format!("\"{name}\""));
        assert_eq!(load(&text, &[]).unwrap().name, name);
    }
}

#[test]
fn names_that_spreadsheets_would_compute() {
    for name in ["=1+1", "+a", "-a", "@a", "＝a"] {
        let model = format!("{MINIMAL}name = \"{name}\"\n");
        let corpus = format!("{MINIMAL}[[corpora]]\nname = \"{name}\"\npath = \"c.txt\"\n");
        let file = format!("{MINIMAL}[[corpora]]\npath = \"d/{name}\"\n");
        for (text, place) in [(model, "7:8"), (corpus, "8:8"), (file, "8:8")] {
            let said = load(&text, &[]).unwrap_err();
            let wanted = format!("x.toml:{place}: '{name}' cannot begin a run key: ");
            assert!(said.starts_with(&wanted), "{said}");
            assert!(said.contains("give it a 'name'"), "{said}");
        }
    }
    let inside = format!("{MINIMAL}name = \"a=b@c-d+e\"\n");
    assert!(load(&inside, &[]).is_ok());
}

#[test]
fn every_key_of_the_design() {
    let x = load(
        r#"
name = "wikitext"
description = "a b"
[sweep]
corpora = ["c/*.raw", "named"]
contexts = [256, { n_ctx = 512, windows = 32, max_tokens = 9000 }]
modes = ["sliding-window", "teacher-forced", "llama.cpp",
         { mode = "sliding-window", stride = 128, unscored_prefix = 257 },
         { mode = "llama.cpp-strided", stride = 64 }]
placements = ["auto", "cpu", "cuda", { gpu_layers = 8 }, { gpu_layers = 4, first_layer = 4 }, { gpu_layers = 8, cycle = true },
              { device = "cpu", layers_per_window = 5, cycle = true }, { device = "cuda" }]
numerics = ["exact", "q8", "f16", "bf16"]
[[models]]
name = "m"
path = "m.gguf"
source = ["pypi:a==1/b", "pypi:c==1/d"]
sha256 = "B179C9523D0E6A0F98A330C7562B682750A6F8C8C15E5BC70EA373728110DB53"
pre = "smollm"
bos = false
parse_special = true
[[models]]
glob = "models/*.gguf"
[[corpora]]
name = "named"
path = "n.txt"
source = "https://example.org/n.txt"
[limits]
windows = 64
[[exclude]]
placement = "cpu"
model = "*70b*"
context = 256
[reference]
files = ["r.csv"]
[gate]
max_delta = "noise*3"
max_delta_pct = 0.1
max_sigma = 3
significance = 0.05
[noise]
components = ["kv-f16", "jitter"]
seeds = 8
"#,
        &[],
    )
    .unwrap();
    assert_eq!(x.sweep.contexts[1].value.limits.windows, Some(32));
    assert_eq!(x.sweep.contexts[1].value.limits.max_tokens, Some(9000));
    let modes: Vec<ModeSpec> = x.sweep.modes.iter().map(|m| m.value).collect();
    assert_eq!(modes[0], modes[2]);
    assert_eq!(modes[4], ModeSpec::LlamaCppStrided { stride: 64 });
    assert_eq!(modes[3].geometry(512).n_ctx, 512);
    let placements: Vec<String> = x
        .sweep
        .placements
        .iter()
        .map(|p| p.value.to_string())
        .collect();
    assert_eq!(
        placements,
        [
            "auto",
            "cpu",
            "cuda",
            "gpu_layers=8",
            "gpu_layers=4+4",
            "gpu_layers=8+cycle",
            "cpu_layers=5+cycle",
            "cuda"
        ]
    );
    assert_eq!(x.sweep.numerics.len(), 4);
    let ModelFiles::File { source, sha256, .. } = &x.models[0].value.files else {
        panic!("{:?}", x.models[0]);
    };
    assert_eq!(source.len(), 2);
    assert!(sha256.as_ref().unwrap().starts_with("b179c952"));
    assert!(x.models[0].value.parse_special && x.models[0].value.bos == Some(false));
    assert_eq!(
        x.models[1].value.files,
        ModelFiles::Glob("models/*.gguf".into())
    );
    assert_eq!(x.corpora[0].value.source, ["https://example.org/n.txt"]);
    assert!(x.excludes[0].value.context.as_ref().unwrap().matches("256"));
    assert_eq!(x.gate.max_sigma, Some(3.0));
    assert_eq!(x.gate.max_delta, Some(MaxDelta::Noise(3.0)));
    assert_eq!(x.noise.components, [Component::KvF16, Component::Jitter]);
    assert_eq!(x.noise.seeds, 8);
    assert_eq!(x.gate.significance, Some(0.05));
    assert_eq!(x.reference_files[0].value, "r.csv");
}

#[test]
fn without_a_list_every_described_corpus_is_swept() {
    let text = MINIMAL.replace("corpora = [\"c.txt\"]\n", "") + "[[corpora]]\npath = \"d/c.txt\"\n";
    let x = load(&text, &[]).unwrap();
    assert_eq!(x.sweep.corpora[0].value, "c.txt");
}

/// Each mistake, at its line and column.
#[test]
fn mistakes_are_located() {
    let cases = [
        (
            "contexts = [256]",
            "contxts = [256]",
            "x.toml:4:1: unknown key 'contxts' in [sweep]; did you mean 'contexts'? \
             (valid: corpora, contexts, modes, placements, numerics)",
        ),
        (
            "contexts = [256]",
            "contexts = [256, \"é\", 512]",
            "x.toml:4:18: 'contexts[1]' must be a whole number, found the string \"é\"",
        ),
        // Columns count characters, not bytes.
        (
            "corpora = [\"c.txt\"]",
            "corpora = [\"é\", 3]",
            "x.toml:3:17: 'corpora[1]' must be a string, found the number 3",
        ),
        (
            "contexts = [256]",
            "contexts = [0]",
            "x.toml:4:13: 'contexts[0]' must be from 2 to",
        ),
        (
            "contexts = [256]",
            "contexts = [2.5]",
            "x.toml:4:13: 'contexts[0]' must be a whole number, found the number 2.5",
        ),
        (
            "contexts = [256]",
            "contexts = []",
            "x.toml:4:12: 'contexts' must not be empty",
        ),
        (
            "contexts = [256]",
            "contexts = 256",
            "x.toml:4:12: 'contexts' must be a list, found the number 256",
        ),
        (
            "contexts = [256]",
            "",
            "x.toml:2:1: [sweep] has no 'contexts'",
        ),
        (
            "corpora = [\"c.txt\"]",
            "",
            "x.toml:2:1: [sweep] has no 'corpora'",
        ),
        (
            "contexts = [256]",
            "contexts = [256]\nmodes = [\"sliding\"]",
            "x.toml:5:10: unknown mode 'sliding' (valid: ",
        ),
        (
            "contexts = [256]",
            "contexts = [256]\nmodes = [{ mode = \"teacher-forced\", stride = 4 }]",
            "x.toml:5:46: 'stride' has no meaning in mode 'teacher-forced'",
        ),
        (
            "contexts = [256]",
            "contexts = [256]\nmodes = [\"llama.cpp-strided\"]",
            "x.toml:5:10: mode 'llama.cpp-strided' needs a stride",
        ),
        (
            "contexts = [256]",
            "contexts = [256]\nplacements = [\"gpu\"]",
            "x.toml:5:15: unknown placement 'gpu'",
        ),
        (
            "contexts = [256]",
            "contexts = [256]\nplacements = [{ gpu_layers = 2, first_layer = 1, cycle = true }]",
            "'first_layer' has no meaning in a cycle: a cycle covers all layers",
        ),
        (
            "contexts = [256]",
            "contexts = [256]\nnumerics = [\"exakt\"]",
            "x.toml:5:13: unknown numerics 'exakt'; did you mean 'exact'?",
        ),
        (
            "name = \"x\"",
            "name = \"a/b\"",
            "x.toml:1:8: 'a/b' cannot name result files",
        ),
        ("name = \"x\"", "", "x.toml: has no 'name'"),
        (
            "path = \"m.gguf\"",
            "path = \"m.gguf\"\nsha256 = \"12\"",
            "x.toml:7:10: 'sha256' must be 64 hexadecimal digits, found 2",
        ),
        (
            "path = \"m.gguf\"",
            "name = \"m\"",
            "x.toml:5:1: this model has neither 'path' nor 'glob'",
        ),
        (
            "path = \"m.gguf\"",
            "glob = \"m***\"",
            "x.toml:6:8: 'm***' is not a glob pattern",
        ),
        (
            "path = \"m.gguf\"",
            "glob = \"m\"\nname = \"n\"",
            "x.toml:7:8: 'name' does not go with 'glob'",
        ),
        (
            "path = \"m.gguf\"",
            "path = \"m.gguf\"\n[[exclude]]",
            "x.toml:7:1: an empty [[exclude]]",
        ),
        (
            "path = \"m.gguf\"",
            "path = \"m.gguf\"\n[gate]\nmax_sigma = -1",
            "x.toml:8:13: 'max_sigma' must be from 0 up, found -1",
        ),
        (
            "path = \"m.gguf\"",
            "path = \"m.gguf\"\n[gate]\nmax_delta = \"noise*0\"",
            "x.toml:8:13: max_delta is noise*0; the factor must be above 0",
        ),
        (
            "path = \"m.gguf\"",
            "path = \"m.gguf\"\n[gate]\nmax_delta = \"noise\"",
            "x.toml:8:13: 'noise' is not a bound: write a number of nats (0.001) or noise*3",
        ),
        (
            "path = \"m.gguf\"",
            "path = \"m.gguf\"\n[gate]\nmax_delta = true",
            "x.toml:8:13: 'max_delta' must be a number, found true",
        ),
        (
            "path = \"m.gguf\"",
            "path = \"m.gguf\"\n[noise]\ncomponents = [\"jitter\", \"kv-f8\"]",
            "x.toml:8:25: unknown component 'kv-f8'; did you mean 'kv-f16'?",
        ),
        (
            "path = \"m.gguf\"",
            "path = \"m.gguf\"\n[noise]\nseeds = 0",
            "x.toml:8:9: 'seeds' must be from 1",
        ),
        (
            "path = \"m.gguf\"",
            "path = \"m.gguf\"\n[gate]\nsignificance = 5",
            "x.toml:8:16: 'significance' must be between 0 and 1, found 5",
        ),
        (
            "path = \"m.gguf\"",
            "path = \"m.gguf\"\nname = \"n",
            "x.toml:7:10: not valid TOML: ",
        ),
        (
            "path = \"m.gguf\"",
            "path = \"m.gguf\"\npath = \"n.gguf\"",
            "x.toml:7:1: not valid TOML: duplicate key",
        ),
        (
            "path = \"m.gguf\"",
            "path = \"m.gguf\"\nsource = [\"https://a\", \"ftp://b\"]",
            "x.toml:7:24: malformed source 'ftp://b'",
        ),
        (
            "contexts = [256]",
            "contexts = [1e999]",
            "x.toml:4:13: not valid TOML: floating-point number overflowed",
        ),
        (
            "[[models]]\npath = \"m.gguf\"",
            "",
            "x.toml: has no [[models]]",
        ),
    ];
    for (from, to, expected) in cases {
        let text = MINIMAL.replace(from, to);
        let error = load(&text, &[]).map(|_| ()).unwrap_err();
        assert!(error.contains(expected), "{to}:\n  {error}\n  {expected}");
        // A misspelt required key is also a missing one.
        let messages = if to.starts_with("contxts") { 2 } else { 1 };
        assert_eq!(error.matches("x.toml:").count(), messages, "{error}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let text =
        "nam = \"x\"\n[sweep]\ncontexts = [1]\nmodes = [\"llamacpp\"]\n[gate]\nmax_sigma = \"3\"\n";
    let error = load(text, &[]).map(|_| ()).unwrap_err();
    for expected in [
        "7 errors\n",
        "x.toml:1:1: unknown key 'nam' at the top level; did you mean 'name'?",
        "x.toml: has no 'name'",
        "x.toml:2:1: [sweep] has no 'corpora'",
        "x.toml:3:13: ",
        "x.toml:4:10: unknown mode 'llamacpp'; did you mean 'llama.cpp'?",
        "x.toml: has no [[models]]",
        "x.toml:6:13: 'max_sigma' must be a number, found the string \"3\"",
    ] {
        assert!(error.contains(expected), "{expected}\n in {error}");
    }
}

#[test]
fn set_arguments_override_the_file() {
    let sets = [
        "limits.windows=4",
        "sweep.contexts=[512, 1024]",
        "description=no toml, so a string",
        "gate.max_sigma=2.5",
    ];
    let x = load(
        &format!("{MINIMAL}[limits]\nwindows = 9\nmax_tokens = 5000\n"),
        &sets,
    )
    .unwrap();
    assert_eq!(x.limits.windows, Some(4));
    assert_eq!(x.limits.max_tokens, Some(5000));
    assert_eq!(x.sweep.contexts.len(), 2);
    assert_eq!(
        x.sweep.contexts[1].at,
        Location::Set("sweep.contexts=[512, 1024]".into())
    );
    assert_eq!(x.description, "no toml, so a string");
    assert_eq!(x.gate.max_sigma, Some(2.5));
}

#[test]
fn mistakes_in_set_arguments_name_the_argument() {
    for (set, expected) in [
        (
            "limits.window=4",
            "--set limits.window=4: unknown key 'window' in [limits]; did you mean 'windows'?",
        ),
        (
            "limits.windows=many",
            "--set limits.windows=many: 'windows' must be a whole number, found the string \"many\"",
        ),
        (
            "sweep.contexts=[256, true]",
            "--set sweep.contexts=[256, true]: 'contexts[1]' must be a whole number, found true",
        ),
        ("limits", "--set limits: needs the form key=value"),
        (
            "limits..windows=1",
            "--set limits..windows=1: 'limits..windows' is not a key",
        ),
        ("limits=3", "--set limits=3: 'limits' must be a table"),
    ] {
        let error = load(&format!("{MINIMAL}[limits]\nwindows = 9\n"), &[set])
            .map(|_| ())
            .unwrap_err();
        assert!(error.contains(expected), "{set}: {error}");
    }
}

#[test]
fn an_unreadable_file_is_named() {
    let error = Experiment::load(PathBuf::from("/nowhere/x.toml"), &[]).unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("/nowhere/x.toml: cannot be read: ")
    );
}

/// A part of the design's example, to be damaged.
const DAMAGED: &str = r#"name = "x"
[sweep]
corpora = ["a"]
contexts = [256, { n_ctx = 512, windows = 32 }]
modes = ["teacher-forced", { mode = "sliding-window", stride = 128 }]
placements = ["auto", { gpu_layers = 8, cycle = true }]
[[models]]
path = "m.gguf"
source = ["https://a"]
[[exclude]]
context = 256
[gate]
max_sigma = 3.0
"#;

proptest! {
    /// No file makes the reader panic, and every message has a place in it.
    #[test]
    fn damaged_files(
        at in 0..DAMAGED.len(),
        len in 0usize..12,
        put in proptest::option::of("[ -~\n]{0,6}|-1|1e999|[0-9]{25}|\\[\\]|\\{\\}|2020-01-01|\"é\""),
        sets in proptest::collection::vec("[a-z.]{0,8}=?[ -~]{0,8}", 0..2),
    ) {
        let mut text = DAMAGED.to_owned();
        let end = (at + len).min(text.len());
        text.replace_range(at..end, &put.unwrap_or_default());
        let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
        if let Err(error) = load(&text, &sets) {
            for line in error.lines() {
                prop_assert!(
                    line.starts_with("x.toml") || line.starts_with("--set ") || line.ends_with(" errors"),
                    "{line}"
                );
            }
        }
    }
}

#[test]
fn the_base_of_divergences() {
    let base = |x: Experiment| x.kld_base.map(|b| (b.value, b.at.to_string()));
    assert_eq!(base(load(MINIMAL, &[]).unwrap()), None);
    let x = load(&format!("{MINIMAL}[kld]\nbase = \"m\"\n"), &[]).unwrap();
    let (value, at) = base(x).unwrap();
    assert_eq!(value, KldBase::Named("m".to_owned()));
    assert!(at.ends_with("x.toml:8:8"), "{at}");
    for (table, error) in [
        (
            "[kld]\n",
            "x.toml:7:1: [kld] has no 'base': it names the model, or the run, that others are \
             compared with, or what is other in the base (base = { numerics = \"exact\" })",
        ),
        (
            "[kld]\nbase = 3\n",
            "x.toml:8:8: 'base' must be a string, found the number 3",
        ),
        (
            "[kld]\nbase = \"m\"\nbas = 1\n",
            "x.toml:9:1: unknown key 'bas' in [kld]; did you mean 'base'? (valid: base)",
        ),
        (
            "[kld]\nbase = {}\n",
            "x.toml:8:8: an empty 'base' is every run itself: say what is other in it",
        ),
        (
            "[kld]\nbase = { numerics = \"exat\" }\n",
            "x.toml:8:21: unknown numerics 'exat'; did you mean 'exact'? (valid: exact, q8, f16, \
             bf16)",
        ),
        (
            "[kld]\nbase = { placement = \"cup\" }\n",
            "x.toml:8:22: unknown placement 'cup'; did you mean 'cpu'?",
        ),
        (
            "[kld]\nbase = { numeric = \"exact\" }\n",
            "x.toml:8:10: unknown key 'numeric' in 'base'; did you mean 'numerics'? (valid: model, \
             placement, numerics)",
        ),
    ] {
        let found = load(&format!("{MINIMAL}{table}"), &[]).unwrap_err();
        assert!(found.contains(error), "{found}");
    }
}

#[test]
fn a_base_by_axes() {
    let table = "[kld]\nbase = { model = \"m\", placement = \"cpu\", numerics = \"q8\" }\n";
    let x = load(&format!("{MINIMAL}{table}"), &[]).unwrap();
    let base = x.kld_base.unwrap();
    let written = "{ model = \"m\", placement = \"cpu\", numerics = \"q8\" }";
    assert_eq!(base.value.to_string(), written);
    let KldBase::Same(of) = base.value else {
        panic!("{:?}", base.value);
    };
    let numerics = of.numerics.unwrap();
    assert_eq!(numerics.value, Numerics::Q8);
    assert!(
        numerics.at.to_string().ends_with("x.toml:8:53"),
        "{}",
        numerics.at
    );
    // A table of a later layer.
    let x = load(MINIMAL, &["kld.base={ numerics = \"exact\" }"]).unwrap();
    let base = x.kld_base.unwrap();
    assert_eq!(base.value.to_string(), "{ numerics = \"exact\" }");
    assert!(
        base.at.to_string().starts_with("--set kld.base="),
        "{}",
        base.at
    );
}
