//! How the layers of a model are cut into windows.

use std::fmt;
use std::ops::Range;

use super::device::Device;
use super::memory::Share;

/// A contiguous range of layers on one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LayerSpan {
    /// Where they are computed.
    pub device: Device,
    /// Which layers.
    pub layers: Range<usize>,
}

impl fmt::Display for LayerSpan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Range { start, end } = self.layers;
        write!(f, "{}[{start},{end})", self.device)
    }
}

/// Why spans are no partition of a model's layers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each message says it")]
pub enum PartitionError {
    #[error("no layer window holds the layers [{},{})", .0.start, .0.end)]
    Gap(Range<usize>),
    #[error("the layers [{},{}) are in more than one layer window", .0.start, .0.end)]
    Overlap(Range<usize>),
    #[error("the layer window {0} holds no layer")]
    Empty(LayerSpan),
    #[error("the layer window {span} goes beyond the model's {n_layer} layers")]
    Beyond { span: LayerSpan, n_layer: usize },
}

/// Layer windows that tile `[0, n_layer)`, in layer order.
///
/// They either run one after the other on every batch of corpus windows, or
/// cycle: each layer window in turn sees the whole corpus before the next one is
/// put on its device, and the hidden states at the cut are kept meanwhile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Partition {
    spans: Vec<LayerSpan>,
    cycle: bool,
}

impl Partition {
    /// # Errors
    /// Spans that do not tile `[0, n_layer)`, with the first gap or overlap.
    pub fn new(n_layer: usize, spans: Vec<LayerSpan>, cycle: bool) -> Result<Self, PartitionError> {
        let mut end = 0;
        for span in &spans {
            let layers = &span.layers;
            if layers.is_empty() {
                return Err(PartitionError::Empty(span.clone()));
            }
            if layers.start > end {
                return Err(PartitionError::Gap(end..layers.start));
            }
            if layers.start < end {
                return Err(PartitionError::Overlap(layers.start..end.min(layers.end)));
            }
            if layers.end > n_layer {
                let span = span.clone();
                return Err(PartitionError::Beyond { span, n_layer });
            }
            end = layers.end;
        }
        if end < n_layer {
            return Err(PartitionError::Gap(end..n_layer));
        }
        Ok(Self { spans, cycle })
    }

    /// All layers in one window.
    pub fn whole(device: Device, n_layer: usize) -> Self {
        let layers = 0..n_layer;
        Self {
            spans: vec![LayerSpan { device, layers }],
            cycle: false,
        }
    }

    /// A cycle of windows of `size` layers (at least 1); the last may be shorter.
    pub fn cycle(device: Device, n_layer: usize, size: usize) -> Self {
        let size = size.max(1);
        let spans = (0..n_layer).step_by(size).map(|start| LayerSpan {
            device,
            layers: start..start.saturating_add(size).min(n_layer),
        });
        Self {
            spans: spans.collect(),
            cycle: true,
        }
    }

    /// `layers` on `device` and all `others` on another, in one pass. Layers beyond
    /// the model's are left out.
    pub fn offload(n_layer: usize, layers: Range<usize>, device: Device, others: Device) -> Self {
        let (start, end) = (layers.start.min(n_layer), layers.end.min(n_layer));
        let cuts = [
            (others, 0..start),
            (device, start..end.max(start)),
            (others, end.max(start)..n_layer),
        ];
        let spans = cuts.into_iter().filter(|(_, layers)| !layers.is_empty());
        Self {
            spans: spans
                .map(|(device, layers)| LayerSpan { device, layers })
                .collect(),
            cycle: false,
        }
    }

    /// The spans, in the order of the layers.
    pub fn spans(&self) -> &[LayerSpan] {
        &self.spans
    }

    /// Layers in all.
    pub fn n_layer(&self) -> usize {
        self.spans.last().map_or(0, |s| s.layers.end)
    }

    /// The layer windows of each pass over the corpus: all in one pass, or one
    /// in each.
    pub fn passes(&self) -> Vec<&[LayerSpan]> {
        match self.cycle {
            true => self.spans.chunks(1).collect(),
            false => vec![&self.spans],
        }
    }

    /// Whether hidden states are kept between passes.
    pub fn keeps_states(&self) -> bool {
        self.cycle && self.spans.len() > 1
    }

    /// The devices that layer windows are on, each once.
    pub fn devices(&self) -> Vec<Device> {
        let mut devices = Vec::new();
        for span in &self.spans {
            if !devices.contains(&span.device) {
                devices.push(span.device);
            }
        }
        devices
    }

    /// What is on `device`; the head is where the last layer is.
    pub fn share(&self, device: Device) -> Share {
        let on_device = |pass: &[LayerSpan]| -> Vec<Range<usize>> {
            let spans = pass.iter().filter(|s| s.device == device);
            spans.map(|s| s.layers.clone()).collect()
        };
        Share {
            passes: self.passes().into_iter().map(on_device).collect(),
            head: self.spans.last().is_some_and(|s| s.device == device),
        }
    }

    /// Whether layer windows leave their device before the run ends.
    pub fn cycles(&self) -> bool {
        self.cycle
    }

    /// Whether all windows are on one device and as long as the first, but for a
    /// shorter last one.
    fn is_uniform(&self) -> bool {
        let Some((last, others)) = self.spans.split_last() else {
            return false;
        };
        let first = &self.spans[0];
        self.spans.iter().all(|s| s.device == first.device)
            && others.iter().all(|s| s.layers.len() == first.layers.len())
            && last.layers.len() <= first.layers.len()
    }
}

/// `cpu[0,30)`, `cuda[0,8)+cpu[8,30)`, `cycle cpu[0,5)+cpu[5,8)`. A cycle of more
/// than two windows that are as long as the first (the last may be shorter) is
/// written by its first and its last: `cycle cpu[0,5)..[25,30)`.
impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.cycle {
            f.write_str("cycle ")?;
            if let [first, _, .., last] = &self.spans[..]
                && self.spans.len() > 2
                && self.is_uniform()
            {
                return write!(f, "{first}..[{},{})", last.layers.start, last.layers.end);
            }
        }
        for (i, span) in self.spans.iter().enumerate() {
            let plus = if i > 0 { "+" } else { "" };
            write!(f, "{plus}{span}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::cpu::CPU;
    use crate::backend::cuda::CUDA;

    fn spans(cuts: &[(Device, usize, usize)]) -> Vec<LayerSpan> {
        let span = |&(device, start, end): &(Device, usize, usize)| LayerSpan {
            device,
            layers: start..end,
        };
        cuts.iter().map(span).collect()
    }

    #[test]
    fn what_does_not_tile_is_named() {
        for (cuts, expected) in [
            (
                &[(CPU, 0, 3), (CPU, 4, 8)][..],
                "no layer window holds the layers [3,4)",
            ),
            (&[(CPU, 1, 8)], "no layer window holds the layers [0,1)"),
            (&[(CPU, 0, 7)], "no layer window holds the layers [7,8)"),
            (&[], "no layer window holds the layers [0,8)"),
            (
                &[(CPU, 0, 5), (CPU, 3, 8)],
                "the layers [3,5) are in more than one layer window",
            ),
            (
                &[(CPU, 0, 8), (CPU, 3, 4)],
                "the layers [3,4) are in more than one layer window",
            ),
            (
                &[(CPU, 0, 4), (CPU, 4, 4), (CPU, 4, 8)],
                "the layer window cpu[4,4) holds no layer",
            ),
            (
                &[(CPU, 0, 9)],
                "the layer window cpu[0,9) goes beyond the model's 8 layers",
            ),
        ] {
            for cycle in [false, true] {
                let error = Partition::new(8, spans(cuts), cycle).unwrap_err();
                assert_eq!(error.to_string(), expected);
            }
        }
    }

    #[test]
    fn every_partition_has_a_text_of_its_own() {
        let new = |cuts: &[_], cycle| Partition::new(8, spans(cuts), cycle).unwrap();
        for (partition, expected) in [
            (Partition::whole(CPU, 8), "cpu[0,8)"),
            (
                new(&[(CUDA, 0, 3), (CPU, 3, 8)], false),
                "cuda[0,3)+cpu[3,8)",
            ),
            (Partition::offload(8, 0..3, CUDA, CPU), "cuda[0,3)+cpu[3,8)"),
            (
                Partition::offload(8, 3..5, CUDA, CPU),
                "cpu[0,3)+cuda[3,5)+cpu[5,8)",
            ),
            (
                Partition::offload(8, 3..99, CUDA, CPU),
                "cpu[0,3)+cuda[3,8)",
            ),
            (Partition::offload(8, 0..99, CUDA, CPU), "cuda[0,8)"),
            (Partition::cycle(CPU, 8, 1), "cycle cpu[0,1)..[7,8)"),
            (Partition::cycle(CPU, 8, 3), "cycle cpu[0,3)..[6,8)"),
            (Partition::cycle(CPU, 8, 4), "cycle cpu[0,4)+cpu[4,8)"),
            (Partition::cycle(CPU, 8, 99), "cycle cpu[0,8)"),
            (
                new(&[(CPU, 0, 3), (CPU, 3, 4), (CPU, 4, 8)], true),
                "cycle cpu[0,3)+cpu[3,4)+cpu[4,8)",
            ),
            (
                new(&[(CPU, 0, 2), (CPU, 2, 4), (CPU, 4, 8)], true),
                "cycle cpu[0,2)+cpu[2,4)+cpu[4,8)",
            ),
        ] {
            assert_eq!(partition.to_string(), expected);
            assert_eq!(
                Partition::new(8, partition.spans.clone(), partition.cycle),
                Ok(partition)
            );
        }
    }
}
