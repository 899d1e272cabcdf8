//! `cargo bench --bench end_to_end -- MODEL CORPUS [CONTEXT [WINDOWS [ROUNDS]]]`
//!
//! Tokens per second of a perplexity run: ours, exact and in 8 bits, and llama.cpp's
//! in turn in one run (A B C A B C …), medians and their ratios. The peer is the
//! llama-perplexity that `LLAMA_PERPLEXITY` names: its whole evaluation, from the
//! line that announces it to its final estimate, as ours, and its `llama_decode`
//! alone. Else it is llama-cpp-python in the Python that `LLAMA_PYTHON` names,
//! whose `llama_decode` is timed; without either ours is measured alone and no
//! ratio is claimed.

use std::fmt;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use pplx::backend::Numerics;
use pplx::corpus::{DEFAULT_CHUNK, tokenize_file};
use pplx::eval::{Geometry, Limits};
use pplx::plan::Placement;
use pplx::run::{Control, LoadedModel, Settings, measure, peak_rss_mib};
use pplx::tokenizer::Options;

struct Job {
    model: String,
    corpus: String,
    n_ctx: usize,
    windows: usize,
    threads: usize,
}

fn main() {
    let args: Vec<String> = std::env::args()
        .skip(1)
        .filter(|a| a != "--bench")
        .collect();
    let [model, corpus, rest @ ..] = args.as_slice() else {
        eprintln!("usage: end_to_end MODEL CORPUS [CONTEXT [WINDOWS [ROUNDS]]]");
        return;
    };
    let number = |i: usize, default| {
        rest.get(i)
            .map_or(default, |s| s.parse().expect("a number"))
    };
    let job = Job {
        model: model.clone(),
        corpus: corpus.clone(),
        n_ctx: number(0, 512),
        windows: number(1, 32),
        threads: std::thread::available_parallelism().map_or(1, usize::from),
    };
    let rounds = number(2, 3);
    println!(
        "{}, context {}, {} windows, {} threads",
        job.model, job.n_ctx, job.windows, job.threads
    );
    const NUMERICS: [Numerics; 2] = [Numerics::Exact, Numerics::Q8];
    let (mut ours, mut theirs) = ([Vec::new(), Vec::new()], Vec::<Peer>::new());
    for _ in 0..rounds {
        for (numerics, ours) in NUMERICS.into_iter().zip(&mut ours) {
            let rate = pplx(&job, numerics);
            ours.push(rate);
            println!("  pplx {numerics:5} {rate:8.1} tokens/s");
        }
        if let Some(peer) = llama_cpp(&job) {
            println!("  llama.cpp  {peer}");
            theirs.push(peer);
        }
    }
    let ours = ours.map(median);
    for (numerics, rate) in NUMERICS.into_iter().zip(ours) {
        println!("pplx {numerics} median {rate:.1} tokens/s");
    }
    if let Some(mib) = peak_rss_mib() {
        println!("pplx peak memory {mib:.0} MiB");
    }
    if theirs.is_empty() {
        println!("llama.cpp not measured: set LLAMA_PERPLEXITY or LLAMA_PYTHON");
        return;
    }
    let whole = theirs.iter().filter_map(|p| p.whole).collect::<Vec<_>>();
    let decode = theirs.iter().filter_map(|p| p.decode).collect::<Vec<_>>();
    for (what, theirs) in [("whole", whole), ("llama_decode", decode)] {
        if theirs.is_empty() {
            continue;
        }
        let theirs = median(theirs);
        println!("llama.cpp {what} median {theirs:.1} tokens/s");
        for (numerics, rate) in NUMERICS.into_iter().zip(ours) {
            println!("ratio of {numerics} {:.2}", rate / theirs);
        }
    }
}

/// Tokens per second of llama.cpp.
struct Peer {
    /// The whole evaluation; only where its own tool is timed.
    whole: Option<f64>,
    /// `llama_decode`; newer builds of the tool do not tell.
    decode: Option<f64>,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (what, rate) in [("whole", self.whole), ("llama_decode", self.decode)] {
            if let Some(rate) = rate {
                write!(f, "{rate:8.1} tokens/s ({what}) ")?;
            }
        }
        Ok(())
    }
}

fn median(mut xs: Vec<f64>) -> f64 {
    xs.sort_by(f64::total_cmp);
    xs[xs.len() / 2]
}

/// The model is loaded and the corpus tokenized before the clock starts.
fn pplx(job: &Job, numerics: Numerics) -> f64 {
    let loaded = LoadedModel::open(Path::new(&job.model), &Options::default(), job.threads)
        .and_then(|loaded| loaded.with_numerics(numerics))
        .unwrap_or_else(|e| panic!("{e}"));
    let tokenizer = loaded.tokenizer().unwrap_or_else(|e| panic!("{e}"));
    let tokens = tokenize_file(Path::new(&job.corpus), tokenizer, DEFAULT_CHUNK)
        .unwrap_or_else(|e| panic!("{e}"));
    let settings = Settings {
        geometry: Geometry::llama_cpp(job.n_ctx),
        limits: Limits {
            windows: Some(job.windows),
            max_tokens: None,
        },
        bos: tokenizer.bos().filter(|_| tokenizer.add_bos()),
        batch: None,
    };
    let control = Control::default();
    let m = loaded
        .placed(Placement::CPU, &control, |subject| {
            measure(
                subject,
                loaded.text(&tokens.ids),
                &settings,
                &control,
                &mut |_| (),
            )
        })
        .unwrap_or_else(|e| panic!("{e}"));
    m.evaluated as f64 / m.seconds
}

fn llama_cpp(job: &Job) -> Option<Peer> {
    let (n_ctx, windows) = (job.n_ctx.to_string(), job.windows.to_string());
    let threads = job.threads.to_string();
    if let Some(binary) = std::env::var_os("LLAMA_PERPLEXITY") {
        let mut process = Command::new(binary)
            .args(["-m", &job.model, "-f", &job.corpus, "-c", &n_ctx])
            .args(["--chunks", &windows, "-t", &threads])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("LLAMA_PERPLEXITY runs");
        let log = BufReader::new(process.stderr.take().expect("it is piped"));
        let (mut begun, mut whole, mut decode) = (None, None, None);
        for line in log.split(b'\n').map_while(Result::ok) {
            let line = String::from_utf8_lossy(&line);
            if line.contains("calculating perplexity over") {
                begun = Some(Instant::now());
            }
            if line.contains("Final estimate") {
                let tokens = (job.n_ctx * job.windows) as f64;
                whole = begun.map(|t: Instant| tokens / t.elapsed().as_secs_f64());
            }
            if line.contains("prompt eval time") {
                decode = prompt_rate(&line);
            }
        }
        process.wait().expect("LLAMA_PERPLEXITY ends");
        return (whole.or(decode).is_some()).then_some(Peer { whole, decode });
    }
    let python = std::env::var_os("LLAMA_PYTHON")?;
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/llama_decode.py");
    let out = Command::new(python)
        .args([script, &job.model, &job.corpus, &n_ctx, &windows, &threads])
        .output()
        .expect("LLAMA_PYTHON runs");
    let text = String::from_utf8_lossy(&out.stdout);
    let rate = text.trim().parse().ok();
    if rate.is_none() {
        eprintln!("{}", String::from_utf8_lossy(&out.stderr));
    }
    rate.map(|decode| Peer {
        whole: None,
        decode: Some(decode),
    })
}

/// llama-perplexity's own "prompt eval time = … ( … ms per token, N tokens per
/// second)".
fn prompt_rate(line: &str) -> Option<f64> {
    let before = line.split(" tokens per second").next()?;
    before.split_whitespace().last()?.parse().ok()
}
