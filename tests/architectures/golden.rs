//! The bits of this version of the arithmetic, token by token: whoever changes one
//! raises `pplx::backend::ARITHMETIC`, so that no two rows with other bits say that
//! the same engine computed them.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pplx::backend::cpu::CpuModel;
use pplx::backend::{ARITHMETIC, Numerics};
use pplx::gguf::BlockType;
use pplx::model::Model;

use crate::cases::{CASES, GEOMETRY, N_WINDOWS, bos, tokens};
use crate::support::tiny::{self, Tiny};
use crate::support::{bits, score};

/// Those that the tests can quantize to; they cover every kind of product in integers.
const TYPES: [BlockType; 4] = [
    BlockType::Q8_0,
    BlockType::Q4_1,
    BlockType::Q4_K,
    BlockType::Q6_K,
];

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/golden.csv")
}

/// The bits of every score, a line a model: its name, then the NLL of each token as
/// the hexadecimal digits of an f64.
fn computed() -> String {
    let mut out = String::new();
    let mut line = |name: String, tiny: &Tiny, model: Arc<Model>, numerics| {
        let cpu = CpuModel::new(model, 1).unwrap();
        let cpu = cpu.with_numerics(numerics).unwrap();
        let scores = score(&cpu, &tokens(), GEOMETRY, N_WINDOWS, bos(tiny), 1);
        out += &name;
        for nll in bits(&scores) {
            write!(out, ",{nll:016x}").unwrap();
        }
        out.push('\n');
    };
    for case in CASES {
        let tiny = (case.build)();
        let model = Arc::new(tiny.model().unwrap());
        line(case.name.to_owned(), &tiny, model, Numerics::Exact);
    }
    let tiny = Tiny::wide_llama();
    for ty in TYPES {
        let model = Arc::new(tiny::build(&tiny.quantized(ty)).unwrap());
        for numerics in [Numerics::Exact, Numerics::Q8] {
            line(format!("{ty} {numerics}"), &tiny, model.clone(), numerics);
        }
    }
    out
}

/// The first model and token at which two files differ.
fn difference(committed: &str, computed: &str) -> Option<String> {
    if committed.lines().count() != computed.lines().count() {
        return Some("the list of models".to_owned());
    }
    let lines = committed.lines().zip(computed.lines());
    let (old, new) = lines.into_iter().find(|(old, new)| old != new)?;
    let mut fields = old.split(',').zip(new.split(',')).enumerate();
    let (token, _) = fields
        .find(|(_, (old, new))| old != new)
        .unwrap_or_default();
    let name = old.split(',').next().unwrap_or_default();
    Some(format!("{name}, token {token}"))
}

#[test]
fn the_bits_are_those_of_this_version() {
    let committed = std::fs::read_to_string(file()).unwrap_or_default();
    let (version, old) = committed.split_once('\n').unwrap_or_default();
    let now = format!("arithmetic {ARITHMETIC}");
    let new = computed();
    if version == now {
        let same = difference(old, &new);
        assert_eq!(
            same, None,
            "a bit of a score has changed. If that is meant, raise ARITHMETIC in src/backend/mod.rs and \
             run this test with PPLX_REGENERATE=1; CHANGELOG and docs say why"
        );
        return;
    }
    assert!(
        std::env::var_os("PPLX_REGENERATE").is_some(),
        "{} has the bits of '{version}', this is '{now}': run this test with PPLX_REGENERATE=1",
        file().display()
    );
    std::fs::write(file(), format!("{now}\n{new}")).unwrap();
}
