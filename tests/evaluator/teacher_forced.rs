//! Teacher-forced mode through the whole evaluator.

use pplx::backend::{CPU, Interrupt};
use pplx::eval::{CheckpointOptions, Feed, Geometry, Job, Layered, Limits, WindowPlan};

use crate::support::tiny::{self, BOS, Tiny};
use crate::support::{bits, score};

#[test]
fn it_is_a_sliding_window_of_full_blocks() {
    let cpu = Tiny::gemma3().cpu(2);
    let tokens = tiny::ids(6 * 40);
    let sliding = Geometry::sliding_window(40, Some(40), Some(1));
    let a = score(
        &cpu,
        &tokens,
        Geometry::teacher_forced(40),
        99,
        Some(BOS),
        4,
    );
    let b = score(&cpu, &tokens, sliding, 99, Some(BOS), 4);
    assert_eq!(a.len(), 6);
    assert_eq!(bits(&a), bits(&b));
}

/// A last block that is shorter, and one that is a lone token.
#[test]
fn every_token_but_the_first_of_a_block_is_scored_once() {
    let cpu = Tiny::llama().cpu(2);
    for n in [2 * 40 + 1, 2 * 40 + 2, 3 * 40 - 1, 17, 2] {
        let tokens = tiny::ids(n);
        let scores = score(&cpu, &tokens, Geometry::teacher_forced(40), 99, None, 3);
        let mut targets: Vec<usize> = scores.iter().flat_map(|s| s.window.targets()).collect();
        assert!(scores.iter().all(|s| s.tokens.len() == s.window.scored()));
        targets.sort_unstable();
        let want: Vec<usize> = (0..n).filter(|t| t % 40 != 0).collect();
        assert_eq!(targets, want, "{n} tokens");
    }
}

/// A block sees nothing of the one before it, and a shorter one is the start of
/// a longer one.
#[test]
fn blocks_stand_alone() {
    let cpu = Tiny::llama().cpu(2);
    let tokens = tiny::ids(100);
    let blocks = score(&cpu, &tokens, Geometry::teacher_forced(40), 99, None, 3);
    let alone = score(
        &cpu,
        &tokens[40..],
        Geometry::teacher_forced(40),
        1,
        None,
        1,
    );
    assert_eq!(bits(&blocks[1..2]), bits(&alone));
    let short = score(
        &cpu,
        &tokens[80..],
        Geometry::teacher_forced(40),
        1,
        None,
        1,
    );
    assert_eq!(bits(&blocks[2..]), bits(&short));
    let whole = score(&cpu, &tokens, Geometry::teacher_forced(100), 1, None, 1);
    assert_eq!(bits(&blocks[..1]), bits(&whole)[..39]);
}

#[test]
fn each_batch_is_reported_in_order_and_can_stop_the_run() {
    let cpu = Tiny::llama().cpu(1);
    let tokens = tiny::ids(7 * 20);
    let plan = WindowPlan::new(tokens.len(), Geometry::llama_cpp(20), Limits::default()).unwrap();
    let feed = Feed {
        bos: None,
        batch: 3,
    };
    let mut seen = Vec::new();
    let model = Layered::whole(CPU, &cpu);
    let (interrupt, options) = (Interrupt::default(), CheckpointOptions::default());
    let job = Job {
        tokens: &tokens,
        plan: &plan,
        feed,
        interrupt: &interrupt,
        checkpoints: &options,
    };
    let all = pplx::eval::score(&model, job, &mut |p| {
        seen.push(p.new.iter().map(|s| s.window.index).collect::<Vec<_>>());
    });
    assert_eq!(seen, [vec![], vec![0, 1, 2], vec![3, 4, 5], vec![6]]);
    assert_eq!(all.unwrap().len(), 7);
    let error = pplx::eval::score(&model, job, &mut |p| {
        if p.done == 6 {
            interrupt.raise();
        }
    });
    assert_eq!(
        error.unwrap_err().to_string(),
        "interrupted after 6 of 7 windows"
    );
}
