//! `pplx score`: one model on one corpus, with llama-perplexity's habits.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::Failure;
use super::control::ControlArgs;
use super::progress::WindowsBar;
use super::text::Text;
use super::{outputs, values};
use crate::backend::{Device, Numerics};
use crate::corpus::{ids_sha256, read_ids, write_ids};
use crate::eval::{Geometry, Limits, Mode, WindowScore};
use crate::experiment::{PlacementParts, PlacementRequest};
use crate::files;
use crate::plan::{self, Machine, Placement, Resolution};
use crate::render;
use crate::run::{LoadedModel, Measurement, Settings, measure, model_type, remarks};
use crate::say;
use crate::tokenizer;

#[derive(clap::Args)]
#[command(
    after_help = "By default the geometry is llama-perplexity's: windows of --ctx-size tokens \
side by side, in which the second half is scored, and BOS in place of the first token where the \
model asks for it. 'llama-perplexity -m M -f F -c N --chunks W' is 'pplx score M -f F -c N \
--chunks W'.\n\
Exit codes: 0 scored; 1 a value was not finite; 2 usage, or an input that cannot be scored; 130 \
interrupted (143 by SIGTERM, 129 by SIGHUP; a \
second signal kills at once)."
)]
pub struct Args {
    /// The model, a GGUF file.
    #[arg(value_name = "MODEL", required_unless_present = "model_option")]
    model: Option<PathBuf>,

    /// The model, as llama-perplexity has it.
    #[arg(
        short = 'm',
        long = "model",
        value_name = "MODEL",
        conflicts_with = "model"
    )]
    model_option: Option<PathBuf>,

    /// The corpus, a UTF-8 text file; - for stdin.
    #[arg(short, long, required_unless_present = "tokens_file")]
    file: Option<PathBuf>,

    /// Token ids in place of a corpus: one a line, or a JSON array; - for stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "file")]
    tokens_file: Option<PathBuf>,

    /// Tokens in a window.
    #[arg(
        short,
        long = "ctx-size",
        visible_alias = "context",
        value_name = "N",
        default_value_t = 512,
        value_parser = values::context
    )]
    ctx_size: usize,

    /// At most so many windows.
    #[arg(
        long,
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = values::windows
    )]
    chunks: Option<usize>,

    /// Use only the first N tokens of the corpus.
    #[arg(long, value_name = "N", value_parser = values::context)]
    max_tokens: Option<usize>,

    /// llama-perplexity's option of this name: windows that overlap, of --ctx-size
    /// and half of N tokens, N tokens apart; 0 for none. The same as --mode
    /// llama.cpp-strided --stride N. (--stride alone keeps the windows' length.)
    #[arg(long, value_name = "N", conflicts_with_all = ["mode", "stride", "unscored_prefix"])]
    ppl_stride: Option<usize>,

    /// How the corpus is walked.
    #[arg(long, value_enum, default_value_t = ModeName::SlidingWindow)]
    mode: ModeName,

    /// Tokens from one window's start to the next.
    #[arg(long, value_name = "N", value_parser = values::count)]
    stride: Option<usize>,

    /// Tokens at the start of each window that are not scored.
    #[arg(long, value_name = "N", value_parser = values::count)]
    unscored_prefix: Option<usize>,

    /// Begin the text and each window with BOS, whatever the model says.
    #[arg(long, conflicts_with = "no_bos")]
    bos: bool,

    /// Never add BOS, whatever the model says.
    #[arg(long)]
    no_bos: bool,

    /// Take control tokens that are written out in the corpus as tokens.
    #[arg(long)]
    parse_special: bool,

    /// Pre-tokenizer of a byte-level vocabulary that does not name its own.
    #[arg(long, value_name = "NAME")]
    pre: Option<String>,

    /// Print each window's figures.
    #[arg(long)]
    per_window: bool,

    /// Write the NLL of every scored token: CSV with the columns
    /// chunk,pos,target,nll.
    #[arg(long, value_name = "FILE")]
    per_token: Option<PathBuf>,

    /// Write the corpus's token ids, one a line.
    #[arg(long, value_name = "FILE")]
    dump_tokens: Option<PathBuf>,

    /// Print one JSON object in place of text.
    #[arg(long)]
    json: bool,

    /// Worker threads; 0 takes every core. Never changes a number.
    #[arg(short, long, value_name = "N", default_value_t = 0, value_parser = values::threads)]
    threads: usize,

    /// Windows evaluated together; chosen for speed by default. Never changes a
    /// number.
    #[arg(long, value_name = "N", value_parser = values::count)]
    batch: Option<usize>,

    /// The device of all layers, or of a cycle [default: chosen].
    #[arg(long, value_parser = values::device(), help_heading = "Placement")]
    device: Option<Device>,

    /// Put N layers on the GPU, the others on the CPU.
    #[arg(
        long,
        value_name = "N",
        value_parser = values::count,
        help_heading = "Placement"
    )]
    gpu_layers: Option<usize>,

    /// The first of the layers on the GPU.
    #[arg(long, value_name = "K", help_heading = "Placement")]
    first_layer: Option<usize>,

    /// Layers of a window in a cycle on the CPU.
    #[arg(
        long,
        value_name = "N",
        value_parser = values::count,
        help_heading = "Placement"
    )]
    layers_per_window: Option<usize>,

    /// Run one layer window after the other over the whole corpus, for a model
    /// larger than the device: 'pplx score M -f F --device cpu
    /// --layers-per-window 4 --cycle'.
    #[arg(long, help_heading = "Placement")]
    cycle: bool,

    /// The arithmetic of products with weights.
    #[arg(long, value_parser = values::numerics(), default_value_t = Numerics::Exact)]
    numerics: Numerics,

    #[command(flatten, next_help_heading = "Placement")]
    control: ControlArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum ModeName {
    SlidingWindow,
    TeacherForced,
    /// llama-perplexity's --ppl-stride
    #[value(name = "llama.cpp-strided")]
    LlamaCppStrided,
}

impl Args {
    fn model(&self) -> &Path {
        let model = self.model.as_ref().or(self.model_option.as_ref());
        model.map_or(Path::new(""), PathBuf::as_path)
    }
}

pub fn run(args: Args) -> Result<(), Failure> {
    let geometry = geometry(&args)?;
    for path in args.per_token.iter().chain(&args.dump_tokens) {
        outputs::check(path)?;
    }
    let asked = placement(&args)?;
    let options = tokenizer::Options {
        parse_special: args.parse_special,
        pre: args.pre.clone(),
        add_bos: match (args.bos, args.no_bos) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => None,
        },
    };
    let loaded = LoadedModel::open(args.model(), &options, args.threads)
        .and_then(|loaded| loaded.with_numerics(args.numerics))
        .map_err(Failure::usage)?;
    let subject = plan::Subject {
        model: Some(&loaded.model),
        n_ctx: geometry.n_ctx,
        numerics: loaded.numerics,
    };
    let resolution =
        Resolution::new(asked, &Machine::default(), subject).map_err(Failure::usage)?;
    let tokens = tokens(&args, &loaded)?;
    if let Some(path) = &args.dump_tokens {
        write_ids(path, &tokens).map_err(Failure::failed)?;
    }
    let settings = Settings {
        geometry,
        limits: Limits {
            windows: args.chunks,
            max_tokens: args.max_tokens,
        },
        bos: bos(&args, &loaded, geometry.mode)?,
        batch: args.batch,
    };
    // Until here a signal ends the process at once.
    let control = args.control.control()?;
    let mut bar = WindowsBar::new(&args.model().to_string_lossy(), &control.interrupt);
    let text = loaded.text(&tokens);
    let result = loaded.placed(resolution.placement, &control, |subject| {
        measure(subject, text, &settings, &control, &mut |o| bar.at(&o))
    });
    drop(bar);
    let m = result?;
    if let Some(path) = &args.per_token {
        write_per_token(path, &tokens, &m.scores)
            .map_err(|e| Failure::failed(format!("{}: {e}", path.display())))?;
    }
    let report = Report {
        args: &args,
        loaded: &loaded,
        tokens: &tokens,
        settings: &settings,
        placement: resolution.placement,
        gpu: resolution.gpu.as_deref(),
        m: &m,
        notes: remarks(&loaded, &tokens, &settings),
    };
    let out = match args.json {
        true => report.json(),
        false => report.text(),
    };
    let printed = match args.json {
        true => say::data(out.as_bytes()),
        false => say::text(&out),
    };
    Ok(printed?)
}

fn geometry(args: &Args) -> Result<Geometry, Failure> {
    let n_ctx = args.ctx_size;
    if let Some(stride) = args.ppl_stride.filter(|&stride| stride > 0) {
        let geometry = Geometry::llama_cpp_strided(n_ctx, stride);
        let checked = geometry.check();
        checked.map_err(|e| Failure::usage(format!("--ppl-stride {stride}: {e}")))?;
        return Ok(geometry);
    }
    let refuse = |flag: &str, mode: &str| {
        Err(Failure::usage(format!(
            "{flag} has no meaning in {mode} mode"
        )))
    };
    let geometry = match args.mode {
        ModeName::SlidingWindow => {
            Geometry::sliding_window(n_ctx, args.stride, args.unscored_prefix)
        }
        ModeName::TeacherForced if args.stride.is_some() => {
            return refuse("--stride", "teacher-forced");
        }
        ModeName::TeacherForced if args.unscored_prefix.is_some() => {
            return refuse("--unscored-prefix", "teacher-forced");
        }
        ModeName::TeacherForced => Geometry::teacher_forced(n_ctx),
        ModeName::LlamaCppStrided if args.unscored_prefix.is_some() => {
            return refuse("--unscored-prefix", "llama.cpp-strided");
        }
        ModeName::LlamaCppStrided => match args.stride {
            Some(stride) => Geometry::llama_cpp_strided(n_ctx, stride),
            None => return Err(Failure::usage("llama.cpp-strided mode needs --stride")),
        },
    };
    geometry.check().map_err(Failure::usage)?;
    Ok(geometry)
}

/// The placement that the options ask for.
fn placement(args: &Args) -> Result<PlacementRequest, Failure> {
    let parts = PlacementParts {
        device: args.device,
        gpu_layers: args.gpu_layers,
        first_layer: args.first_layer,
        layers_per_window: args.layers_per_window,
        cycle: args.cycle,
    };
    parts
        .placement()
        .map_err(|e| Failure::usage(format!("--{} {}", e.key.replace('_', "-"), e.why)))
}

fn tokens(args: &Args, loaded: &LoadedModel) -> Result<Vec<u32>, Failure> {
    match (&args.tokens_file, &args.file) {
        (Some(path), _) if path.as_os_str() == "-" => {
            read_ids(Path::new("/dev/stdin")).map_err(Failure::usage)
        }
        (Some(path), _) => read_ids(path).map_err(Failure::usage),
        (None, Some(path)) => {
            let tokenizer = loaded.tokenizer().map_err(Failure::usage)?;
            Ok(Text::open(path)?.tokenize(tokenizer)?.ids)
        }
        (None, None) => Err(Failure::usage("a corpus (-f) or --tokens-file is needed")),
    }
}

/// What replaces the first token of each window.
fn bos(args: &Args, loaded: &LoadedModel, mode: Mode) -> Result<Option<u32>, Failure> {
    if args.no_bos || !mode.substitutes_bos() {
        return Ok(None);
    }
    let tokenizer = match loaded.tokenizer() {
        Ok(tokenizer) => tokenizer,
        // With ids at hand the vocabulary is wanted for its BOS alone.
        Err(e) => {
            return Err(Failure::usage(format!(
                "{e}\nwhether windows begin with BOS is not known either: say --no-bos"
            )));
        }
    };
    match (tokenizer.add_bos(), tokenizer.bos()) {
        (false, _) => Ok(None),
        (true, Some(id)) => Ok(Some(id)),
        (true, None) => Err(Failure::usage(
            "BOS is asked for, but the model's metadata names none",
        )),
    }
}

fn write_per_token(path: &Path, tokens: &[u32], scores: &[WindowScore]) -> io::Result<()> {
    files::replace(path, |out| {
        let mut out = csv::Writer::from_writer(out);
        out.write_record(["chunk", "pos", "target", "nll"])?;
        for s in scores {
            for (i, (nll, target)) in s.nll().zip(&tokens[s.window.targets()]).enumerate() {
                let position = s.window.first_target + i;
                out.serialize((s.window.index, position, target, nll))?;
            }
        }
        out.flush()
    })
}

struct Report<'a> {
    args: &'a Args,
    loaded: &'a LoadedModel,
    tokens: &'a [u32],
    settings: &'a Settings,
    placement: Placement,
    gpu: Option<&'a str>,
    m: &'a Measurement,
    notes: Vec<String>,
}

impl Report<'_> {
    fn text(&self) -> String {
        let (m, model) = (self.m, &self.loaded.model);
        let mut out = String::new();
        if self.args.per_window {
            out += "window  scored  mean NLL       PPL  running PPL\n";
            let (mut nll, mut n) = (0.0, 0);
            for w in &m.windows {
                nll += w.nll_sum;
                n += w.scored;
                let mean = w.nll_sum / w.scored as f64;
                out += &format!(
                    "{:6}  {:6}  {mean:8.5}  {:8.4}  {:11.4}\n",
                    w.window,
                    w.scored,
                    mean.exp(),
                    (nll / n as f64).exp()
                );
            }
            out.push('\n');
        }
        let g = self.settings.geometry;
        out += &format!(
            "model     {} ({}, {}, {} layers)\n",
            self.loaded.path.display(),
            model.architecture,
            model_type(&model.gguf),
            model.n_layer()
        );
        out += &format!(
            "corpus    {}, {} tokens{}\n",
            self.source().display(),
            self.tokens.len(),
            match self.settings.bos {
                Some(id) => format!(", BOS ({id}) in place of each window's first"),
                None => ", no BOS".to_owned(),
            }
        );
        out += &format!("geometry  context {}, {}\n", g.n_ctx, g.mode);
        out += &format!("layers    {}\n", self.layer_placement());
        out += &format!("numerics  {}\n", self.loaded.numerics);
        out += &format!(
            "scored    {} tokens in {} windows, {:.0} tokens/s on {}\n",
            m.scored,
            m.windows.len(),
            m.evaluated as f64 / m.seconds,
            match self.gpu {
                Some(gpu) => gpu.to_owned(),
                None => format!("{} threads", self.loaded.cpu.n_threads()),
            }
        );
        let f = &m.figures;
        if let Some(bits) = f.bits_per_byte {
            out += &format!("bits      {bits:.5} per byte\n");
        }
        if let Some(clustered) = f.ppl_err_clustered {
            out += &format!("error     +/- {clustered:.5} with tokens correlated within windows\n");
        }
        for note in &self.notes {
            out += &format!("note      {note}\n");
        }
        out += &format!(
            "\nFinal estimate: PPL = {}\n",
            render::ppl(f.ppl, f.ppl_err)
        );
        out
    }

    fn json(&self) -> String {
        let (m, model, g) = (self.m, &self.loaded.model, self.settings.geometry);
        let (stride, unscored_prefix) = g.mode.parameters();
        let mut value = json!({
            "engine": crate::run::engine(self.gpu),
            "model": self.loaded.path.display().to_string(),
            "architecture": model.architecture,
            "model_type": model_type(&model.gguf),
            "corpus": self.source().display().to_string(),
            "tokens": self.tokens.len(),
            "tokens_sha256": ids_sha256(self.tokens),
            "n_ctx": g.n_ctx,
            "mode": g.mode.name(),
            "stride": stride,
            "unscored_prefix": unscored_prefix,
            "bos": self.settings.bos,
            "placement": self.placement.to_string(),
            "layer_placement": self.layer_placement(),
            "numerics": self.loaded.numerics.name(),
            "windows": m.windows.len(),
            "scored_tokens": m.scored,
            "mean_nll": m.figures.mean_nll,
            "ppl": m.figures.ppl,
            "ppl_err": m.figures.ppl_err,
            "ppl_err_clustered": m.figures.ppl_err_clustered,
            "bits_per_byte": m.figures.bits_per_byte,
            "notes": self.notes,
            "threads": self.loaded.cpu.n_threads(),
            "tokens_per_s": m.evaluated as f64 / m.seconds,
        });
        if self.args.per_window {
            let rows = m.windows.iter().map(|w| {
                json!({ "window": w.window, "scored": w.scored, "nll_sum": w.nll_sum,
                        "target_bytes": w.target_bytes })
            });
            value["per_window"] = rows.collect();
        }
        format!("{value:#}\n")
    }

    fn layer_placement(&self) -> String {
        let partition = self.placement.partition(self.loaded.model.n_layer());
        partition.to_string()
    }

    fn source(&self) -> &Path {
        let file = self.args.tokens_file.as_ref().or(self.args.file.as_ref());
        file.map_or(Path::new(""), PathBuf::as_path)
    }
}
