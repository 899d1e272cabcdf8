//! How much differences of runs scatter from window to window: what the power of
//! comparisons that are still to be made is told from.

use super::paired::paired;
use crate::results::{ResultRow, Tables, WindowRow};

/// The standard deviation of single tokens' differences, in nats, where nothing is
/// known of the runs: what activations in 8 bits do to SmolLM2-135M on WikiText-2.
/// They scatter independently within windows; `docs/methodology.md` has the figures.
pub const PRIOR_TOKEN_SD: f64 = 0.08;

/// What two runs whose scatter was measured differ in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Differ {
    /// They are the same run of two tables.
    Tables,
    /// The arithmetic alone.
    Numerics,
    /// The model alone.
    Model,
}

/// The scatter of the difference of two runs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scatter<'t> {
    /// What is compared with.
    pub a: &'t ResultRow,
    /// What is compared.
    pub b: &'t ResultRow,
    /// What differs.
    pub differ: Differ,
    /// Windows that both have.
    pub windows: usize,
    /// Standard deviation of the windows' mean differences, in nats a token.
    pub sd: f64,
}

/// The scatter of each run that both tables have with figures that differ.
pub fn between_tables<'t>(a: &'t Tables, b: &'t Tables) -> Vec<Scatter<'t>> {
    let pairs = a.rows().filter_map(|row| Some((row, b.get(&row.key)?)));
    let scatters = pairs.filter_map(|(x, y)| scatter((a, x), (b, y), Differ::Tables));
    scatters.collect()
}

/// The scatters of all pairs of runs of one table that differ in numerics alone or in
/// the model alone. Limits may differ too: the windows that both have count.
pub fn within_table(table: &Tables) -> Vec<Scatter<'_>> {
    let rows: Vec<&ResultRow> = table.rows().collect();
    let mut found = Vec::new();
    for (i, a) in rows.iter().enumerate() {
        for b in &rows[i + 1..] {
            let differ = differ(a, b);
            found.extend(differ.and_then(|differ| scatter((table, a), (table, b), differ)));
        }
    }
    found
}

fn differ(a: &ResultRow, b: &ResultRow) -> Option<Differ> {
    let (a, b) = (&a.provenance, &b.provenance);
    let same_text = (&a.corpus, &a.tokens_sha256) == (&b.corpus, &b.tokens_sha256)
        && (a.geometry, a.bos, &a.placement) == (b.geometry, b.bos, &b.placement);
    match (a.model == b.model, a.numerics == b.numerics) {
        (true, false) if same_text => Some(Differ::Numerics),
        (false, true) if same_text => Some(Differ::Model),
        _ => None,
    }
}

/// `None` where a side has no windows, or both have the same bits, which says nothing
/// of a change.
fn scatter<'t>(
    (in_a, a): (&'t Tables, &'t ResultRow),
    (in_b, b): (&'t Tables, &'t ResultRow),
    differ: Differ,
) -> Option<Scatter<'t>> {
    let (x, y) = (windows(in_a, a), windows(in_b, b));
    let n = x.len().min(y.len());
    let paired = paired(&x[..n], &y[..n]).ok()?;
    let sd = paired.se * (n as f64).sqrt();
    (sd > 0.0).then_some(Scatter {
        a,
        b,
        differ,
        windows: n,
        sd,
    })
}

/// The windows of a run, from its table or its record.
fn windows(tables: &Tables, row: &ResultRow) -> Vec<WindowRow> {
    match tables.windows(&row.key) {
        [] => match tables.paths().records.load(row) {
            Ok(Some(record)) => record.window_rows(),
            _ => Vec::new(),
        },
        windows => windows.to_vec(),
    }
}
