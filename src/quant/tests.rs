//! Every decoder against the package `gguf`: `tests/fixtures/make_quant.py`
//! wrote the expected values and says how the blocks are made.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use super::*;

const EXPECTED: &str = include_str!("../../tests/fixtures/quant/expected.tsv");

const ELEMENTS: usize = 1 << 18;
const SHOWN: usize = 100;
const SPECIAL: [u16; 14] = [
    0x0000, 0x8000, 0x0001, 0x8001, 0x03ff, 0x0400, 0x3c00, 0xbc00, 0x7bff, 0xfbff, 0x7c00, 0xfc00,
    0x7e00, 0xfe01,
];

struct Case {
    ty: BlockType,
    /// The input, and what the whole output hashes to.
    blocks: Vec<u8>,
    sha256: String,
    /// The block [`SHOWN`] and its first values.
    block: String,
    values: String,
}

fn cases() -> Vec<Case> {
    let case = |line: &str| {
        let fields: Vec<&str> = line.split('\t').collect();
        let [name, elements, bytes, scales, sha256, block, values] = fields[..] else {
            panic!("malformed line {line}");
        };
        let ty = BlockType::ALL.iter().find(|t| t.name() == name);
        let ty = *ty.unwrap_or_else(|| panic!("no block type {name}"));
        // The sizes that ggml and gguf agree on.
        assert_eq!(ty.block_elements().to_string(), elements, "{name}");
        assert_eq!(ty.block_bytes().to_string(), bytes, "{name}");
        let scales: Vec<usize> = scales.split(',').filter_map(|s| s.parse().ok()).collect();
        Case {
            ty,
            blocks: blocks(ty, &scales),
            sha256: sha256.to_owned(),
            block: block.to_owned(),
            values: values.to_owned(),
        }
    };
    EXPECTED.lines().map(case).collect()
}

/// 00, ff, then SHA-256 in counter mode with the special values as scales.
fn blocks(ty: BlockType, scales: &[usize]) -> Vec<u8> {
    let size = ty.block_bytes();
    let len = ELEMENTS / ty.block_elements() * size;
    let mut bytes: Vec<u8> = (0..=len / 32)
        .flat_map(|i| Sha256::digest(format!("{ty}:{i}")))
        .collect();
    bytes.truncate(len);
    bytes[..size].fill(0x00);
    bytes[size..2 * size].fill(0xff);
    let all = scales.iter().flat_map(|o| SPECIAL.map(|s| (o, s)));
    for (i, (offset, special)) in all.enumerate() {
        let at = (i + 2) * size + offset;
        bytes[at..at + 2].copy_from_slice(&special.to_le_bytes());
    }
    bytes
}

/// The bits of values; a NaN is a NaN, whatever its payload.
fn bits(values: &[f32]) -> Vec<u32> {
    let bits = |x: &f32| match x.is_nan() {
        true => 0x7fc0_0000,
        false => x.to_bits(),
    };
    values.iter().map(bits).collect()
}

fn hex(bytes: impl IntoIterator<Item = u8>) -> String {
    bytes.into_iter().map(|b| format!("{b:02x}")).collect()
}

#[test]
fn every_type_decodes_to_the_bits_of_gguf() {
    let mut wrong = Vec::new();
    for case in cases() {
        let ty = case.ty;
        let (bytes, elements) = (ty.block_bytes(), ty.block_elements());
        let block = &case.blocks[SHOWN * bytes..][..bytes];
        assert_eq!(hex(block.iter().copied()), case.block, "{ty}: other input");
        for isa in Isa::available() {
            let mut out = vec![f32::NAN; ELEMENTS];
            dequantize_with(isa, ty, &case.blocks, &mut out).unwrap();
            let out = bits(&out);
            let shown = out[SHOWN * elements..].iter().take(case.values.len() / 8);
            let shown: String = shown.map(|x| format!("{x:08x}")).collect();
            let all = out.iter().flat_map(|x| x.to_le_bytes());
            let sha256 = hex(Sha256::digest(all.collect::<Vec<u8>>()));
            if (&shown, &sha256) != (&case.values, &case.sha256) {
                let values = &case.values;
                wrong.push(format!("{ty}, {}: {shown} for {values}", isa.name()));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn candle_decodes_to_the_same_bits() {
    let mut twins = 0;
    for case in cases() {
        let mut theirs = vec![f32::NAN; ELEMENTS];
        if twin::dequantize(case.ty, &case.blocks, &mut theirs).is_some() {
            let mut ours = vec![f32::NAN; ELEMENTS];
            dequantize(case.ty, &case.blocks, &mut ours).unwrap();
            assert!(bits(&ours) == bits(&theirs), "{}", case.ty);
            twins += 1;
        }
    }
    assert_eq!(twins, 11);
}

#[test]
fn exactly_the_types_of_weights_are_supported() {
    let expected: BTreeSet<BlockType> = cases().iter().map(|c| c.ty).collect();
    let all = BlockType::ALL.iter().copied();
    let supported: BTreeSet<BlockType> = all.filter(|&t| is_supported(t)).collect();
    assert_eq!(supported, expected);
    for &ty in BlockType::ALL {
        let blocks = vec![0; 2 * ty.block_bytes()];
        let mut out = vec![0.0; 2 * ty.block_elements()];
        let result = dequantize(ty, &blocks, &mut out);
        match is_supported(ty) {
            true => assert_eq!(result, Ok(())),
            false => assert_eq!(result, Err(QuantError::Unsupported(ty))),
        }
        let short = dequantize(ty, &blocks[1..], &mut out);
        assert!(matches!(short, Err(QuantError::Length { .. })), "{ty}");
    }
    let message = QuantError::Unsupported(BlockType::I8).to_string();
    assert!(message.starts_with("block type I8 cannot be decoded; supported are F32, F16, Q4_0"));
    assert!(message.ends_with("NVFP4, Q1_0, Q2_0"), "{message}");
}

/// The value `scale · code + minimum` in the decoders' arithmetic, from its parts.
#[test]
fn integers_and_scales_are_the_elements() {
    let mut types = 0;
    for case in cases() {
        let ty = case.ty;
        let Some(layout) = IntegerLayout::of(ty) else {
            continue;
        };
        types += 1;
        let mut want = vec![f32::NAN; ELEMENTS];
        dequantize(ty, &case.blocks, &mut want).unwrap();
        for isa in Isa::available() {
            let mut codes = vec![0; ELEMENTS];
            let mut scales = vec![Scale(f32::NAN); ELEMENTS];
            let mut minima = vec![Minimum(f32::NAN); if layout.minima { ELEMENTS } else { 0 }];
            decode_integers(isa, ty, &case.blocks, &mut codes, &mut scales, &mut minima).unwrap();
            let products = scales.iter().zip(&codes).map(|(s, &c)| s.0 * f32::from(c));
            let got: Vec<f32> = match layout.minima {
                true => products.zip(&minima).map(|(x, m)| x + m.0).collect(),
                false => products.collect(),
            };
            assert!(bits(&got) == bits(&want), "{ty}, {}", isa.name());
            let bits = |x: f32| bits(&[x])[0];
            for group in scales.chunks(layout.group) {
                assert!(group.iter().all(|s| bits(s.0) == bits(group[0].0)), "{ty}");
            }
            for group in minima.chunks(layout.group) {
                assert!(group.iter().all(|m| bits(m.0) == bits(group[0].0)), "{ty}");
            }
        }
    }
    assert_eq!(types, 26);
    let parts = (&mut [0; 32], &mut [Scale(0.0); 32]);
    let result = decode_integers(
        Isa::detect(),
        BlockType::Q4_1,
        &[0; 20],
        parts.0,
        parts.1,
        &mut [],
    );
    assert!(matches!(result, Err(QuantError::Length { .. })));
}
