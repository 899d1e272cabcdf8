//! Against plain integers, and against ggml: `tests/fixtures/make_q8.py` wrote the
//! expected values and says how.

use super::super::math;
use super::activations::OFFSET;
use super::*;

const EXPECTED: &str = include_str!("../../../../tests/fixtures/q8/expected.tsv");

/// Noise.
struct Noise(u64);

impl Noise {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn f32(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

/// One kind of each shape that kernels are compiled for.
fn kinds() -> Vec<Kind> {
    use BlockType::*;
    let types = [NVFP4, Q8_0, Q4_1, Q6_K, Q2_K, IQ4_XS, Q4_K];
    types.map(|ty| Kind::of(ty).unwrap()).to_vec()
}

/// A matrix of given codes, all of whose scales are 1.
fn panels(kind: Kind, n_in: usize, n_out: usize, code: &mut dyn FnMut() -> i8) -> Panels {
    let mut w = Panels::zeros(kind, n_in, n_out);
    w.scales.fill(1.0);
    for code_of_lane in &mut w.codes {
        *code_of_lane = (code() as u8) ^ 0x80;
    }
    w
}

/// Rows of given codes, all of whose scales are 1.
fn rows(kind: Kind, n_in: usize, n_rows: usize, code: &mut dyn FnMut() -> i8) -> Activations {
    let codes: Vec<i8> = (0..n_rows * n_in).map(|_| code()).collect();
    let sums = codes.chunks(kind.layout.group);
    let sums: Vec<i32> = sums
        .map(|g| g.iter().map(|&c| i32::from(c)).sum())
        .collect();
    Activations {
        n_rows,
        scales: vec![1.0; codes.len() / kind.format.block()],
        starts: sums.iter().map(|s| -OFFSET * s).collect(),
        sums: sums.iter().map(|&s| s as f32).collect(),
        codes,
    }
}

#[test]
fn integer_sums_are_exact_on_every_instruction_set() {
    type Codes = fn(&mut Noise) -> i8;
    let any: Codes = |n| n.bits() as i8;
    let extremes: Codes = |n| [-128, 127, -127][(n.bits() % 3) as usize];
    let sources: [(Codes, Codes); 6] = [
        (any, any),
        (extremes, extremes),
        (|_| -128, |_| -128),
        (|_| -128, |_| 127),
        (|_| 127, |_| 127),
        (|_| 127, |_| -128),
    ];
    let mut noise = Noise(1);
    for kind in kinds() {
        // So few terms that f32 holds their sum.
        let n_in = kind.format.block();
        for (w_code, x_code) in sources {
            for (n_rows, n_out) in [(1, 32), (13, 70)] {
                let w = panels(kind, n_in, n_out, &mut || w_code(&mut noise));
                let x = rows(kind, n_in, n_rows, &mut || x_code(&mut noise));
                for isa in Isa::available() {
                    let mut out = vec![f32::NAN; n_rows * n_out];
                    multiply_quantized(isa, &x, &w, &mut out);
                    for (i, out) in out.iter().enumerate() {
                        let (r, o) = (i / n_out, i % n_out);
                        let code = |k: usize| {
                            let quad = (o / PANEL * n_in + k / QUAD * QUAD) * PANEL;
                            let lane = quad + o % PANEL * QUAD + k % QUAD;
                            i64::from((w.codes[lane] ^ 0x80) as i8)
                        };
                        let x = &x.codes[r * n_in..][..n_in];
                        let terms = x.iter().enumerate().map(|(k, &x)| code(k) * i64::from(x));
                        let want = terms.sum::<i64>();
                        assert_eq!(*out as i64, want, "{kind:?} {} [{r},{o}]", isa.name());
                    }
                }
            }
        }
    }
}

fn bytes(hex: &str) -> Vec<u8> {
    let byte = |i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap();
    (0..hex.len()).step_by(2).map(byte).collect()
}

fn f32s(hex: &str) -> Vec<f32> {
    let bytes = bytes(hex);
    let values = bytes.as_chunks::<4>().0.iter();
    values.map(|b| f32::from_le_bytes(*b)).collect()
}

/// The fields of the lines that begin with `name`.
fn lines(name: &str) -> Vec<Vec<&'static str>> {
    let fields = EXPECTED.lines().map(|l| l.split('\t').collect::<Vec<_>>());
    fields.filter(|f| f[0] == name).collect()
}

fn f16_at(block: &[u8], at: usize) -> f32 {
    half::f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

#[test]
fn activations_are_ggmls_to_the_bit() {
    let x = f32s(lines("x")[0][1]);
    for isa in Isa::available() {
        for (format, name, size) in [
            (Format::Q8_0, "Q8_0", 34),
            (Format::Q8_1, "Q8_1", 36),
            (Format::Q8_K, "Q8_K", 292),
        ] {
            let group = if format == Format::Q8_K { 16 } else { 32 };
            let mut ours = Activations::default();
            ours.quantize(isa, format, group, &x, x.len());
            let theirs = bytes(lines(name)[0][1]);
            for (b, theirs) in theirs.chunks_exact(size).enumerate() {
                let block = format.block();
                let codes = &ours.codes[b * block..][..block];
                let sums = &ours.sums[b * block / group..][..block / group];
                let starts = &ours.starts[b * block / group..][..block / group];
                let what = (name, isa.name(), b);
                let (scale, at) = match format {
                    Format::Q8_0 => (f16_at(theirs, 0), 2),
                    Format::Q8_1 => (f16_at(theirs, 0), 4),
                    Format::Q8_K => (f32::from_le_bytes(*theirs.first_chunk().unwrap()), 4),
                };
                assert_eq!(ours.scales[b].to_bits(), scale.to_bits(), "{what:?}");
                let their_codes = theirs[at..at + block].iter().map(|&c| c as i8);
                assert!(codes.iter().copied().eq(their_codes), "{what:?}");
                if format == Format::Q8_1 {
                    assert_eq!(sums[0].to_bits(), f16_at(theirs, 2).to_bits(), "{what:?}");
                }
                for (i, start) in starts.iter().enumerate() {
                    let group = &codes[i * group..][..group];
                    let sum: i32 = group.iter().map(|&c| i32::from(c)).sum();
                    assert_eq!(*start, -OFFSET * sum, "{what:?}");
                    if format == Format::Q8_K {
                        let at = 4 + 256 + 2 * i;
                        let theirs = i16::from_le_bytes([theirs[at], theirs[at + 1]]);
                        assert_eq!(
                            (sums[i], sum),
                            (f32::from(theirs), theirs.into()),
                            "{what:?}"
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn f16_rounding_is_that_of_half() {
    let mut noise = Noise(5);
    // Every f16 with its neighbours halfway, then anything.
    let f16s = (0..=u16::MAX).map(|b| half::f16::from_bits(b).to_f32());
    let ties = f16s.flat_map(|x| [x, f32::from_bits(x.to_bits() | 0x1000)]);
    let near = ties.flat_map(|x| [x, x.next_up(), x.next_down()]);
    let any = (0..100_000).map(|_| f32::from_bits(noise.bits() as u32));
    let xs: Vec<f32> = near.chain(any).collect();
    for isa in Isa::available() {
        let mut rounded = xs.clone();
        math::round_to_f16(isa, &mut rounded);
        for (x, got) in xs.iter().zip(rounded) {
            let want = half::f16::from_f32(*x).to_f32();
            let same = got.to_bits() == want.to_bits() || (got.is_nan() && want.is_nan());
            assert!(same, "{x:e}: {got:e}, not {want:e} ({})", isa.name());
        }
    }
}

/// Fills a matrix from rows of blocks.
fn load(ty: BlockType, n_in: usize, blocks: &[&[u8]]) -> Panels {
    let kind = Kind::of(ty).unwrap();
    let mut w = Panels::zeros(kind, n_in, blocks.len());
    let mut row = RowBuffers::new(kind, n_in);
    for (mut panel, blocks) in w.panels_mut().into_iter().zip(blocks.chunks(PANEL)) {
        for (o, blocks) in blocks.iter().enumerate() {
            panel.fill(Isa::detect(), ty, o, blocks, &mut row).unwrap();
        }
    }
    w
}

/// The types and blocks of the fixture.
fn weights() -> Vec<(BlockType, Vec<u8>, Vec<&'static str>)> {
    let mut all = Vec::new();
    for &ty in BlockType::ALL {
        let mut found = lines(ty.name());
        found.retain(|fields| fields.len() == 4);
        all.extend(found.into_iter().map(|f| (ty, bytes(f[1]), f)));
    }
    all
}

#[test]
fn products_are_ggmls() {
    let x = f32s(lines("x")[0][1]);
    let all = weights();
    for (ty, blocks, fields) in &all {
        let kind = Kind::of(*ty).unwrap();
        assert_eq!(format!("{:?}", kind.format), fields[2]);
        let want = f32s(fields[3])[0];
        // What rounding may do depends on the terms, which may cancel.
        let mut decoded = vec![0.0f32; x.len()];
        quant::dequantize(*ty, blocks, &mut decoded).unwrap();
        let size: f32 = decoded.iter().zip(&x).map(|(w, x)| (w * x).abs()).sum();
        let w = load(*ty, x.len(), &[blocks]);
        for isa in Isa::available() {
            let mut out = [f32::NAN];
            multiply(isa, &x, &w, &mut out);
            let error = (out[0] - want).abs() / size;
            assert!(error < 5e-7, "{ty} {}: {} for {want}", isa.name(), out[0]);
        }
    }
    // Exactly the types that ggml multiplies in integers.
    let covered: Vec<_> = all.iter().map(|(ty, ..)| *ty).collect();
    for &ty in BlockType::ALL {
        assert_eq!(Kind::of(ty).is_some(), covered.contains(&ty), "{ty}");
    }
}

#[test]
fn bits_do_not_depend_on_how_the_work_is_cut() {
    let mut noise = Noise(7);
    let n_in = 512;
    for (ty, blocks, _) in weights() {
        let n_out = 37;
        let w = load(ty, n_in, &vec![blocks.as_slice(); n_out]);
        let x: Vec<f32> = (0..23 * n_in).map(|_| noise.f32()).collect();
        let mut want: Option<Vec<u32>> = None;
        for isa in Isa::available() {
            for rows in [1, 5, 6, 23] {
                let mut out = vec![f32::NAN; 23 * n_out];
                for (x, out) in x.chunks(rows * n_in).zip(out.chunks_mut(rows * n_out)) {
                    multiply(isa, x, &w, out);
                }
                let got: Vec<u32> = out.iter().map(|x| x.to_bits()).collect();
                let want = want.get_or_insert_with(|| got.clone());
                assert!(got == *want, "{ty}, {}, {rows} rows", isa.name());
            }
        }
    }
}

#[test]
fn what_is_not_finite_stays_so() {
    let mut noise = Noise(9);
    for (ty, blocks, _) in weights() {
        let w = load(ty, 512, &[&blocks]);
        for bad in [f32::NAN, -f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            for isa in Isa::available() {
                let mut x: Vec<f32> = (0..512).map(|_| noise.f32()).collect();
                x[300] = bad;
                let mut out = [0.0];
                multiply(isa, &x, &w, &mut out);
                assert!(!out[0].is_finite(), "{ty} {}: {bad} is lost", isa.name());
            }
        }
    }
}
