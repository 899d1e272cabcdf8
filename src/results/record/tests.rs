use proptest::prelude::*;

use super::*;
use crate::backend::TokenScore;
use crate::eval::{Geometry, Moments, Window};
use crate::results::{Figures, Outcome, Provenance};

/// A run of three windows of 4, 4 and 2 scored tokens over the ids 0, 1, 2, …
fn run() -> (ResultRow, Record) {
    let ids: Vec<u32> = (0..15).collect();
    let scores: Vec<WindowScore> = [(0, 5), (5, 5), (10, 3)]
        .into_iter()
        .enumerate()
        .map(|(index, (start, len))| {
            let window = Window {
                index,
                start,
                len,
                first_target: 1,
            };
            let tokens = window.targets().map(|at| TokenScore {
                nll: 0.1 + 0.37 * at as f64,
                rank: at as u32 % 3,
                top_id: at as u32 / 2,
                top_p: 0.25,
                entropy: 1.5,
            });
            WindowScore {
                window,
                tokens: tokens.collect(),
            }
        })
        .collect();
    let moments: Moments = scores.iter().flat_map(WindowScore::nll).collect();
    let windows: Vec<WindowRow> = scores
        .iter()
        .map(|s| WindowRow {
            window: s.window.index,
            scored: s.tokens.len(),
            nll_sum: s.nll_sum(),
            target_bytes: 0,
        })
        .collect();
    let row = ResultRow {
        key: "m/é\"sha256\":\"x/64".to_owned(),
        provenance: Provenance {
            model: "m".into(),
            model_sha256: "a".repeat(64),
            model_type: "F32".into(),
            size: Default::default(),
            architecture: "llama".into(),
            corpus: "c".into(),
            corpus_sha256: "0".repeat(64),
            tokens: Some(15),
            tokens_sha256: "c".repeat(64),
            geometry: Geometry::sliding_window(5, Some(5), Some(1)),
            bos: Some(false),
            parse_special: false,
            windows: Some(3),
            scored_tokens: Some(10),
            placement: "cpu".into(),
            layer_placement: "cpu[0,2)".into(),
            numerics: "exact".into(),
            engine: "pplx 0.1.0".into(),
        },
        outcome: Outcome::Ok(Figures::new(&moments, &windows).unwrap()),
        ref_note: String::new(),
        note: String::new(),
    };
    let piece = |id| match id {
        3 => b"\xc3".to_vec(),
        4 => b"\xa9\n".to_vec(),
        7 => Vec::new(),
        id => format!("<{id}>").into_bytes(),
    };
    let record = Record::new(&row, &scores, &ids, piece);
    (row, record)
}

#[test]
fn what_is_read_is_what_was_written() {
    let (row, record) = run();
    let directory = tempfile::tempdir().unwrap();
    let records = RecordFolder::beside(&directory.path().join("t.csv"));
    assert_eq!(records.load(&row).unwrap(), None);
    records.save(&row.key, &record).unwrap();
    assert_eq!(records.load(&row).unwrap().unwrap(), record);
    let path = records.path(&row.key);
    assert!(path.starts_with(directory.path().join(".records/t")));
    let first = std::fs::read(&path).unwrap();
    record.write(&path).unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), first);

    let t = record.tokens();
    assert_eq!(t.target, [1, 2, 3, 4, 6, 7, 8, 9, 11, 12]);
    // The f32 nearest to the f64 that the row is made of.
    assert_eq!(t.nll[9], (0.1 + 0.37 * 12.0) as f32);
    let spans: Vec<_> = record
        .spans()
        .map(|(w, s)| (w.window, w.first_target, s))
        .collect();
    assert_eq!(spans, [(0, 1, 0..4), (1, 6, 4..8), (2, 11, 8..10)]);
    // Ids that occur as a target or at the top, and no others.
    assert_eq!(
        (record.piece(0), record.piece(5)),
        (Some(&b"<0>"[..]), Some(&b"<5>"[..]))
    );
    assert_eq!((record.piece(7), record.piece(10)), (Some(&b""[..]), None));
}

#[test]
fn excerpts_stay_in_their_window_and_on_their_line() {
    let (_, record) = run();
    let excerpt = record.excerpt(2, 0..4);
    let part = |before: &str, token: &str, after: &str| Excerpt {
        before: before.into(),
        token: token.into(),
        after: after.into(),
    };
    // Half a character each.
    assert_eq!(excerpt, part("<1><2>", "\u{fffd}", "\u{fffd}⏎"));
    assert_eq!(record.excerpt(4, 4..8), part("", "<6>", "<8><9>"));
    assert_eq!(record.piece_text(7), "<id 7>");
}

#[test]
fn the_record_of_another_run_is_refused() {
    let (row, record) = run();
    assert_eq!(record.check(&row), Ok(()));
    type Edit = fn(&mut ResultRow);
    let edits: [(Edit, &str); 4] = [
        (
            |r| r.provenance.tokens_sha256 = "d".repeat(64),
            "its tokens_sha256 is ccc",
        ),
        (
            |r| r.provenance.numerics = "q8".into(),
            "its numerics is exact, the row's q8",
        ),
        (|r| r.key = "other".into(), "its key is m/é"),
        (
            |r| {
                let Outcome::Ok(f) = &mut r.outcome else {
                    return;
                };
                f.mean_nll = f.mean_nll.next_up();
            },
            "its mean_nll is",
        ),
    ];
    let directory = tempfile::tempdir().unwrap();
    let records = RecordFolder::beside(&directory.path().join("t.csv"));
    for (edit, problem) in edits {
        let mut other = row.clone();
        edit(&mut other);
        records.save(&other.key, &record).unwrap();
        let error = records.load(&other).unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
        assert!(error.contains("belongs to another run"), "{error}");
    }
}

/// As where two results directories share a linked `.records`.
#[test]
fn only_the_record_of_a_row_goes_with_it() {
    let (row, record) = run();
    let directory = tempfile::tempdir().unwrap();
    let records = RecordFolder::beside(&directory.path().join("t.csv"));
    records.remove(&row).unwrap();
    for key in ["a/b", &row.key] {
        records.save(key, &record).unwrap();
    }
    let mut other = row.clone();
    other.provenance.model_sha256 = "another".to_owned();
    records.remove(&other).unwrap();
    assert!(records.path(&row.key).exists());
    records.remove(&row).unwrap();
    assert!(!records.path(&row.key).exists() && records.path("a/b").exists());
    std::fs::write(records.path(&row.key), "mine").unwrap();
    records.remove(&row).unwrap();
    assert!(records.path(&row.key).exists());
}

#[test]
fn other_formats_are_named() {
    let (_, record) = run();
    let text = |from: &[u8]| Record::from_bytes(from).unwrap_err();
    let bytes = record.to_bytes();
    let mut newer = bytes.clone();
    let at = newer
        .windows(13)
        .position(|w| w == b"pplx record 1")
        .unwrap();
    newer[at + 12] = b'2';
    assert_eq!(
        text(&newer),
        "its format is 'pplx record 2', this build reads 'pplx record 1'"
    );
    assert!(text(b"GGUF").starts_with("is not a record: "));
    assert!(text(&bytes[..bytes.len() - 1]).starts_with("is not a record: "));
}

/// A file with the right checksum and wrong contents.
fn forged(edit: impl Fn(&mut Record)) -> Result<Record, String> {
    let (_, mut record) = run();
    edit(&mut record);
    Record::from_bytes(&record.to_bytes())
}

#[test]
fn columns_that_do_not_fit_are_refused() {
    type Edit = fn(&mut Record);
    let edits: [(Edit, &str); 7] = [
        (|r| r.tokens.rank.truncate(9), "its tokens differ in length"),
        (
            |r| r.windows[1].scored += 1,
            "its windows count 11 tokens, its columns 10",
        ),
        (|r| r.tokens.nll[2] += 0.01, "the NLLs of window 0 sum to"),
        (
            |r| r.windows[2].nll_sum = f64::NAN,
            "the NLLs of window 2 sum to",
        ),
        (|r| r.tokens.top_p[0] = f32::NAN, "not finite"),
        (|r| r.pieces.ends[3] = 1000, "not in order"),
        (|r| r.pieces.ids.swap(0, 1), "not in order"),
    ];
    for (edit, problem) in edits {
        let error = forged(edit).unwrap_err();
        assert!(error.contains(problem), "{error}");
    }
    forged(|_| ()).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn not_one_byte_may_change(at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let mut bytes = run().1.to_bytes();
        let at = at.index(bytes.len());
        bytes[at] ^= 1u8 << bit;
        prop_assert!(Record::from_bytes(&bytes).is_err());
    }

    #[test]
    fn any_bytes_are_an_error(bytes in prop::collection::vec(any::<u8>(), 0..200), len in 0u64..300) {
        prop_assert!(Record::from_bytes(&bytes).is_err());
        let mut with_len = len.to_le_bytes().to_vec();
        with_len.push(b'{');
        with_len.extend(&bytes);
        prop_assert!(Record::from_bytes(&with_len).is_err());
    }

    /// Whatever the columns hold: no panic on reading, nor on using what was read.
    #[test]
    fn any_columns(
        u32s in prop::collection::vec(prop::collection::vec(0u32..20, 0..6), 5),
        sums in prop::collection::vec(any::<f64>(), 0..4),
        text in prop::collection::vec(any::<u8>(), 0..9),
        scored in 0usize..8,
    ) {
        let result = forged(|r| {
            let (t, p) = (&mut r.tokens, &mut r.pieces);
            t.target.clone_from(&u32s[0]);
            t.rank.clone_from(&u32s[1]);
            t.top_id.clone_from(&u32s[2]);
            p.ids.clone_from(&u32s[3]);
            p.ends.clone_from(&u32s[4]);
            p.text.clone_from(&text);
            r.windows[0].scored = scored;
            for (w, sum) in r.windows.iter_mut().zip(&sums) {
                w.nll_sum = *sum;
            }
        });
        if let Ok(record) = result {
            for (_, span) in record.spans() {
                for at in span.clone() {
                    record.excerpt(at, span.clone());
                }
            }
            assert!((0..20).all(|id| record.piece(id).is_none_or(|p| p.len() < 9)));
        }
    }
}
