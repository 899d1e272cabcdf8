//! Products with 16-bit inputs.

use pplx::backend::cuda::{CUDA, Precision};
use pplx::backend::{CPU, Partition};

use crate::cases;
use crate::cuda_standin::standin;
use crate::harness::{Both, Text, difference};

/// f16 has 11 significant bits, bf16 8: errors differ by a factor of about 8, and
/// neither is that of f32.
#[test]
fn narrow_inputs_cost_what_their_bits_say() {
    let Some(_standin) = standin() else { return };
    let tokens = cases::tokens();
    for name in ["llama", "qwen3moe"] {
        let tiny = (cases::by_name(name).build)();
        let text = Text {
            tokens: &tokens,
            geometry: cases::GEOMETRY,
            bos: cases::bos(&tiny),
            batch: 2,
        };
        let error = |precision| {
            let both = Both::new(tiny.model().unwrap(), precision).unwrap();
            let on = |device| {
                let partition = Partition::whole(device, both.model.n_layer());
                text.score(&both, partition).unwrap()
            };
            difference(&on(CPU), &on(CUDA))
        };
        let [f32, f16, bf16] = [Precision::F32, Precision::F16, Precision::Bf16].map(error);
        println!("{name}: f32 {f32:.1e}, f16 {f16:.1e}, bf16 {bf16:.1e}");
        assert!(f32 < 1e-5 && f16 > 1e-5 && bf16 > 2.0 * f16 && bf16 < 0.2);
    }
}
