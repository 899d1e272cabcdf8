//! Quantized weights, and what no other case has, against llama.cpp's figures on
//! the same weights in F32 (`tests/fixtures/reference`, whose README says how they
//! are made).

use std::path::{Path, PathBuf};
use std::process::Command;

use pplx::gguf::{Array, BlockType, GgufWriter, Value};

use super::fixtures::EXACT;
use crate::cases::{GEOMETRY, N_WINDOWS, bos, by_name, tokens};
use crate::support::tiny::{Tiny, build};
use crate::support::{differences, rows, score, token_nlls};
use pplx::backend::cpu::CpuModel;

struct Reference {
    name: &'static str,
    tiny: fn() -> Tiny,
    /// The type of the matrices.
    ty: BlockType,
}

const fn quantized(name: &'static str, ty: BlockType) -> Reference {
    Reference {
        name,
        tiny: Tiny::wide_llama,
        ty,
    }
}

const REFERENCES: &[Reference] = &[
    quantized("llama_q8_0", BlockType::Q8_0),
    quantized("llama_q4_1", BlockType::Q4_1),
    quantized("llama_q4_k", BlockType::Q4_K),
    quantized("llama_q6_k", BlockType::Q6_K),
    // Pairs of a fourth axis, which text does not turn.
    Reference {
        name: "qwen35_axes",
        tiny: || with_axes("qwen35", [1, 1, 1, 1]),
        ty: BlockType::F32,
    },
    Reference {
        name: "glm4moe_axes",
        tiny: || with_axes("glm4moe", [1, 1, 0, 2]).set("rope.dimension_count", Value::U32(8)),
        ty: BlockType::F32,
    },
];

fn with_axes(case: &str, sections: [u32; 4]) -> Tiny {
    let sections = Value::Array(Array::U32(sections.into()));
    (by_name(case).build)().set("rope.dimension_sections", sections)
}

impl Reference {
    fn writer(&self) -> GgufWriter {
        match self.ty {
            BlockType::F32 => (self.tiny)().writer(),
            ty => (self.tiny)().quantized(ty),
        }
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/reference")
}

#[test]
fn every_token_is_llama_cpps_on_the_same_weights() {
    let mut wrong = Vec::new();
    for r in REFERENCES {
        let model = build(&r.writer()).unwrap_or_else(|e| panic!("{}: {e}", r.name));
        let cpu = CpuModel::new(std::sync::Arc::new(model), 1).expect("a thread");
        let tokens = tokens();
        let bos = bos(&(r.tiny)());
        let scores = score(&cpu, &tokens, GEOMETRY, N_WINDOWS, bos, 1);
        let expected = token_nlls(&directory().join(format!("{}.csv", r.name)));
        let (max, mean) = differences(&rows(&tokens, &scores), &expected);
        println!("{:16} max {max:.1e} mean {mean:.1e}", r.name);
        if max.is_nan() || max > EXACT || mean > EXACT / 10.0 {
            wrong.push(format!("{}: max {max:.1e}, mean {mean:.1e}", r.name));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
#[ignore = "needs llama.cpp; see tests/fixtures/reference/README.md"]
fn regenerate_reference() {
    let python = std::env::var_os("ORACLE_PYTHON").expect("ORACLE_PYTHON names a Python");
    let models = tempfile::tempdir().unwrap();
    let ids: Vec<String> = tokens().iter().map(|id| format!("{id}\n")).collect();
    std::fs::write(models.path().join("tokens.txt"), ids.concat()).unwrap();
    for r in REFERENCES {
        let path = models.path().join(format!("{}.gguf", r.name));
        r.writer().write(path).unwrap();
    }
    let status = Command::new(python)
        .arg(directory().join("make.py"))
        .arg("ids")
        .args([models.path(), &directory()])
        .status();
    assert!(status.expect("Python runs").success());
}
