//! Memory of decoded weights and of a batch's rows, kept from layer to layer and from
//! batch to batch: its pages are faulted in once.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use super::gemm::Packed;
use super::q8::Panels;

/// A model's shelves.
#[derive(Default)]
pub(super) struct Shelves {
    pub f32: Shelf<Packed>,
    pub integers: Shelf<Panels>,
    /// Rows of hidden states.
    pub rows: Shelf<Vec<f32>>,
}

/// Something whose memory can be used again.
pub(super) trait Reusable: Default {
    /// How many elements it could hold without more memory.
    fn capacity(&self) -> usize;
}

impl Reusable for Packed {
    fn capacity(&self) -> usize {
        self.capacity()
    }
}

impl Reusable for Vec<f32> {
    fn capacity(&self) -> usize {
        self.capacity()
    }
}

impl Reusable for Panels {
    fn capacity(&self) -> usize {
        self.capacity()
    }
}

/// What nobody uses at the moment.
#[derive(Default)]
pub(super) struct Shelf<T>(Mutex<Vec<T>>);

impl<T: Reusable> Shelf<T> {
    /// The smallest that has room for `n` elements and not for twice as many, or
    /// something empty, and then the largest that is too small is dropped: a shelf
    /// holds no more than what has been in use at once.
    pub fn take(&self, n: usize) -> Shelved<'_, T> {
        let mut unused = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sizes = || unused.iter().map(Reusable::capacity).enumerate();
        let fits = sizes().filter(|(_, size)| (n..=2 * n).contains(size));
        let fitting = fits.min_by_key(|&(_, size)| size);
        let small = sizes().filter(|&(_, size)| size < n);
        let outgrown = small.max_by_key(|&(_, size)| size);
        let item = match (fitting, outgrown) {
            (Some((i, _)), _) => unused.swap_remove(i),
            (None, Some((i, _))) => {
                unused.swap_remove(i);
                T::default()
            }
            (None, None) => T::default(),
        };
        Shelved {
            item,
            shelf: Some(self),
        }
    }
}

/// Goes back to its shelf, if it is from one, when it is dropped.
pub(super) struct Shelved<'a, T: Reusable> {
    item: T,
    shelf: Option<&'a Shelf<T>>,
}

impl<T: Reusable> From<T> for Shelved<'_, T> {
    fn from(item: T) -> Self {
        Self { item, shelf: None }
    }
}

impl<T: Reusable> Deref for Shelved<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.item
    }
}

impl<T: Reusable> DerefMut for Shelved<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.item
    }
}

impl<T: Reusable> Drop for Shelved<'_, T> {
    fn drop(&mut self) {
        if let Some(shelf) = self.shelf {
            let mut unused = shelf.0.lock().unwrap_or_else(PoisonError::into_inner);
            unused.push(std::mem::take(&mut self.item));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sizes<T: Reusable>(shelf: &Shelf<T>) -> Vec<usize> {
        let unused = shelf.0.lock().unwrap();
        let mut sizes: Vec<usize> = unused.iter().map(Reusable::capacity).collect();
        sizes.sort_unstable();
        sizes
    }

    #[test]
    fn a_layer_gets_the_memory_of_the_one_before_it() {
        let shelf = Shelf::<Packed>::default();
        let layer = |shapes: &[(usize, usize)]| {
            let take = |&(n_in, n_out): &(usize, usize)| {
                let mut packed = shelf.take(n_in * n_out);
                packed.reset(n_in, n_out);
                packed
            };
            drop(shapes.iter().map(take).collect::<Vec<_>>());
            sizes(&shelf)
        };
        let first = layer(&[(64, 64), (64, 256), (256, 64)]);
        assert_eq!(first, [64 * 64, 64 * 256, 256 * 64]);
        assert_eq!(layer(&[(256, 64), (64, 64), (64, 256)]), first);
        // Something larger takes the place of what is too small for it; something
        // much smaller does not take what a later matrix will want.
        assert_eq!(layer(&[(64, 1024)]), [64 * 64, 64 * 256, 64 * 1024]);
        assert_eq!(layer(&[(4, 32)]), [4 * 32, 64 * 64, 64 * 256, 64 * 1024]);
    }
}
