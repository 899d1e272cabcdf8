//! How large a difference is that means nothing, and the bounds that are multiples of it.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use crate::results::noise::Calibration;
use crate::results::{CsvError, ResultRow, TablePaths};

/// Where a comparison takes its noise floors from.
#[derive(Clone, Debug, PartialEq)]
pub enum NoiseFloor {
    /// From nowhere, and why.
    Unknown(String),
    /// The same for every run, in nats.
    Fixed(f64),
    /// What `pplx noise` measured, run by run.
    Calibrated(Calibration),
}

impl NoiseFloor {
    /// The calibration beside the table at `table`, if there is one.
    ///
    /// # Errors
    /// A malformed file, with file and line.
    pub fn beside(table: &Path) -> Result<Self, CsvError> {
        let path = TablePaths::beside(table).noise;
        Ok(match Calibration::load_if_exists(&path)? {
            Some(calibration) => NoiseFloor::Calibrated(calibration),
            None => NoiseFloor::Unknown(format!(
                "no noise floor: there is no {}; 'pplx noise' writes it",
                path.display()
            )),
        })
    }

    /// [`Calibration::note`]
    pub fn note(&self) -> Option<&str> {
        match self {
            NoiseFloor::Calibrated(c) => c.note(),
            NoiseFloor::Unknown(_) | NoiseFloor::Fixed(_) => None,
        }
    }

    /// How large `|Δ ln PPL|` of a run may be and mean nothing, in nats.
    ///
    /// # Errors
    /// Why that is not known.
    pub fn of(&self, row: &ResultRow) -> Result<f64, String> {
        match self {
            NoiseFloor::Unknown(why) => Err(why.clone()),
            NoiseFloor::Fixed(nats) => Ok(*nats),
            NoiseFloor::Calibrated(c) => c.floor(row),
        }
    }
}

/// How large `|Δ ln PPL|` may be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum MaxDelta {
    /// So many nats.
    Nats(f64),
    /// So many noise floors.
    Noise(f64),
}

impl MaxDelta {
    /// Says what is wrong with a bound that is not a number of the right range.
    pub fn check(self) -> Result<(), String> {
        match self {
            MaxDelta::Nats(x) if x.is_finite() && x >= 0.0 => Ok(()),
            MaxDelta::Nats(x) => Err(format!("max_delta is {x}; it must be a number from 0")),
            MaxDelta::Noise(k) if k.is_finite() && k > 0.0 => Ok(()),
            MaxDelta::Noise(k) => Err(format!(
                "max_delta is noise*{k}; the factor must be above 0"
            )),
        }
    }
}

impl FromStr for MaxDelta {
    type Err = String;

    /// Reads `0.001` and `noise*3`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |digits: &str| digits.trim().parse::<f64>().ok();
        let factor = text.trim().strip_prefix("noise").map(str::trim_start);
        let bound = match factor.map(|f| f.strip_prefix('*')) {
            Some(factor) => factor.and_then(number).map(MaxDelta::Noise),
            None => number(text).map(MaxDelta::Nats),
        };
        let bound = bound.ok_or_else(|| {
            format!("'{text}' is not a bound: write a number of nats (0.001) or noise*3")
        })?;
        bound.check().map(|()| bound)
    }
}

impl fmt::Display for MaxDelta {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MaxDelta::Nats(x) => write!(f, "{x}"),
            MaxDelta::Noise(k) => write!(f, "noise*{k}"),
        }
    }
}

impl serde::Serialize for MaxDelta {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        match self {
            MaxDelta::Nats(x) => s.serialize_f64(*x),
            MaxDelta::Noise(_) => s.collect_str(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn bounds_read_back() {
        for (text, bound) in [
            ("0.001", MaxDelta::Nats(0.001)),
            ("0", MaxDelta::Nats(0.0)),
            ("noise*3", MaxDelta::Noise(3.0)),
            (" noise * 0.5 ", MaxDelta::Noise(0.5)),
        ] {
            assert_eq!(text.parse(), Ok(bound));
            assert_eq!(bound.to_string().parse(), Ok(bound));
        }
        for bad in [
            "",
            "noise",
            "noise*",
            "noise*0",
            "noise*-1",
            "noise*inf",
            "noise+3",
            "noisy*3",
            "-1",
            "NaN",
            "3*noise",
            "1e999",
        ] {
            assert!(bad.parse::<MaxDelta>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn bounds_never_panic(text in "\\PC{0,12}") {
            let _ = text.parse::<MaxDelta>();
        }
    }
}
