//! Changes of the arithmetic that should not matter, to see how much they do.

/// The order in which the terms of a product are summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SumOrder {
    /// From the first term to the last.
    #[default]
    Ascending,
    /// From the last term to the first.
    Descending,
}

/// How values are stored between two operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Storage {
    /// As it is computed.
    #[default]
    F32,
    /// Rounded to the nearest f16, ties to even; products and sums stay in f32.
    F16,
}

/// What is different from the arithmetic that a backend promises; by default
/// nothing. The same variation yields the same bits for any threads, any batch
/// and any instruction set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Variation {
    /// Of f32 products: with weights, of queries with keys, of probabilities with
    /// values.
    pub order: SumOrder,
    /// Keys, with their position, and values: what a KV cache holds.
    pub kv: Storage,
    /// Queries before they are scaled, and the numerators of the softmax.
    pub attention: Storage,
    /// Moves every input of a layer to one of its two neighbours in f32, by a hash
    /// of this seed, the layer, the position and the column.
    pub jitter: Option<u64>,
}
