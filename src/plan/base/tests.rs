//! What runs are compared with.

use super::super::tests::{MINIMAL, Project, pace};
use super::super::{Estimate, RunSpec};
use crate::gguf::{BlockType, GgufWriter, Value};

/// The key of each run, and of its base.
fn bases(project: &Project, text: &str) -> Vec<(String, Option<String>)> {
    let runs = project.plan(text).unwrap().runs;
    let base = |r: &RunSpec| r.base.as_ref().map(|b| b.key.clone());
    runs.iter().map(|r| (r.key.clone(), base(r))).collect()
}

#[test]
fn bases_of_divergences() {
    let project = Project::new();
    project.model("m/b.gguf", 2048);
    let two = MINIMAL.replace("[256]", "[256, 512]") + "[[models]]\npath = \"m/b.gguf\"\n";
    let bases = |base: &str| bases(&project, &format!("{two}[kld]\nbase = \"{base}\"\n"));
    let key = |model: &str, n_ctx: usize| {
        let prefix = n_ctx / 2 + 1;
        format!("{model}/t.txt/{n_ctx}/sw-s{n_ctx}-p{prefix}/cpu/exact")
    };
    // A model: every run of another one, against the same run of it.
    let want = [
        (key("a", 256), None),
        (key("a", 512), None),
        (key("b", 256), Some(key("a", 256))),
        (key("b", 512), Some(key("a", 512))),
    ];
    assert_eq!(bases("a"), want);
    // A run: those of the same text and geometry.
    let want = [
        (key("a", 256), Some(key("b", 256))),
        (key("a", 512), None),
        (key("b", 256), None),
        (key("b", 512), None),
    ];
    assert_eq!(bases(&key("b", 256)), want);

    let error = project.error(&format!("{two}[kld]\nbase = \"c\"\n"));
    let want = ":12:8: 'c' is neither a model of this experiment nor the key of a run";
    assert!(error.contains(want), "{error}");
    let alone = project
        .plan(&format!("{MINIMAL}[kld]\nbase = \"a\"\n"))
        .unwrap();
    let note = "no run is compared with the base 'a'";
    assert!(
        alone.notes.iter().any(|n| n.contains(note)),
        "{:?}",
        alone.notes
    );
}

/// Two models, exact and q8, limited: the models have weights that q8 has products for.
fn square(project: &Project, base: &str) -> String {
    for name in ["a", "b"] {
        GgufWriter::new("llama")
            .meta("llama.block_count", Value::U32(1))
            .meta("llama.embedding_length", Value::U32(8))
            .meta("llama.context_length", Value::U32(2048))
            .f32_tensor("token_embd.weight", &[8, 10], &[0.0; 80])
            .write(project.path().join(format!("m/{name}.gguf")))
            .unwrap();
    }
    let sweep = "numerics = [\"exact\", \"q8\"]\n[limits]\nwindows = 6\n[[models]]";
    MINIMAL.replace("[[models]]", sweep)
        + &format!("[[models]]\npath = \"m/b.gguf\"\n[kld]\nbase = {base}\n")
}

fn key(model: &str, numerics: &str) -> String {
    format!("{model}/t.txt/256/sw-s256-p129/cpu/{numerics}/w6")
}

#[test]
fn a_base_is_the_run_with_axes_replaced() {
    let project = Project::new();
    let runs = [("a", "exact"), ("a", "q8"), ("b", "exact"), ("b", "q8")];
    // Of each run, model and numerics of its base.
    let cases = [
        (
            "{ numerics = \"exact\" }",
            [None, Some(("a", "exact")), None, Some(("b", "exact"))],
        ),
        (
            "{ model = \"b\" }",
            [Some(("b", "exact")), Some(("b", "q8")), None, None],
        ),
        (
            "\"b\"",
            [Some(("b", "exact")), Some(("b", "q8")), None, None],
        ),
        (
            "{ model = \"a\", numerics = \"exact\", placement = \"cpu\" }",
            [
                None,
                Some(("a", "exact")),
                Some(("a", "exact")),
                Some(("a", "exact")),
            ],
        ),
        ("{ placement = \"auto\" }", [None; 4]),
    ];
    for (written, want) in cases {
        let found = bases(&project, &square(&project, written));
        let want = want.map(|base| base.map(|(model, numerics)| key(model, numerics)));
        let want = runs
            .map(|(model, numerics)| key(model, numerics))
            .into_iter()
            .zip(want);
        assert_eq!(found, want.collect::<Vec<_>>(), "{written}");
    }
    let nothing = square(&project, "{ placement = \"cpu\" }");
    let notes = project.plan(&nothing).unwrap().notes;
    let note = "15:8: no run is compared with the base { placement = \"cpu\" }";
    assert!(notes.iter().any(|n| n.contains(note)), "{notes:?}");
    // The base need not be a run.
    let alone =
        square(&project, "{ numerics = \"exact\" }").replace("[\"exact\", \"q8\"]", "[\"q8\"]");
    let want = [("a", "q8"), ("b", "q8")].map(|(m, n)| (key(m, n), Some(key(m, "exact"))));
    assert_eq!(bases(&project, &alone), want);
    let cycle = "{ placement = { device = \"cpu\", layers_per_window = 1, cycle = true } }";
    let found = bases(&project, &square(&project, cycle));
    let want = "a/t.txt/256/sw-s256-p129/cpu_layers=1+cycle/exact/w6";
    assert_eq!(found[0].1.as_deref(), Some(want));
}

/// A reference to a run says nothing of limits: the base has the run's own.
#[test]
fn limits_are_not_part_of_the_reference() {
    let project = Project::new();
    let plain = "a/t.txt/256/sw-s256-p129/cpu/exact";
    for suffix in ["", "/w6", "/w2", "/w6/t4000", "/t9"] {
        let text = square(&project, &format!("\"{plain}{suffix}\""));
        let found = bases(&project, &text);
        let base = || Some(key("a", "exact"));
        let of: Vec<_> = found.iter().map(|(_, base)| base.clone()).collect();
        assert_eq!(of, [None, base(), base(), base()], "{suffix}");
        // With other limits of the run, too: both contexts have the same base.
        let text = text.replace("[256]", "[256, { n_ctx = 256, windows = 2 }]");
        let found = bases(&project, &text);
        for (run, base) in found {
            let end = |key: &str| key.rsplit('/').next().map(str::to_owned);
            let own = run.starts_with("a/") && run.contains("/exact/");
            assert_eq!(base.is_none(), own, "{run}");
            assert!(base.is_none_or(|b| b.starts_with("a/") && end(&b) == end(&run)));
        }
    }
    for wrong in ["/w", "/x6", "/w6x", "w6", "/w6/"] {
        let text = square(&project, &format!("\"{plain}{wrong}\""));
        let error = project.error(&text);
        assert!(error.contains("15:8: '"), "{error}");
        assert!(error.contains("is neither a model of this experiment nor the key of a run; did"));
    }
}

#[test]
fn a_base_that_cannot_be_is_an_error_at_its_place() {
    let project = Project::new();
    let small = |project: &Project| project.model("m/b.gguf", 64);
    let cases = [
        (
            "{ model = \"bb\" }",
            "15:18: 'bb' is no model of this experiment; did you mean 'b'? (valid: a, b)",
        ),
        (
            "{ placement = \"cuda\" }",
            "15:22: the base of run a/t.txt/256/sw-s256-p129/cpu/exact/w6: placement 'cuda' cannot be \
             run: ",
        ),
        (
            "{ numerics = \"f16\" }",
            "15:21: the base of run a/t.txt/256/sw-s256-p129/cpu/exact/w6: numerics 'f16' is not for \
             layers on cpu; say placement = \"auto\" in the base too",
        ),
    ];
    for (written, want) in cases {
        let error = project.error(&square(&project, written));
        assert!(error.contains(want), "{error}");
    }
    // One message a reason for all runs that it concerns: there is no device, and q8 is
    // not for one.
    let error = project.error(&square(&project, "{ placement = \"cuda\" }"));
    assert_eq!(error.lines().count(), 3, "{error}");
    let text = square(&project, "\"b\"");
    small(&project);
    let exclude = format!("{text}[[exclude]]\nmodel = \"b\"\n");
    let error = project.error(&exclude);
    let want = "15:8: the base of run a/t.txt/256/sw-s256-p129/cpu/exact/w6: windows of 256 tokens are \
                beyond the 64 that 'b' was trained on";
    assert!(error.contains(want), "{error}");
}

#[test]
fn a_base_without_products_for_its_numerics_is_refused() {
    let project = Project::new();
    let text = square(&project, "{ numerics = \"q8\" }").replace(", \"q8\"]", "]");
    GgufWriter::new("llama")
        .meta("llama.block_count", Value::U32(1))
        .meta("llama.embedding_length", Value::U32(256))
        .meta("llama.context_length", Value::U32(2048))
        .tensor(
            "token_embd.weight",
            &[256, 1],
            BlockType::Q8_K,
            vec![0; BlockType::Q8_K.block_bytes()],
        )
        .write(project.path().join("m/b.gguf"))
        .unwrap();
    let error = project.error(&text);
    let want = "15:21: the base of run b/t.txt/256/sw-s256-p129/cpu/exact/w6: numerics 'q8' has no \
                product for the weights of type Q8_K in 'b'";
    assert!(error.contains(want), "{error}");
}

/// What a run with a base takes is what both take alone, but for the corpus's ids.
#[test]
fn the_cost_of_a_base_is_its_own_and_in_the_sum() {
    let project = Project::new();
    let text = square(&project, "{ numerics = \"exact\" }");
    let plan = project.plan(&text).unwrap();
    let of = |i: usize| Estimate::new(&plan.runs[i], Some(4096), pace(1));
    let (exact, q8) = (of(0), of(1));
    let alone = |i: usize| {
        let run = RunSpec {
            base: None,
            ..plan.runs[i].clone()
        };
        Estimate::new(&run, Some(4096), pace(1))
    };
    assert_eq!((exact.base, &exact), (None, &alone(0)));
    let base = q8.base.unwrap();
    assert_eq!(base.seconds, exact.seconds);
    let ids = 4096 * 4;
    assert_eq!(
        base.memory_bytes.unwrap() + ids,
        exact.memory_bytes.unwrap()
    );
    let sum = alone(1).memory_bytes.unwrap() + base.memory_bytes.unwrap();
    assert_eq!(q8.memory_bytes.unwrap(), sum);
    let sum = alone(1).seconds.unwrap() + exact.seconds.unwrap();
    assert!((q8.seconds.unwrap() / sum - 1.0).abs() < 1e-12);
}
