use pplx::backend::cpu::CpuModel;
use pplx::backend::cuda::CUDA;
use pplx::backend::{CPU, Device, LayerSpan, LayerWindowModel, Partition};
use pplx::eval::{Feed, Geometry, Limits, WindowPlan};
use proptest::prelude::*;

use super::probe::{Probe, score_on};
use crate::support::tiny::{self, BOS, Tiny};
use crate::support::{bits, cpu, ids, score_whole, shared};

const EVERYTHING: u64 = u64::MAX;

/// A tiny model with its three layers twice.
fn six_layers(mut tiny: Tiny) -> Tiny {
    let more: Vec<_> = (tiny.tensors.iter())
        .filter_map(|(name, dims, values)| {
            let rest = name.strip_prefix("blk.")?;
            let (layer, part) = rest.split_once('.')?;
            let layer: usize = layer.parse().ok()?;
            let turned = values.iter().rev().copied().collect();
            Some((format!("blk.{}.{part}", layer + 3), dims.clone(), turned))
        })
        .collect();
    tiny.tensors.extend(more);
    tiny.set("block_count", pplx::gguf::Value::U32(6))
}

fn cut_at(n_layer: usize, cuts: &[usize], devices: &[Device], cycle: bool) -> Partition {
    let mut start = 0;
    let ends = cuts.iter().copied().chain([n_layer]);
    let spans = ends.enumerate().map(|(i, end)| {
        let layers = start..end;
        start = end;
        let device = devices[i % devices.len()];
        LayerSpan { device, layers }
    });
    Partition::new(n_layer, spans.collect(), cycle).unwrap()
}

/// Every cut and every window size, in a cycle and batch by batch, with all
/// hidden states in memory and with none.
fn every_cut(name: &str, cpu: &CpuModel, tokens: &[u32], plan: &WindowPlan, feed: Feed) {
    let n = cpu.n_layer();
    let want = bits(&score_whole(cpu, tokens, plan, feed).unwrap());
    assert_eq!(want.len(), plan.scored());
    let mut partitions: Vec<Partition> =
        (1..=n).map(|size| Partition::cycle(CPU, n, size)).collect();
    for cut in 1..n {
        partitions.push(cut_at(n, &[cut], &[CPU], true));
        partitions.push(cut_at(n, &[cut], &[CUDA, CPU], false));
    }
    for partition in partitions {
        let streamed = cpu.streamed();
        for memory in [EVERYTHING, 0] {
            let ours = score_on(&streamed, partition.clone(), tokens, plan, feed, memory);
            assert!(bits(&ours) == want, "{name}: {partition}, {memory} bytes");
        }
    }
}

#[test]
fn tiny_models() {
    for tiny in [six_layers(Tiny::llama()), six_layers(Tiny::gemma3())] {
        let cpu = tiny.cpu(2);
        let tokens = tiny::ids(5 * 40 + 17);
        let geometry = Geometry::teacher_forced(40);
        let plan = WindowPlan::new(tokens.len(), geometry, Limits::default()).unwrap();
        let feed = Feed {
            bos: Some(BOS),
            batch: 2,
        };
        every_cut(tiny.architecture, &cpu, &tokens, &plan, feed);
    }
}

#[test]
fn architecture_suite() {
    let Some(root) = shared("arch") else { return };
    let tokens = ids(&root.join("ids.txt"));
    let supported = pplx::model::supported_architectures();
    let mut index = csv::Reader::from_path(root.join("INDEX.csv")).expect("an index");
    let mut cases = 0;
    for case in index.records() {
        let case = case.expect("a row");
        let (name, architecture) = (&case[0], &case[1]);
        if !supported.contains(&architecture) || name == "gpt_oss_mxfp4" {
            continue;
        }
        cases += 1;
        let cpu = cpu(&root.join(format!("{name}.gguf")), 2);
        let limits = Limits {
            windows: Some(3),
            max_tokens: None,
        };
        let plan = WindowPlan::new(tokens.len(), Geometry::teacher_forced(48), limits).unwrap();
        let feed = Feed {
            bos: None,
            batch: 2,
        };
        every_cut(name, &cpu, &tokens, &plan, feed);
    }
    println!("{cases} cases");
    assert!(cases >= 21, "only {cases} cases were found");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn random_partitions(
        cuts in proptest::sample::subsequence(vec![1usize, 2, 3, 4, 5], 0..=5),
        first_on_gpu in any::<bool>(),
        cycle in any::<bool>(),
        batch in 1usize..6,
        memory in 0u64..20_000,
    ) {
        let cpu = six_layers(Tiny::llama()).cpu(2);
        let tokens = tiny::ids(5 * 30 + 7);
        let plan =
            WindowPlan::new(tokens.len(), Geometry::teacher_forced(30), Limits::default()).unwrap();
        let feed = Feed { bos: None, batch };
        let want = bits(&score_whole(&cpu, &tokens, &plan, feed).unwrap());
        let devices = match first_on_gpu {
            true => [CUDA, CPU],
            false => [CPU, CUDA],
        };
        let partition = cut_at(6, &cuts, &devices, cycle);
        let ours = score_on(&cpu, partition, &tokens, &plan, feed, memory);
        prop_assert!(bits(&ours) == want);
    }
}

/// State is reset before every batch in every pass: one reset that is dropped
/// changes the number, and a corpus of one window cannot show it.
#[test]
fn state_is_reset_before_every_window_of_every_pass() {
    let cpu = Tiny::llama().cpu(1);
    let tokens = tiny::ids(4 * 32);
    let run = |leaks, cuts: &[usize], cycle, windows| {
        let probe = Probe {
            cpu: &cpu,
            leaks,
            after: &|_, _| (),
        };
        let limits = Limits {
            windows: Some(windows),
            max_tokens: None,
        };
        let plan = WindowPlan::new(tokens.len(), Geometry::llama_cpp(32), limits).unwrap();
        let feed = Feed {
            bos: None,
            batch: 1,
        };
        let partition = cut_at(3, cuts, &[CPU], cycle);
        bits(&score_on(
            &probe, partition, &tokens, &plan, feed, EVERYTHING,
        ))
    };
    let want = run(false, &[], false, 4);
    for (cuts, cycle) in [
        (&[][..], false),
        (&[1], true),
        (&[1, 2], true),
        (&[2], false),
    ] {
        assert!(run(false, cuts, cycle, 4) == want, "{cuts:?}");
        assert!(run(true, cuts, cycle, 4) != want, "{cuts:?}");
        assert!(
            run(true, cuts, cycle, 1)[..] == want[..want.len() / 4],
            "{cuts:?}"
        );
    }
}
