//! Where the time goes, by what is computed.

use std::time::{Duration, Instant};

/// What threads spend their time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Decoding and packing the weights of layers.
    Weights,
    /// Products of attention layers: queries, keys, values, output.
    Projections,
    /// Scores, softmax and sums of attention; RoPE and the heads' norms.
    Attention,
    /// Feed-forward networks and experts.
    Ffn,
    /// Recurrent layers and convolutions, with their products.
    Recurrence,
    /// The head, its weights included, and the log-softmax.
    Head,
    /// Norms and residual additions of layers, checks for finite values.
    Rest,
}

impl Part {
    /// All, in the order of a forward pass.
    pub const ALL: [Part; 7] = [
        Part::Weights,
        Part::Projections,
        Part::Attention,
        Part::Ffn,
        Part::Recurrence,
        Part::Head,
        Part::Rest,
    ];

    /// As tables of times have it.
    pub fn name(self) -> &'static str {
        match self {
            Part::Weights => "weights",
            Part::Projections => "projections",
            Part::Attention => "attention",
            Part::Ffn => "FFN",
            Part::Recurrence => "recurrence",
            Part::Head => "head",
            Part::Rest => "rest",
        }
    }
}

/// Time spent on each part, summed over threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times([Duration; Part::ALL.len()]);

impl Times {
    /// The time that one part took.
    pub fn of(&self, part: Part) -> Duration {
        self.0[part as usize]
    }

    /// The time of all parts.
    pub fn total(&self) -> Duration {
        self.0.iter().sum()
    }

    pub(super) fn add(&mut self, part: Part, time: Duration, threads: u32) {
        self.0[part as usize] += time * threads;
    }

    /// Adds times of as many threads as worked together.
    pub(super) fn merge(&mut self, other: &Times, threads: u32) {
        for (sum, time) in self.0.iter_mut().zip(other.0) {
            *sum += time * threads;
        }
    }
}

/// Splits a thread's time into parts: each lap lasts from the one before.
#[derive(Default)]
pub(super) struct Clock {
    last: Option<Instant>,
    times: Times,
}

impl Clock {
    pub fn start(&mut self) {
        self.last = Some(Instant::now());
    }

    /// Ends a lap, which was spent on `part`.
    pub fn lap(&mut self, part: Part) {
        let now = Instant::now();
        if let Some(last) = self.last.replace(now) {
            self.times.add(part, now - last, 1);
        }
    }

    /// The times so far; counting begins anew.
    pub fn take(&mut self) -> Times {
        self.last = None;
        std::mem::take(&mut self.times)
    }
}
