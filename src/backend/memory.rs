//! What a run takes of a device's memory, and whether it is there.

use std::fmt;
use std::ops::Range;

/// The part of a partition that is on one device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Its layer windows, for each pass over the corpus.
    pub passes: Vec<Vec<Range<usize>>>,
    /// Whether the output head is there.
    pub head: bool,
}

/// Device memory of a run in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Footprint {
    /// The weights of the layer windows that are on the device together, as the
    /// file has them.
    pub weights: u64,
    /// Those of the next layer window of a cycle, which comes while the current
    /// one computes; it waits where there is no room.
    pub next: u64,
    /// The activations of a batch, a tile of decoded weights included.
    pub activations: u64,
    /// The output head's weights.
    pub head: u64,
    /// Codebooks and cuBLAS's workspace.
    pub fixed: u64,
}

impl Footprint {
    /// What a run takes at least: a cycle that waits for the next layer window.
    pub fn least(&self) -> u64 {
        self.weights + self.activations + self.head + self.fixed
    }

    /// What a run takes at most.
    pub fn most(&self) -> u64 {
        self.least() + self.next
    }
}

/// A footprint beside what a device has free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// What a run takes.
    pub footprint: Footprint,
    /// Bytes that are free.
    pub free: u64,
}

impl Budget {
    /// What is left alone: the driver rounds allocations up, and others use the
    /// device too.
    fn reserve(&self) -> u64 {
        self.free / 16
    }

    /// Whether the least that a run takes fits.
    pub fn holds(&self) -> bool {
        self.footprint.least() <= self.free - self.reserve()
    }

    /// Whether there is room for a cycle's next layer window as well.
    pub fn holds_next(&self) -> bool {
        self.footprint.most() <= self.free - self.reserve()
    }
}

/// To be read after 'it'.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let p = &self.footprint;
        write!(
            f,
            "needs {} of device memory (weights {}, head {}, activations {}, other {}), {} are \
             free and {} of them kept in reserve",
            mib(p.least()),
            mib(p.weights),
            mib(p.head),
            mib(p.activations),
            mib(p.fixed),
            mib(self.free),
            mib(self.reserve())
        )
    }
}

/// Bytes as people read them.
pub(crate) fn mib(bytes: u64) -> String {
    const MIB: f64 = 1024.0 * 1024.0;
    let mib = bytes as f64 / MIB;
    match mib {
        m if m >= 1024.0 => format!("{:.2} GiB", m / 1024.0),
        m => format!("{m:.1} MiB"),
    }
}
