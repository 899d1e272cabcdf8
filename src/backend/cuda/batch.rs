//! The rows of a batch of sequences: where each sequence lies, and what depends
//! on positions alone.

use super::error::CudaError;
use super::ops::{Queue, int};
use super::workspace::{Buffer, Scope};
use crate::model::{Rope, Temperature};

/// Queries of one block of the attention kernel.
const QUERIES: usize = 16;

/// Sequences on the device, row after row.
pub(super) struct Batch<'s> {
    pub n_rows: usize,
    pub n_sequences: usize,
    pub longest: usize,
    /// Each row's position in its sequence.
    pub positions: Buffer<'s, i32>,
    /// First row and length of each sequence.
    pub spans: Buffer<'s, i32>,
    /// First row and length of a sequence and first query, for each block of
    /// queries.
    pub tiles: Buffer<'s, i32>,
    ropes: Vec<(Rope, [Buffer<'s>; 2])>,
    temperatures: Vec<(Temperature, Buffer<'s>)>,
}

impl<'s> Batch<'s> {
    pub fn new(q: &Queue, scope: &'s Scope, lens: &[usize]) -> Result<Self, CudaError> {
        let (mut positions, mut spans, mut tiles) = (Vec::new(), Vec::new(), Vec::new());
        let mut start = 0;
        for &len in lens {
            positions.extend(0..int(len));
            spans.extend([start, int(len)]);
            tiles.extend(
                (0..len)
                    .step_by(QUERIES)
                    .flat_map(|first| [start, int(len), int(first)]),
            );
            start += int(len);
        }
        let put = |values: &[i32]| {
            let buffer = scope.buffer(values.len());
            q.upload(buffer, values).map(|()| buffer)
        };
        Ok(Self {
            n_rows: positions.len(),
            n_sequences: lens.len(),
            longest: lens.iter().copied().max().unwrap_or(0),
            positions: put(&positions)?,
            spans: put(&spans)?,
            tiles: put(&tiles)?,
            ropes: Vec::new(),
            temperatures: Vec::new(),
        })
    }

    /// Makes sure of the table of `rope` at context `n_ctx`.
    pub fn add_rope(
        &mut self,
        q: &Queue,
        scope: &'s Scope,
        rope: &Rope,
        n_ctx: usize,
    ) -> Result<(), CudaError> {
        if self.ropes.iter().any(|(r, _)| r == rope) {
            return Ok(());
        }
        let n = self.longest * rope.n_pairs();
        let tables = [scope.buffer(n), scope.buffer(n)];
        if q.gpu.is_some() {
            let (cosines, sines) = rope.table(self.longest, n_ctx);
            q.upload(tables[0], &cosines)?;
            q.upload(tables[1], &sines)?;
        }
        self.ropes.push((rope.clone(), tables));
        Ok(())
    }

    /// Makes sure of the factors of `temperature`.
    pub fn add_temperature(
        &mut self,
        q: &Queue,
        scope: &'s Scope,
        temperature: Temperature,
    ) -> Result<(), CudaError> {
        if self.temperatures.iter().any(|(t, _)| *t == temperature) {
            return Ok(());
        }
        let factors: Vec<f32> = (0..self.longest).map(|p| temperature.at(p)).collect();
        let buffer = scope.buffer(factors.len());
        q.upload(buffer, &factors)?;
        self.temperatures.push((temperature, buffer));
        Ok(())
    }

    /// Cosines and sines of `rope`.
    pub fn rope(&self, rope: &Rope) -> [Buffer<'s>; 2] {
        let found = self.ropes.iter().find(|(r, _)| r == rope);
        found.map_or([Buffer::at(0, 0); 2], |(_, tables)| *tables)
    }

    /// The factors of `temperature` by position.
    pub fn temperature(&self, temperature: Temperature) -> Buffer<'s> {
        let found = self.temperatures.iter().find(|(t, _)| *t == temperature);
        found.map_or(Buffer::at(0, 0), |(_, factors)| *factors)
    }
}
