//! Numbers of the command line, each with its range.

use clap::builder::RangedU64ValueParser;

/// More threads than any machine has cores: a slip of the hand.
const MAX_THREADS: u64 = 4096;

/// A count of at least 1.
pub fn count() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(1..)
}

/// A context: a token, and one that it predicts.
pub fn context() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(2..)
}

/// Worker threads; 0 stands for all cores.
pub fn threads() -> RangedU64ValueParser<usize> {
    RangedU64ValueParser::new().range(0..=MAX_THREADS)
}
