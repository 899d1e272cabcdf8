//! Device memory for activations: one allocation, handed out in scopes.
//!
//! A workspace without an allocation hands out addresses that mean nothing and
//! only finds the size: layers are walked through it before they are run, so that
//! what is planned is what is used.

use std::cell::Cell;
use std::marker::PhantomData;

/// Alignment of everything on the device, in bytes.
pub(super) const ALIGN: u64 = 256;

pub(super) fn align(bytes: u64) -> u64 {
    bytes.next_multiple_of(ALIGN)
}

pub(super) struct Workspace {
    base: u64,
    size: u64,
    used: Cell<u64>,
    peak: Cell<u64>,
    depth: Cell<u32>,
}

/// Buffers from a scope live as long as it does; the innermost scope alone hands
/// them out.
pub(super) struct Scope<'w> {
    workspace: &'w Workspace,
    start: u64,
    depth: u32,
}

/// `len` values of a type on the device.
pub(super) struct Buffer<'s, T = f32> {
    pub address: u64,
    pub len: usize,
    scope: PhantomData<(&'s (), T)>,
}

impl<T> Clone for Buffer<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Buffer<'_, T> {}

impl Workspace {
    /// A workspace over `size` bytes of device memory from `base` on.
    pub fn new(base: u64, size: u64) -> Self {
        Self {
            base,
            size,
            used: Cell::new(0),
            peak: Cell::new(0),
            depth: Cell::new(0),
        }
    }

    /// A workspace that finds out how large one has to be.
    pub fn measuring() -> Self {
        Self::new(0, u64::MAX)
    }

    /// The most that was handed out at once, in bytes.
    pub fn peak(&self) -> u64 {
        self.peak.get()
    }

    pub fn scope(&self) -> Scope<'_> {
        self.depth.set(self.depth.get() + 1);
        Scope {
            workspace: self,
            start: self.used.get(),
            depth: self.depth.get(),
        }
    }
}

impl Scope<'_> {
    pub fn scope(&self) -> Scope<'_> {
        self.workspace.scope()
    }

    /// Room for `len` values.
    pub fn buffer<T>(&self, len: usize) -> Buffer<'_, T> {
        let w = self.workspace;
        assert!(w.depth.get() == self.depth, "an inner scope is open");
        let start = w.used.get();
        w.used.set(start + align((len * size_of::<T>()) as u64));
        assert!(w.used.get() <= w.size, "more than was measured");
        w.peak.set(w.peak.get().max(w.used.get()));
        Buffer {
            address: w.base + start,
            len,
            scope: PhantomData,
        }
    }
}

impl Drop for Scope<'_> {
    fn drop(&mut self) {
        self.workspace.used.set(self.start);
        self.workspace.depth.set(self.depth - 1);
    }
}

impl<'s, T> Buffer<'s, T> {
    /// `len` values on the device from `address` on, which live as long as
    /// whatever the caller has borrowed.
    pub fn at(address: u64, len: usize) -> Self {
        Self {
            address,
            len,
            scope: PhantomData,
        }
    }

    /// The values `[from, from + len)`.
    pub fn part(self, from: usize, len: usize) -> Buffer<'s, T> {
        assert!(from + len <= self.len, "a part beyond its buffer");
        Buffer::at(self.address + (from * size_of::<T>()) as u64, len)
    }
}
