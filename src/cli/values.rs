//! Values of the command line: numbers, each with its range, and names.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};

use crate::backend::{self, Device, Numerics};

/// More threads than any machine has cores: a slip of the hand.
const MAX_THREADS: usize = 4096;

/// A count of at least 1.
pub fn count(text: &str) -> Result<usize, String> {
    within(text, 1, usize::MAX)
}

/// A number of windows; llama-perplexity's -1 is to leave it out.
pub fn windows(text: &str) -> Result<usize, String> {
    let none = text.trim() == "0" || text.trim_start().starts_with('-');
    match none {
        true => Err("must be at least 1; leave the option out for all windows".to_owned()),
        false => count(text),
    }
}

/// A context: a token, and one that it predicts.
pub fn context(text: &str) -> Result<usize, String> {
    within(text, 2, usize::MAX)
}

/// Worker threads; 0 stands for all cores.
pub fn threads(text: &str) -> Result<usize, String> {
    within(text, 0, MAX_THREADS)
}

/// A device of this build.
pub fn device() -> impl TypedValueParser<Value = Device> {
    let names = backend::devices().map(|device| PossibleValue::new(device.name()));
    PossibleValuesParser::new(names).try_map(|name| {
        let found = backend::by_name(&name);
        found.ok_or_else(|| format!("there is no device '{name}'"))
    })
}

/// The arithmetic of products.
pub fn numerics() -> impl TypedValueParser<Value = Numerics> {
    let names = Numerics::ALL.map(|n| PossibleValue::new(n.name()).help(n.summary()));
    PossibleValuesParser::new(names).try_map(|name| {
        let found = Numerics::by_name(&name);
        found.ok_or_else(|| format!("there are no numerics '{name}'"))
    })
}

fn within(text: &str, least: usize, most: usize) -> Result<usize, String> {
    match text.parse() {
        Ok(n) if n < least => Err(format!("must be at least {least}")),
        Ok(n) if n > most => Err(format!("must be at most {most}")),
        Ok(n) => Ok(n),
        Err(_) => Err("is not a whole number".to_owned()),
    }
}
