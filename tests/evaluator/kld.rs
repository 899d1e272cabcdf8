//! KL divergence between two models whose logits are tables of bigrams, against
//! the divergence that follows from the tables.

use std::path::Path;

use pplx::backend::{BackendError, TokenScore};
use pplx::base::llama_cpp::GridWriter;
use pplx::base::top::TopWriter;
use pplx::base::{BaseFile, BaseInfo};
use pplx::corpus::{DEFAULT_CHUNK, tokenize_file};
use pplx::eval::{
    BaseSink, FromLogits, Geometry, Limits, LogitsModel, PerplexityModel, Sequence, TokenKld,
};
use pplx::plan::Placement;
use pplx::results::KldFigures;
use pplx::run::{
    BaseInput, Control, LoadedModel, Measurable, Measurement, Settings, check_stored, measure,
    measure_against, measure_saving,
};
use pplx::stats::Estimate;
use pplx::tokenizer;
use proptest::prelude::*;

use super::closed_form::{bigram_model, logit};
use crate::support::tiny::{BOS, text, vocabulary};

/// The other table: sixteenths, which are exact, too.
fn other_logit(token: usize, next: usize) -> f32 {
    logit(token, next) + ((token * 3 + next * 11) % 9) as f32 / 16.0
}

/// `ln p(next | token)` for every `next`.
fn ln_p(logit: fn(usize, usize) -> f32, token: u32) -> Vec<f64> {
    let logits: Vec<f64> = (0..vocabulary().len())
        .map(|next| logit(token as usize, next).into())
        .collect();
    let lse = logits.iter().map(|l| l.exp()).sum::<f64>().ln();
    logits.iter().map(|l| l - lse).collect()
}

fn top(ln_p: &[f64]) -> usize {
    (0..ln_p.len()).fold(0, |best, i| if ln_p[i] > ln_p[best] { i } else { best })
}

/// Two models, and a text's tokens.
struct Fixture {
    folder: tempfile::TempDir,
    tokens: Vec<u32>,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        bigram_model(logit).write(path("base.gguf"));
        bigram_model(other_logit).write(path("model.gguf"));
        std::fs::write(path("c.txt"), text(300)).unwrap();
        let tokenizer = tokenizer::Options::default();
        let loaded = LoadedModel::open(&path("base.gguf"), &tokenizer, 1).unwrap();
        let tokens = tokenize_file(&path("c.txt"), loaded.tokenizer().unwrap(), DEFAULT_CHUNK);
        Self {
            tokens: tokens.unwrap().ids,
            folder,
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn open(&self, name: &str, n_threads: usize) -> LoadedModel {
        let options = tokenizer::Options::default();
        LoadedModel::open(&self.path(name), &options, n_threads).unwrap()
    }

    fn against_model(&self, n_threads: usize, settings: Settings) -> Compared {
        self.placed([Placement::CPU; 2], n_threads, settings)
    }

    /// The model and its base, each somewhere.
    fn placed(
        &self,
        [model, base]: [Placement; 2],
        n_threads: usize,
        settings: Settings,
    ) -> Compared {
        let (a, b) = (
            self.open("model.gguf", n_threads),
            self.open("base.gguf", n_threads),
        );
        compared(&a, model, &b, base, &self.tokens, settings)
    }

    fn against_file(&self, path: &Path, settings: Settings) -> Vec<TokenKld> {
        let mut file = BaseFile::open(path).unwrap();
        let windows = check_stored(file.info(), &self.tokens, &settings).unwrap();
        let limits = Limits {
            windows: Some(windows),
            max_tokens: None,
        };
        let settings = Settings { limits, ..settings };
        let (model, control) = (self.open("model.gguf", 2), Control::default());
        let against = model.placed(Placement::CPU, &control, |subject| {
            let (base, text) = (BaseInput::Stored(file.rows()), model.text(&self.tokens));
            measure_against(subject, base, text, &settings, &control, &mut |_| ())
        });
        against.unwrap().1
    }

    fn info(&self, windows: usize) -> BaseInfo {
        BaseInfo {
            geometry: SETTINGS.geometry,
            n_vocab: vocabulary().len(),
            bos: Some(SETTINGS.bos.into()),
            windows,
            tokens: self.tokens[..windows * 32].to_vec(),
            model: "base".to_owned(),
            numerics: "exact".to_owned(),
            placement: "cpu".to_owned(),
            engine: "test".to_owned(),
        }
    }

    fn save(&self, sink: &mut dyn BaseSink, windows: usize) {
        let base = self.open("base.gguf", 2);
        let limits = Limits {
            windows: Some(windows),
            max_tokens: None,
        };
        let settings = Settings { limits, ..SETTINGS };
        let control = Control::default();
        let saved = base.placed(Placement::CPU, &control, |subject| {
            let text = base.text(&self.tokens);
            measure_saving(subject, sink, text, &settings, &control, &mut |_| ())
        });
        saved.unwrap();
    }

    fn save_top(&self, name: &str, max_entries: u32, windows: usize) -> std::path::PathBuf {
        let path = self.path(name);
        let mut sink = TopWriter::create(&path, &self.info(windows), max_entries).unwrap();
        self.save(&mut sink, windows);
        sink.finish().unwrap();
        path
    }

    fn save_grid(&self, windows: usize) -> std::path::PathBuf {
        let path = self.path("base.grid");
        let mut sink = GridWriter::create(&path, &self.info(windows)).unwrap();
        self.save(&mut sink, windows);
        sink.finish().unwrap();
        path
    }
}

type Compared = (Measurement, Vec<TokenKld>);

fn compared(
    model: &LoadedModel,
    placement: Placement,
    base: &LoadedModel,
    of_base: Placement,
    tokens: &[u32],
    settings: Settings,
) -> Compared {
    let control = Control::default();
    let compared = model.placed(placement, &control, |subject| {
        base.placed(of_base, &control, |base| {
            let (base, text) = (BaseInput::Model(base), model.text(tokens));
            measure_against(subject, base, text, &settings, &control, &mut |_| ())
        })
    });
    compared.unwrap()
}

const SETTINGS: Settings = Settings {
    geometry: Geometry {
        n_ctx: 32,
        mode: pplx::eval::Mode::SlidingWindow {
            stride: 32,
            unscored_prefix: 17,
        },
    },
    limits: Limits {
        windows: None,
        max_tokens: None,
    },
    bos: Some(BOS),
    batch: Some(3),
};

fn close(ours: f64, want: f64) {
    assert!(
        (ours - want).abs() < 1e-9 * want.abs().max(1.0),
        "{ours}, not {want}"
    );
}

fn bits(tokens: &[TokenKld]) -> Vec<[u64; 3]> {
    let each = tokens.iter();
    each.map(|t| [t.kld, t.nll, t.nll_base].map(f64::to_bits))
        .collect()
}

#[test]
fn divergence_of_two_bigram_tables() {
    let fixture = Fixture::new();
    for geometry in [
        Geometry::llama_cpp(32),
        Geometry::sliding_window(32, Some(20), Some(3)),
        Geometry::teacher_forced(128),
    ] {
        let settings = Settings {
            geometry,
            ..SETTINGS
        };
        let (m, tokens) = fixture.against_model(2, settings);
        let mut got = tokens.iter();
        let mut all = Vec::new();
        for window in m.scores.iter().map(|s| s.window) {
            for target in window.targets() {
                let first = target - 1 == window.start;
                let before = if first {
                    BOS
                } else {
                    fixture.tokens[target - 1]
                };
                let (p, q) = (ln_p(logit, before), ln_p(other_logit, before));
                let id = fixture.tokens[target] as usize;
                let kld: f64 = p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum();
                let t = got.next().unwrap();
                close(t.kld, kld);
                close(t.nll_base, -p[id]);
                close(t.nll, -q[id]);
                close(t.delta_p(), q[id].exp() - p[id].exp());
                assert_eq!(t.same_top, top(&p) == top(&q));
                assert_eq!((t.kld_least, t.kld_variance), (t.kld, 0.0));
                all.push([-q[id], -p[id], kld, f64::from(u8::from(top(&p) == top(&q)))]);
            }
        }
        assert!(got.next().is_none() && all.len() > 400);
        check_figures(&KldFigures::new(&tokens).unwrap(), &all);
    }
}

/// llama-perplexity's formulas, from sums of values and of their squares.
fn check_figures(f: &KldFigures, all: &[[f64; 4]]) {
    let n = all.len() as f64;
    let mean = |x: &dyn Fn(&[f64; 4]) -> f64| all.iter().map(x).sum::<f64>() / n;
    let err = |x: &dyn Fn(&[f64; 4]) -> f64| {
        ((mean(&|t| x(t).powi(2)) - mean(x).powi(2)) / (n - 1.0)).sqrt()
    };
    let estimate = |e: Estimate, value: f64, err: f64| {
        close(e.value, value);
        close(e.se.unwrap(), err);
    };
    let (q, b) = (mean(&|t| t[0]), mean(&|t| t[1]));
    let (q_err, b_err) = (err(&|t| t[0]), err(&|t| t[1]));
    let cov = (mean(&|t| t[0] * t[1]) - q * b) / (n - 1.0);
    let ratio_err = (q_err * q_err + b_err * b_err - 2.0 * cov).sqrt();
    let (ppl, ppl_base) = (q.exp(), b.exp());
    estimate(f.ppl, ppl, ppl * q_err);
    estimate(f.ppl_base, ppl_base, ppl_base * b_err);
    close(f.correlation.unwrap(), cov / (q_err * b_err));
    estimate(f.ln_ratio, q - b, ratio_err);
    estimate(f.ratio, ppl / ppl_base, ppl / ppl_base * ratio_err);
    let squares = (ppl * q_err).powi(2) + (ppl_base * b_err).powi(2);
    let difference_err = (squares - 2.0 * ppl * ppl_base * cov).sqrt();
    estimate(f.difference, ppl - ppl_base, difference_err);
    estimate(f.kld.mean, mean(&|t| t[2]), err(&|t| t[2]));
    let delta_p = |t: &[f64; 4]| (-t[0]).exp() - (-t[1]).exp();
    estimate(f.delta_p.mean, mean(&delta_p), err(&delta_p));
    let rms = mean(&|t| delta_p(t).powi(2)).sqrt();
    estimate(f.delta_p.rms, rms, 0.5 / rms * err(&|t| delta_p(t).powi(2)));
    let same = mean(&|t| t[3]);
    estimate(f.same_top, same, (same * (1.0 - same) / (n - 1.0)).sqrt());
    assert!(same > 0.1 && same < 0.9, "{same}");

    let mut klds: Vec<f64> = all.iter().map(|t| t[2]).collect();
    klds.sort_by(f64::total_cmp);
    close(f.kld.at(0.0), klds[0]);
    close(f.kld.at(1.0), klds[klds.len() - 1]);
    let at = 0.9 * (n - 1.0);
    let (below, part) = (at as usize, at.fract());
    close(
        f.kld.at(0.9),
        klds[below] * (1.0 - part) + klds[below + 1] * part,
    );
    let median = match klds.len() % 2 {
        0 => 0.5 * (klds[klds.len() / 2] + klds[klds.len() / 2 - 1]),
        _ => klds[klds.len() / 2],
    };
    close(f.kld.at(0.5), median);
}

#[test]
fn threads_batches_and_cycles_change_no_bit() {
    let fixture = Fixture::new();
    let (m, want) = fixture.against_model(1, SETTINGS);
    for (n_threads, batch, placement) in [
        (3, Some(1), Placement::CPU),
        (2, None, Placement::CPU),
        (2, Some(4), Placement::cpu_cycle(1)),
        (1, Some(3), Placement::cpu_cycle(2)),
    ] {
        let settings = Settings { batch, ..SETTINGS };
        let (other, got) = fixture.placed([placement; 2], n_threads, settings);
        assert_eq!(bits(&got), bits(&want), "{n_threads} {batch:?} {placement}");
        assert_eq!(other.scores, m.scores);
    }
    // Scores are those of a run without a base.
    let model = fixture.open("model.gguf", 2);
    let control = Control::default();
    let plain = model.placed(Placement::CPU, &control, |subject| {
        let text = model.text(&fixture.tokens);
        measure(subject, text, &SETTINGS, &control, &mut |_| ())
    });
    let plain = plain.unwrap();
    assert_eq!(plain.scores, m.scores);
    // A base that cycles for a model that does not.
    let cycle = Placement::cpu_cycle(1);
    let (_, got) = fixture.placed([Placement::CPU, cycle], 2, SETTINGS);
    assert_eq!(bits(&got), bits(&want));
}

#[test]
fn a_model_is_no_distance_from_itself() {
    let fixture = Fixture::new();
    let (model, base) = (fixture.open("model.gguf", 1), fixture.open("model.gguf", 1));
    let cpu = Placement::CPU;
    let (_, klds) = compared(&model, cpu, &base, cpu, &fixture.tokens, SETTINGS);
    for t in &klds {
        assert_eq!((t.kld, t.same_top), (0.0, true));
        close(t.nll, t.nll_base);
    }
}

#[test]
fn a_base_stored_whole_is_exact() {
    let fixture = Fixture::new();
    // A step below every probability.
    let path = fixture.save_top("whole.base", 1_000_000, 20);
    let (_, want) = fixture.against_model(2, SETTINGS);
    let got = fixture.against_file(&path, SETTINGS);
    assert_eq!(got.len(), 20 * 15);
    for (got, want) in got.iter().zip(&want) {
        close(got.kld, want.kld);
        close(got.nll_base, want.nll_base);
        assert_eq!(got.same_top, want.same_top);
        assert_eq!(got.kld_variance, 0.0);
        assert!(got.kld_least <= got.kld + 1e-12);
    }
    // Fewer windows than it holds.
    let limits = Limits {
        windows: Some(7),
        max_tokens: None,
    };
    let few = fixture.against_file(&path, Settings { limits, ..SETTINGS });
    assert_eq!(bits(&few)[..], bits(&got)[..7 * 15]);
}

/// The estimate is off by what its own error says, and the bound is one.
#[test]
fn a_sampled_base_knows_its_error() {
    let fixture = Fixture::new();
    let (_, want) = fixture.against_model(2, SETTINGS);
    let mean = |tokens: &[TokenKld], f: fn(&TokenKld) -> f64| {
        tokens.iter().map(f).sum::<f64>() / tokens.len() as f64
    };
    for max_entries in [6, 12, 25] {
        let path = fixture.save_top("sampled.base", max_entries, 20);
        let got = fixture.against_file(&path, SETTINGS);
        let want = &want[..got.len()];
        let figures = KldFigures::new(&got).unwrap();
        let sampling = figures.sampling.unwrap();
        let off = mean(&got, |t| t.kld) - mean(want, |t| t.kld);
        assert!(off.abs() < 3.0 * sampling.err, "{off} {}", sampling.err);
        assert!(sampling.err < 0.3 * mean(want, |t| t.kld));
        for (got, want) in got.iter().zip(want) {
            assert!(got.kld_least <= want.kld + 1e-9);
            close(got.nll_base, want.nll_base);
            assert_eq!(got.same_top, want.same_top);
        }
    }
}

/// The bytes that llama.cpp defines, and what it makes of them.
#[test]
fn llama_cpp_s_format_within_its_rounding() {
    let fixture = Fixture::new();
    let windows = 6;
    let path = fixture.save_grid(windows);
    let bytes = std::fs::read(&path).unwrap();
    let n_vocab = vocabulary().len();
    let int = |at: usize| i32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    assert_eq!(&bytes[..8], b"_logits_");
    assert_eq!((int(8), int(12), int(16)), (32, n_vocab, windows));
    let ids: Vec<usize> = (0..windows * 32).map(|i| int(20 + 4 * i)).collect();
    let row = 2 * (2 * n_vocab.div_ceil(2) + 4);
    let rows = &bytes[20 + 4 * ids.len()..];
    assert_eq!(rows.len(), windows * 15 * row);
    for (i, row) in rows.chunks(row).enumerate() {
        let at = i / 15 * 32 + 16 + i % 15;
        let float = |at: usize| f32::from_le_bytes(row[at..at + 4].try_into().unwrap());
        let (scale, least) = (float(0), float(4));
        for (id, p) in ln_p(logit, ids[at] as u32).into_iter().enumerate() {
            let code = u16::from_le_bytes([row[8 + 2 * id], row[9 + 2 * id]]);
            let stored = f64::from(scale * f32::from(code) + least);
            assert!((stored - p).abs() <= 0.51 * f64::from(scale) + 1e-6);
        }
    }

    let (_, want) = fixture.against_model(2, SETTINGS);
    let got = fixture.against_file(&path, SETTINGS);
    assert_eq!(got.len(), windows * 15);
    for (got, want) in got.iter().zip(&want) {
        assert!((got.kld - want.kld).abs() < 1e-4);
        assert!((got.nll_base - want.nll_base).abs() < 1e-4);
        assert_eq!(got.nll, want.nll);
    }
}

/// What is read of a file until it is at its end or refused.
fn read_all(path: &Path) -> Result<usize, String> {
    let mut file = BaseFile::open(path).map_err(|e| e.to_string())?;
    let info = file.info().clone();
    let limits = Limits {
        windows: Some(info.windows),
        max_tokens: None,
    };
    let plan = pplx::eval::WindowPlan::new(info.tokens.len().max(64), info.geometry, limits);
    let plan = plan.map_err(|e| e.to_string())?;
    let rows = file
        .rows()
        .rows(plan.windows())
        .map_err(|e| e.to_string())?;
    Ok(rows.len())
}

/// A file of the first version, which named no numerics, is read as it was.
#[test]
fn files_of_the_first_version_are_read() {
    let fixture = Fixture::new();
    let path = fixture.save_top("second.base", 20, 2);
    let second = std::fs::read(&path).unwrap();
    let len = u32::from_le_bytes(second[12..16].try_into().unwrap()) as usize;
    let mut header: serde_json::Value = serde_json::from_slice(&second[16..16 + len]).unwrap();
    assert_eq!((second[8], &header["numerics"]), (2, &"exact".into()));
    let fields = header.as_object_mut().unwrap();
    fields.remove("numerics");
    fields.remove("placement");
    let header = serde_json::to_vec(&header).unwrap();
    // After it the step and the ids, and the checksum of all of that.
    let ids_end = 16 + len + 8 + 4 * 2 * 32;
    let mut first = b"pplxbase".to_vec();
    first.extend(1u32.to_le_bytes());
    first.extend((header.len() as u32).to_le_bytes());
    first.extend(&header);
    first.extend(&second[16 + len..ids_end]);
    let sum = <sha2::Sha256 as sha2::Digest>::digest(&first);
    first.extend(sum);
    first.extend(&second[ids_end + 32..]);
    let old = fixture.path("first.base");
    std::fs::write(&old, &first).unwrap();
    assert_eq!(read_all(&old), Ok(2 * 15));
    let info = |path: &Path| BaseFile::open(path).unwrap().info().clone();
    let said = |info: &BaseInfo| (info.numerics.clone(), info.placement.clone());
    assert_eq!(said(&info(&path)), ("exact".into(), "cpu".into()));
    assert_eq!(said(&info(&old)), (String::new(), String::new()));
    assert_eq!(info(&old).tokens, info(&path).tokens);
    // One of a version to come is not.
    first[8] = 3;
    std::fs::write(&old, &first).unwrap();
    let error = read_all(&old).unwrap_err();
    assert!(
        error.contains("is of version 3; this pplx reads 1 to 2"),
        "{error}"
    );
}

#[test]
fn cut_files_are_refused() {
    let fixture = Fixture::new();
    for path in [fixture.save_top("whole.base", 20, 2), fixture.save_grid(2)] {
        let whole = std::fs::read(&path).unwrap();
        assert_eq!(read_all(&path), Ok(2 * 15));
        for len in [0, 7, 8, 13, 19, 100, whole.len() / 2, whole.len() - 1] {
            let cut = fixture.path("cut.base");
            std::fs::write(&cut, &whole[..len]).unwrap();
            let error = read_all(&cut).unwrap_err();
            assert!(error.contains("cut.base: "), "{len}: {error}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any changed byte of our format is noticed; of llama.cpp's, which has no
    /// checksum, nothing worse than other figures comes.
    #[test]
    fn hostile_bytes(
        at in any::<prop::sample::Index>(),
        head in 0usize..200,
        in_head in any::<bool>(),
        to in any::<u8>(),
    ) {
        thread_local! {
            static FILES: [(std::path::PathBuf, Vec<u8>); 2] = {
                let fixture = Fixture::new();
                [fixture.save_top("whole.base", 20, 2), fixture.save_grid(2)].map(|path| {
                    let bytes = std::fs::read(&path).unwrap();
                    (path, bytes)
                })
            };
        }
        let folder = tempfile::tempdir().unwrap();
        FILES.with(|files| -> Result<(), TestCaseError> {
            for (i, (_, whole)) in files.iter().enumerate() {
                let mut bytes = whole.clone();
                let at = if in_head { head } else { at.index(bytes.len()) };
                if bytes[at] == to {
                    continue;
                }
                bytes[at] = to;
                let path = folder.path().join("hostile.base");
                std::fs::write(&path, &bytes).unwrap();
                let read = read_all(&path);
                prop_assert!(i == 1 || read.is_err(), "byte {at}");
            }
            Ok(())
        })?;
    }
}

/// The table itself, as somebody else's model.
struct Table(fn(usize, usize) -> f32);

impl LogitsModel for Table {
    fn n_vocab(&self) -> usize {
        vocabulary().len()
    }

    fn returns_all_rows(&self) -> bool {
        true
    }

    fn forward(&mut self, tokens: &[u32]) -> Result<Vec<f32>, BackendError> {
        let logit = self.0;
        let row = |&t: &u32| (0..vocabulary().len()).map(move |b| logit(t as usize, b));
        Ok(tokens.iter().flat_map(row).collect())
    }
}

/// A model that has scores and no logits, or too few of them.
struct ScoresOnly(FromLogits<Table>, Option<usize>);

impl PerplexityModel for ScoresOnly {
    fn n_vocab(&self) -> usize {
        self.0.n_vocab()
    }

    fn score(&mut self, batch: &[Sequence]) -> Result<Vec<Vec<TokenScore>>, BackendError> {
        self.0.score(batch)
    }

    fn logits(&mut self, _batch: &[Sequence]) -> Result<Option<Vec<f32>>, BackendError> {
        Ok(self.1.map(|n| vec![0.0; n]))
    }
}

#[test]
fn models_of_others_are_compared_like_our_own() {
    let fixture = Fixture::new();
    let (m, want) = fixture.against_model(2, SETTINGS);
    let control = Control::default();
    let base = fixture.open("base.gguf", 2);
    let text = base.text(&fixture.tokens);
    let with = |model: Measurable, settings: &Settings| {
        base.placed(Placement::CPU, &control, |base| {
            let base = BaseInput::Model(base);
            measure_against(model, base, text, settings, &control, &mut |_| ())
        })
    };
    let mut others = FromLogits(Table(other_logit));
    for batch in [None, Some(3)] {
        let settings = Settings { batch, ..SETTINGS };
        let (other, got) = with(Measurable::new(&mut others), &settings).unwrap();
        assert_eq!(other.windows.len(), m.windows.len());
        for (got, want) in got.iter().zip(&want) {
            // Ours sums its logits in f32.
            assert!((got.kld - want.kld).abs() < 1e-5, "{got:?} {want:?}");
            assert!((got.nll - want.nll).abs() < 1e-5, "{got:?} {want:?}");
            assert_eq!(got.nll_base, want.nll_base);
            assert_eq!(got.same_top, want.same_top);
        }
        // What is scored beside a base is what is scored without.
        let alone = measure(
            Measurable::new(&mut others),
            text,
            &settings,
            &control,
            &mut |_| (),
        );
        assert_eq!(alone.unwrap().scores, other.scores);
    }
    // As a base, against the same.
    let mut base = FromLogits(Table(other_logit));
    let base = BaseInput::Model(Measurable::new(&mut base));
    let model = Measurable::new(&mut others);
    let (_, same) = measure_against(model, base, text, &SETTINGS, &control, &mut |_| ()).unwrap();
    assert!(same.iter().all(|t| t.kld == 0.0 && t.same_top));
    // Stored, and read back.
    let path = fixture.path("others.base");
    let mut sink = TopWriter::create(&path, &fixture.info(m.windows.len()), 1_000_000).unwrap();
    let model = Measurable::new(&mut others);
    measure_saving(model, &mut sink, text, &SETTINGS, &control, &mut |_| ()).unwrap();
    sink.finish().unwrap();
    let mut file = BaseFile::open(&path).unwrap();
    let stored = BaseInput::Stored(file.rows());
    let model = Measurable::new(&mut others);
    let (_, same) = measure_against(model, stored, text, &SETTINGS, &control, &mut |_| ()).unwrap();
    assert!(same.iter().all(|t| t.kld < 1e-12 && t.same_top));
    // Scores alone make no distributions.
    let mut scores = ScoresOnly(FromLogits(Table(other_logit)), None);
    let error = with(Measurable::new(&mut scores), &SETTINGS).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the model gives scores and no logits, which KL divergences are made of (PerplexityModel::logits)"
    );
    let n_vocab = vocabulary().len();
    let mut few = ScoresOnly(FromLogits(Table(other_logit)), Some(n_vocab));
    let error = with(Measurable::new(&mut few), &SETTINGS).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("window 0: the model returns {n_vocab} logits, not 45 rows of {n_vocab}")
    );
}
