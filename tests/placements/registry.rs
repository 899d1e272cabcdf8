//! A backend that the crate has not heard of: what a new device needs is the trait.

use std::path::Path;
use std::sync::Arc;

use pplx::backend::cpu::CpuModel;
use pplx::backend::{
    Backend, BackendError, Device, Footprint, FoundDevice, LayerWindowModel, Numerics, OpenOptions,
    Partition, Placement, Share,
};
use pplx::eval::{Geometry, Limits};
use pplx::experiment::PlacementRequest;
use pplx::model::Model;
use pplx::plan::{Machine, Resolution, Subject, Unavailable};
use pplx::run::{Control, LoadedModel, MeasureError, Measurement, Settings, measure};
use pplx::tokenizer::Options;

use crate::support::bits;
use crate::support::tiny::{Tiny, ids};

const TOY: Device = Device::new(&Toy);

/// The CPU's layers under another name.
struct Toy;

impl Backend for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }

    fn title(&self) -> &'static str {
        "Toy"
    }

    fn layers_key(&self) -> &'static str {
        "toy_layers"
    }

    fn numerics(&self) -> &'static [Numerics] {
        &[Numerics::Exact]
    }

    fn probe(&self) -> Result<Arc<dyn FoundDevice>, BackendError> {
        Ok(Arc::new(Found {
            free_bytes: 1 << 30,
        }))
    }

    fn batch_windows(&self, _: usize) -> Option<usize> {
        Some(2)
    }

    fn open(
        &self,
        model: Arc<Model>,
        options: &OpenOptions,
    ) -> Result<Box<dyn LayerWindowModel>, BackendError> {
        let cpu = CpuModel::new(model, options.n_threads)?;
        Ok(Box::new(cpu.with_numerics(options.numerics)?))
    }

    fn examine(&self, out: &mut String, _: Option<&Path>) -> Result<(), BackendError> {
        *out += "toy      here\n";
        Ok(())
    }
}

/// A toy with so much memory, of which a layer takes 100 bytes.
#[derive(Debug)]
struct Found {
    free_bytes: u64,
}

impl FoundDevice for Found {
    fn name(&self) -> &str {
        "a toy"
    }

    fn free_bytes(&self) -> u64 {
        self.free_bytes
    }

    fn footprint(
        &self,
        _: &Model,
        share: &Share,
        _: Numerics,
        _: usize,
    ) -> Result<Footprint, BackendError> {
        let layers = |pass: &Vec<_>| pass.iter().map(ExactSizeIterator::len).sum::<usize>();
        let weights = share.passes.iter().map(layers).max().unwrap_or(0);
        Ok(Footprint {
            weights: 100 * weights as u64,
            ..Footprint::default()
        })
    }
}

fn resolve(free_bytes: u64, numerics: Numerics) -> Result<Resolution, Unavailable> {
    let model = Tiny::gemma3().model().unwrap();
    let machine = Machine::with(TOY, Ok(Arc::new(Found { free_bytes })));
    let subject = Subject {
        model: Some(&model),
        n_ctx: 32,
        numerics,
    };
    Resolution::new(PlacementRequest::Auto, &machine, subject)
}

#[test]
fn the_planner_takes_any_device() {
    let n_layer = Tiny::gemma3().model().unwrap().n_layer();
    let whole = resolve(1 << 20, Numerics::Exact).unwrap();
    assert_eq!(whole.placement, Placement::Whole(TOY));
    assert_eq!(whole.gpu.as_deref(), Some("a toy"));
    let cycle = resolve(110 * (n_layer as u64 - 1), Numerics::Exact).unwrap();
    let Placement::Cycle { device, .. } = cycle.placement else {
        panic!("{cycle:?}");
    };
    assert_eq!(device, TOY);
    let none = resolve(50, Numerics::Exact).unwrap();
    assert_eq!(none.placement, Placement::CPU);
    assert!(none.reason.unwrap().starts_with("on a toy it needs"));
    // What the toy cannot do is left to the CPU, or refused.
    let q8 = resolve(1 << 20, Numerics::Q8).unwrap();
    assert_eq!(q8.placement, Placement::CPU);
    assert!(resolve(1 << 20, Numerics::Bf16).is_err());
}

#[test]
fn keys_name_the_device() {
    let offload = |first| Placement::Offload {
        device: TOY,
        count: 2,
        first,
    };
    let cycle = Placement::Cycle {
        device: TOY,
        layers_per_window: 2,
    };
    let names = [Placement::Whole(TOY), offload(0), offload(1), cycle].map(|p| p.to_string());
    assert_eq!(
        names,
        [
            "toy",
            "toy_layers=2",
            "toy_layers=2+1",
            "toy_layers=2+cycle"
        ]
    );
    let partition: Partition = offload(1).partition(4);
    assert_eq!(partition.to_string(), "cpu[0,1)+toy[1,3)+cpu[3,4)");
}

#[test]
fn runs_open_any_device() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("m.gguf");
    Tiny::gemma3().write(&path);
    let tokens = ids(200);
    let measured = |placement, numerics| -> Result<Measurement, MeasureError> {
        let loaded = LoadedModel::open(&path, &Options::default(), 1)
            .and_then(|loaded| loaded.with_numerics(numerics))
            .unwrap_or_else(|e| panic!("{e}"));
        let settings = Settings {
            geometry: Geometry::llama_cpp(32),
            limits: Limits::default(),
            bos: None,
            batch: None,
        };
        let control = Control::default();
        loaded.placed(placement, &control, |model| {
            measure(
                model,
                loaded.text(&tokens),
                &settings,
                &control,
                &mut |_| (),
            )
        })
    };
    let score = |placement| bits(&measured(placement, Numerics::Exact).unwrap().scores);
    let want = score(Placement::CPU);
    for placement in [
        Placement::Whole(TOY),
        Placement::Cycle {
            device: TOY,
            layers_per_window: 1,
        },
        Placement::Offload {
            device: TOY,
            count: 1,
            first: 1,
        },
    ] {
        assert!(score(placement) == want, "{placement}");
    }
    let error = measured(Placement::Whole(TOY), Numerics::Q8).unwrap_err();
    assert_eq!(error.to_string(), "numerics 'q8' is not for layers on toy");
}
