use super::*;

fn random(n: usize, seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..n)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

fn packed(w: &[f32], n_in: usize, n_out: usize) -> Packed {
    let mut p = Packed::zeros(n_in, n_out);
    for (panel, rows) in p.panels_mut_serial().zip(w.chunks(PANEL * n_in)) {
        pack_rows(panel, rows, n_in, n_in);
    }
    p
}

#[test]
fn agrees_with_f64_and_between_instruction_sets() {
    for (n_rows, n_in, n_out) in [
        (1, 1, 1),
        (3, 5, 7),
        (14, 256, 32),
        (29, 600, 70),
        (45, 257, 96),
        (45, 4200, 70),
    ] {
        let x = random(n_rows * n_in, 1);
        let w = random(n_out * n_in, 2);
        let w_packed = packed(&w, n_in, n_out);
        let mut bits: Option<Vec<u32>> = None;
        for isa in Isa::available() {
            let mut out = vec![f32::NAN; n_rows * n_out];
            multiply(isa, Product::full(&x, n_rows, &w_packed), &mut out, n_out);
            for r in 0..n_rows {
                for o in 0..n_out {
                    let terms =
                        (0..n_in).map(|k| f64::from(x[r * n_in + k]) * f64::from(w[o * n_in + k]));
                    let (want, size) = terms.fold((0.0, 0.0), |(s, a), t| (s + t, a + t.abs()));
                    let error = (f64::from(out[r * n_out + o]) - want).abs();
                    assert!(error <= 2e-6 * size, "{} [{r},{o}]", isa.name());
                }
            }
            let got = out.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(
                bits.get_or_insert_with(|| got.clone()),
                &got,
                "{}",
                isa.name()
            );
        }
    }
}

#[test]
fn wide_sums_round_once() {
    for (n_rows, n_in, n_out) in [(1, 1, 1), (3, 5, 7), (9, 600, 70)] {
        let (x, w) = (random(n_rows * n_in, 5), random(n_out * n_in, 6));
        let w_packed = packed(&w, n_in, n_out);
        for isa in Isa::available() {
            let mut out = vec![f32::NAN; n_rows * n_out];
            multiply_wide(isa, &x, &w_packed, &mut out, n_out);
            for (i, got) in out.iter().enumerate() {
                let (r, o) = (i / n_out, i % n_out);
                let terms = x[r * n_in..][..n_in].iter().zip(&w[o * n_in..][..n_in]);
                let want = terms.fold(0.0, |s, (x, w)| f64::from(*x).mul_add((*w).into(), s));
                assert_eq!(*got, want as f32, "{} [{r},{o}]", isa.name());
            }
        }
    }
}

#[test]
fn bits_do_not_depend_on_how_the_work_is_cut() {
    let (n_rows, n_in, n_out) = (37, 300, 100);
    let (x, w) = (random(n_rows * n_in, 3), random(n_out * n_in, 4));
    let w = packed(&w, n_in, n_out);
    let isa = Isa::detect();
    let whole = Product::full(&x, n_rows, &w);
    let mut want = vec![0.0; n_rows * n_out];
    multiply(isa, whole, &mut want, n_out);
    for rows in [1, 2, 5, 14, 20] {
        for panels in 1..4 {
            let mut got = vec![0.0; n_rows * n_out];
            for r in (0..n_rows).step_by(rows) {
                for p in (0..4).step_by(panels) {
                    let part = Product {
                        x: &x[r * n_in..],
                        n_rows: rows.min(n_rows - r),
                        panels: (p, (p + panels).min(4)),
                        ..whole
                    };
                    multiply(isa, part, &mut got[r * n_out + p * PANEL..], n_out);
                }
            }
            assert!(got == want, "{rows} rows, {panels} panels");
        }
    }
}

/// Blocks of 16 terms from the last one down, in plain loops.
fn descending_sum(x: &[f32], w: &[f32]) -> f32 {
    let mut total = 0.0;
    for (x, w) in x.rchunks(K_BLOCK).zip(w.rchunks(K_BLOCK)) {
        let terms = x.iter().zip(w).rev();
        total += terms.fold(0.0, |s, (x, w)| x.mul_add(*w, s));
    }
    total
}

#[test]
fn reversed_terms_are_summed_from_the_last_to_the_first() {
    let mut moved = 0;
    for (n_rows, n_in, n_out) in [(1, 1, 1), (3, 5, 7), (14, 256, 32), (17, 301, 70)] {
        let (x, w) = (random(n_rows * n_in, 7), random(n_out * n_in, 8));
        let ascending = packed(&w, n_in, n_out);
        let mut descending = packed(&w, n_in, n_out);
        descending.reverse_terms();
        for isa in Isa::available() {
            let run = |w: &Packed| {
                let mut out = vec![f32::NAN; n_rows * n_out];
                multiply(isa, Product::full(&x, n_rows, w), &mut out, n_out);
                out
            };
            let (forth, back) = (run(&ascending), run(&descending));
            for (i, got) in back.iter().enumerate() {
                let (r, o) = (i / n_out, i % n_out);
                let want = descending_sum(&x[r * n_in..][..n_in], &w[o * n_in..][..n_in]);
                assert_eq!(*got, want, "{} [{r},{o}]", isa.name());
            }
            moved += forth.iter().zip(&back).filter(|(a, b)| a != b).count();
            let mut wide = [(); 2].map(|()| vec![f32::NAN; n_rows * n_out]);
            multiply_wide(isa, &x, &ascending, &mut wide[0], n_out);
            multiply_wide(isa, &x, &descending, &mut wide[1], n_out);
            let apart = |(a, b): (&f32, &f32)| (a - b).abs() > 1e-6 * a.abs();
            assert!(!wide[0].iter().zip(&wide[1]).any(apart));
        }
        // Twice is not at all.
        descending.reverse_terms();
        assert!(descending.elements() == ascending.elements());
    }
    assert!(moved > 100, "{moved}");
}

/// As attention takes it: some terms of all, rows with gaps.
#[test]
fn reversed_terms_of_a_part() {
    let (n_rows, n_in, n_out, k) = (5, 90, 40, (32, 77));
    let (stride, n_k) = (64, k.1 - k.0);
    let (x, w) = (random(n_rows * stride, 9), random(n_out * n_in, 10));
    let mut packed = packed(&w, n_in, n_out);
    packed.reverse_terms();
    let product = Product {
        x: &x,
        x_stride: stride,
        n_rows,
        w: &packed,
        k,
        panels: (0, 2),
    };
    let mut out = vec![f32::NAN; n_rows * n_out];
    multiply(Isa::detect(), product, &mut out, n_out);
    for (i, got) in out.iter().enumerate() {
        let (r, o) = (i / n_out, i % n_out);
        let want = descending_sum(&x[r * stride..][..n_k], &w[o * n_in + k.0..][..n_k]);
        assert_eq!(*got, want, "[{r},{o}]");
    }
}
