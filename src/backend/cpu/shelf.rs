//! Memory of decoded weights and of a batch's rows, kept from layer to layer and from
//! batch to batch: its pages are faulted in once.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Something whose memory can be used again.
pub(super) trait Reusable: Default {
    /// How many elements it could hold without more memory.
    fn capacity(&self) -> usize;
}

impl Reusable for Vec<f32> {
    fn capacity(&self) -> usize {
        self.capacity()
    }
}

/// Holds no more than what has been in use at once.
#[derive(Default)]
pub(super) struct Shelf<T>(Mutex<Stock<T>>);

#[derive(Default)]
struct Stock<T> {
    unused: Vec<T>,
    /// Elements in use, and the most that have been.
    used: usize,
    most: usize,
}

impl<T: Reusable> Shelf<T> {
    fn stock(&self) -> MutexGuard<'_, Stock<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The smallest that has room for `n` elements and not for more than twice as
    /// many, or something empty.
    pub fn take(&self, n: usize) -> Shelved<'_, T> {
        let mut stock = self.stock();
        let sizes = stock.unused.iter().map(Reusable::capacity).enumerate();
        let fits = sizes.filter(|(_, size)| (n..=2 * n).contains(size));
        let fitting = fits.min_by_key(|&(_, size)| size);
        let item = fitting.map_or_else(T::default, |(i, _)| stock.unused.swap_remove(i));
        let size = n.max(item.capacity());
        stock.used += size;
        stock.most = stock.most.max(stock.used);
        stock.drop_excess();
        Shelved {
            item,
            place: Some((self, size)),
        }
    }
}

impl<T: Reusable> Stock<T> {
    /// The largest go first.
    fn drop_excess(&mut self) {
        self.unused.sort_by_key(Reusable::capacity);
        let mut unused: usize = self.unused.iter().map(Reusable::capacity).sum();
        while self.used + unused > self.most
            && let Some(largest) = self.unused.pop()
        {
            unused -= largest.capacity();
        }
    }
}

/// Goes back to its shelf, if it is from one, when it is dropped.
pub(super) struct Shelved<'a, T: Reusable> {
    item: T,
    /// The shelf, and the size that it counts.
    place: Option<(&'a Shelf<T>, usize)>,
}

impl<T: Reusable> From<T> for Shelved<'_, T> {
    fn from(item: T) -> Self {
        Self { item, place: None }
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
        if let Some((shelf, size)) = self.place {
            let mut stock = shelf.stock();
            stock.used -= size;
            stock.unused.push(std::mem::take(&mut self.item));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes all of `sizes` at once and fills them; what the shelf holds afterwards.
    fn layer(shelf: &Shelf<Vec<f32>>, sizes: &[usize]) -> Vec<usize> {
        let take = |&n: &usize| {
            let mut item = shelf.take(n);
            item.resize(n, 0.0);
            item
        };
        drop(sizes.iter().map(take).collect::<Vec<_>>());
        let mut held: Vec<usize> = shelf.stock().unused.iter().map(Vec::capacity).collect();
        held.sort_unstable();
        held
    }

    #[test]
    fn a_layer_gets_the_memory_of_the_one_before_it() {
        let shelf = Shelf::<Vec<f32>>::default();
        let mut first = shelf.take(100);
        first.resize(100, 0.0);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(shelf.take(90).as_ptr(), address);
        // Too large, and too small.
        assert_eq!(shelf.take(49).capacity(), 0);
        assert_eq!(shelf.take(101).capacity(), 0);
    }

    #[test]
    fn a_shelf_holds_no_more_than_has_been_in_use_at_once() {
        let shelf = Shelf::default();
        assert_eq!(layer(&shelf, &[400, 100, 400]), [100, 400, 400]);
        assert_eq!(layer(&shelf, &[100, 400, 400]), [100, 400, 400]);
        // Other shapes, of the same size in all, take the others' place.
        assert_eq!(layer(&shelf, &[900]), [900]);
        assert_eq!(layer(&shelf, &[10, 20]), [10, 20]);
        assert_eq!(layer(&shelf, &[800]), [10, 20, 800]);
    }
}
