//! Options that people type by habit of llama-perplexity and that `score` and `kld`
//! do not have. clap would take `-fa` for `-f a`, and propose for others what is
//! spelt alike and means something else.

use std::ffi::{OsStr, OsString};

const BATCH: &str = "it counts tokens, and moves no figure here: leave it out";
const NO_EFFECT: &str = "pplx has nothing like it, and no figure depends on it: leave it out";
const ATTENTION: &str = "attention is computed in f32 here, its keys and values kept in f32; \
                         'pplx attribute' measures what f16 would move";
const GPU: &str = "write --device cuda for all layers, --gpu-layers N for some, or --device cpu";
const FETCH: &str = "name a file; 'pplx fetch SOURCE -o FILE' fetches one";
const TEXT: &str = "the text comes from a file: -f FILE, or -f - for standard input";
const OTHER_MODEL: &str = "it makes another model of the file, which pplx does not do";
const OTHER_TASK: &str = "pplx measures perplexities and, with 'pplx kld', divergences only";
const KLD: &str = "'pplx kld --model M --base B -f TEXT' compares distributions, and --save-base \
                   stores them";
const OUTPUT: &str = "--per-window prints each window's figures, --per-token FILE writes each \
                      token's, --json is for scripts";

/// llama-perplexity's spellings, and what to do instead.
const HABITS: &[(&[&str], &str)] = &[
    (&["-b", "--batch-size", "-ub", "--ubatch-size"], BATCH),
    (
        &[
            "-ngl",
            "--n-gpu-layers",
            "-dev",
            "-sm",
            "--split-mode",
            "-ts",
            "--tensor-split",
            "-mg",
            "--main-gpu",
            "-ot",
            "--override-tensor",
            "-cmoe",
            "--cpu-moe",
            "-ncmoe",
            "--n-cpu-moe",
            "-fit",
            "--fit",
            "-fitt",
            "--fit-target",
            "-fitc",
            "--fit-ctx",
            "-nkvo",
            "--no-kv-offload",
            "-kvo",
            "--kv-offload",
            "--no-op-offload",
        ],
        GPU,
    ),
    (
        &[
            "-fa",
            "--flash-attn",
            "-ctk",
            "--cache-type-k",
            "-ctv",
            "--cache-type-v",
        ],
        ATTENTION,
    ),
    (
        &[
            "-s",
            "--seed",
            "--mmap",
            "--no-mmap",
            "--mlock",
            "--numa",
            "-dio",
            "--direct-io",
            "-ndio",
            "--no-direct-io",
            "-nr",
            "--no-repack",
            "--no-host",
            "--check-tensors",
            "-tb",
            "--threads-batch",
            "-C",
            "--cpu-mask",
            "-Cr",
            "--cpu-range",
            "-Cb",
            "--cpu-mask-batch",
            "-Crb",
            "--cpu-range-batch",
            "--cpu-strict",
            "--prio",
            "--poll",
            "-np",
            "--parallel",
            "-cb",
            "--cont-batching",
            "-nocb",
            "--no-cont-batching",
            "-kvu",
            "--kv-unified",
            "--swa-full",
            "-dt",
            "--defrag-thold",
            "--no-warmup",
            "--warmup",
            "--perf",
            "--no-perf",
            "-co",
            "--color",
            "-v",
            "--verbose",
            "--log-verbose",
            "-lv",
            "--verbosity",
            "--log-verbosity",
            "--log-disable",
            "--log-file",
            "--log-colors",
            "--log-prefix",
            "--log-timestamps",
            "--offline",
            "-e",
            "--escape",
            "--no-escape",
            "-n",
            "--predict",
            "--n-predict",
            "--keep",
            "--no-context-shift",
        ],
        NO_EFFECT,
    ),
    (
        &[
            "-mu",
            "--model-url",
            "-hf",
            "-hfr",
            "--hf-repo",
            "-hff",
            "--hf-file",
            "-hft",
            "--hf-token",
            "-dr",
            "--docker-repo",
        ],
        FETCH,
    ),
    (
        &["-p", "--prompt", "-bf", "--binary-file", "--in-file"],
        TEXT,
    ),
    (
        &[
            "--lora",
            "--lora-scaled",
            "--control-vector",
            "--control-vector-scaled",
            "--override-kv",
            "--rope-scaling",
            "--rope-scale",
            "--rope-freq-base",
            "--rope-freq-scale",
            "--yarn-orig-ctx",
            "--yarn-ext-factor",
            "--yarn-attn-factor",
            "--yarn-beta-slow",
            "--yarn-beta-fast",
            "-gan",
            "--grp-attn-n",
            "-gaw",
            "--grp-attn-w",
        ],
        OTHER_MODEL,
    ),
    (
        &[
            "--hellaswag",
            "--hellaswag-tasks",
            "--winogrande",
            "--winogrande-tasks",
            "--multiple-choice",
            "--multiple-choice-tasks",
        ],
        OTHER_TASK,
    ),
    (
        &[
            "--kl-divergence",
            "--kl-divergence-base",
            "--save-all-logits",
            "--all-logits",
            "--logits-file",
        ],
        KLD,
    ),
    (&["--ppl-output-type"], OUTPUT),
];

/// What is to be said of the first of llama-perplexity's options among the arguments
/// of `score` or `kld`.
pub fn refusal(arguments: impl IntoIterator<Item = OsString>) -> Option<String> {
    let mut arguments = arguments.into_iter().skip(1);
    let verb = arguments.next()?;
    if verb != "score" && verb != "kld" {
        return None;
    }
    arguments
        .take_while(|argument| argument != "--")
        .find_map(|argument| of_one(&argument))
}

fn of_one(argument: &OsStr) -> Option<String> {
    let argument = argument.to_str()?;
    let option = argument.split('=').next().unwrap_or(argument);
    let (_, instead) = HABITS.iter().find(|(names, _)| names.contains(&option))?;
    Some(format!(
        "'{option}' is an option of llama.cpp, not of pplx: {instead}"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(line: &str) -> Option<String> {
        refusal(line.split(' ').map(OsString::from))
    }

    #[test]
    fn habits_are_answered_by_name() {
        for habit in ["-fa on", "--batch-size=512", "-ngl 99", "-hf a/b"] {
            let name = habit.split([' ', '=']).next().unwrap();
            let said = of(&format!("pplx score m.gguf {habit}")).unwrap();
            assert!(said.starts_with(&format!("'{name}' ")), "{said}");
        }
        assert_eq!(of("pplx score -m m.gguf -f t -c 512 -t 2"), None);
        assert_eq!(of("pplx score m.gguf -- -b"), None);
        assert_eq!(of("pplx tokenize m.gguf -b"), None);
    }

    #[test]
    fn no_habit_is_an_option_of_pplx() {
        use clap::CommandFactory;
        let command = super::super::Cli::command();
        for verb in ["score", "kld"] {
            let verb = command.find_subcommand(verb).unwrap();
            for option in verb.get_arguments() {
                let long = option.get_long_and_visible_aliases().unwrap_or_default();
                let short = option.get_short_and_visible_aliases().unwrap_or_default();
                let names = long.iter().map(|l| format!("--{l}"));
                for name in names.chain(short.iter().map(|s| format!("-{s}"))) {
                    assert_eq!(of_one(OsStr::new(&name)), None);
                }
            }
        }
    }
}
