//! `pplx kld`: how far a model's distributions are from a base's, with
//! llama-perplexity's figures.

use std::path::{Path, PathBuf};

use super::Failure;
use super::control::ControlArgs;
use super::progress::WindowsBar;
use super::text::Text;
use super::{outputs, values};
use crate::base::llama_cpp::GridWriter;
use crate::base::top::TopWriter;
use crate::base::{BaseFile, BaseInfo};
use crate::eval::{BaseSink, Geometry, Limits, TokenKld, WindowPlan};
use crate::plan::{Numerics, Placement};
use crate::render;
use crate::results::{KldFigures, NoKldFigures};
use crate::run::{
    BaseInput, Control, LoadedModel, Measurable, MeasureError, Measurement, Observation, Settings,
    check_same_text, check_stored, engine, measure_against, measure_saving,
};
use crate::say;
use crate::tokenizer;

#[derive(clap::Args)]
#[command(
    after_help = "The figures, their names and their errors are those of 'llama-perplexity \
--kl-divergence'. The base is a model, which is evaluated alongside, or a file that --save-base or \
'llama-perplexity --kl-divergence-base' has written.\n\
Exit codes: 0 compared or saved; 1 a value was not finite; 2 usage, or inputs that cannot be \
compared; 130 interrupted (143 by SIGTERM, 129 by SIGHUP; a \
second signal kills at once)."
)]
pub struct Args {
    /// The model, a GGUF file.
    #[arg(short, long, value_name = "FILE")]
    model: PathBuf,

    /// What to compare it with: a GGUF file, or a stored base.
    #[arg(
        long,
        value_name = "FILE",
        required_unless_present = "save_base",
        conflicts_with = "save_base"
    )]
    base: Option<PathBuf>,

    /// The corpus, a UTF-8 text file; - for stdin.
    #[arg(short = 'f', long, visible_alias = "file", value_name = "FILE")]
    corpus: PathBuf,

    /// Tokens in a window.
    #[arg(
        short,
        long = "ctx",
        visible_aliases = ["ctx-size", "context"],
        value_name = "N",
        default_value_t = 512,
        value_parser = values::context
    )]
    ctx: usize,

    /// At most so many windows [default: all that the corpus or the stored base
    /// has].
    #[arg(
        long,
        visible_alias = "windows",
        value_name = "N",
        allow_negative_numbers = true,
        value_parser = values::windows
    )]
    chunks: Option<usize>,

    /// Store the model's distributions as a base in place of comparing it.
    #[arg(long, value_name = "FILE")]
    save_base: Option<PathBuf>,

    /// Format of the stored base.
    #[arg(long, value_enum, default_value_t = Format::Pplx, requires = "save_base")]
    format: Format,

    /// In pplx's format: of each distribution, tokens of a probability of 1/N and
    /// more are stored exactly, the others as a sample, about N in all at most.
    #[arg(
        long,
        value_name = "N",
        default_value_t = DEFAULT_ENTRIES,
        value_parser = clap::value_parser!(u32).range(1..),
        requires = "save_base"
    )]
    entries: u32,

    /// The arithmetic of the model, or of the base that is saved.
    #[arg(long, value_parser = values::numerics(), default_value_t = Numerics::Exact)]
    numerics: Numerics,

    /// The arithmetic of a base that is evaluated alongside [default: exact]; a stored
    /// one has its own.
    #[arg(long, value_parser = values::numerics(), conflicts_with = "save_base")]
    base_numerics: Option<Numerics>,

    /// Take control tokens that are written out in the corpus as tokens.
    #[arg(long)]
    parse_special: bool,

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

    #[command(flatten)]
    control: ControlArgs,
}

const DEFAULT_ENTRIES: u32 = 1000;

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// The likeliest tokens exactly, the others by their mass.
    Pplx,
    /// All log-probabilities in 16 bits, for llama-perplexity.
    #[value(name = "llama.cpp")]
    LlamaCpp,
}

/// A model with what it reads.
struct Input {
    loaded: LoadedModel,
    tokens: Vec<u32>,
    bos: Option<u32>,
}

impl Input {
    fn open(path: &Path, numerics: Numerics, text: &Text, args: &Args) -> Result<Self, Failure> {
        let options = tokenizer::Options {
            parse_special: args.parse_special,
            ..tokenizer::Options::default()
        };
        let loaded = LoadedModel::open(path, &options, args.threads)
            .and_then(|loaded| loaded.with_numerics(numerics))
            .map_err(Failure::usage)?;
        let tokenizer = loaded.tokenizer().map_err(Failure::usage)?;
        let tokens = text.tokenize(tokenizer)?.ids;
        let bos = match (tokenizer.add_bos(), tokenizer.bos()) {
            (false, _) => None,
            (true, Some(id)) => Some(id),
            (true, None) => {
                let path = path.display();
                return Err(Failure::usage(format!(
                    "{path} asks for BOS, but its metadata names none"
                )));
            }
        };
        Ok(Self {
            loaded,
            tokens,
            bos,
        })
    }
}

pub fn run(args: Args) -> Result<(), Failure> {
    if let Some(path) = &args.save_base {
        outputs::check(path)?;
    }
    let text = Text::open(&args.corpus)?;
    let model = Input::open(&args.model, args.numerics, &text, &args)?;
    let settings = Settings {
        geometry: Geometry::llama_cpp(args.ctx),
        limits: Limits {
            windows: args.chunks,
            max_tokens: None,
        },
        bos: model.bos,
        batch: args.batch,
    };
    settings.geometry.check().map_err(Failure::usage)?;
    let out = match (&args.save_base, &args.base) {
        (Some(path), _) => save(path, &args, &model, settings)?,
        (None, Some(path)) => compare(path, &text, &args, &model, settings)?,
        (None, None) => return Err(Failure::usage("a --base is needed")),
    };
    let printed = match args.json {
        true => say::data(out.as_bytes()),
        false => say::text(&out),
    };
    Ok(printed?)
}

fn save(path: &Path, args: &Args, model: &Input, settings: Settings) -> Result<String, Failure> {
    let Settings {
        geometry, limits, ..
    } = settings;
    let plan = WindowPlan::new(model.tokens.len(), geometry, limits).map_err(Failure::usage)?;
    let windows = plan.windows();
    let end = windows.last().map_or(0, |w| w.start + w.len);
    let info = BaseInfo {
        geometry,
        n_vocab: model.loaded.model.n_vocab,
        bos: Some(model.bos.into()),
        windows: windows.len(),
        tokens: model.tokens[..end].to_vec(),
        model: file_name(&args.model),
        numerics: args.numerics.to_string(),
        placement: Placement::CPU.to_string(),
        engine: engine(None),
    };
    let control = args.control.control()?;
    let fill = |sink: &mut dyn BaseSink| {
        let (loaded, tokens) = (&model.loaded, &model.tokens);
        measured(&args.model, &control, |observe| {
            loaded.placed(Placement::CPU, &control, |subject| {
                let text = loaded.text(tokens);
                measure_saving(subject, sink, text, &settings, &control, observe)
            })
        })
    };
    match args.format {
        Format::Pplx => {
            let created = TopWriter::create(path, &info, args.entries);
            let mut sink = created.map_err(Failure::failed)?;
            fill(&mut sink)?;
            sink.finish().map_err(Failure::failed)?;
        }
        Format::LlamaCpp => {
            let mut sink = GridWriter::create(path, &info).map_err(Failure::failed)?;
            fill(&mut sink)?;
            sink.finish().map_err(Failure::failed)?;
        }
    }
    let size = std::fs::metadata(path).map_or(0, |m| m.len());
    let scored = plan.scored();
    Ok(format!(
        "{}: {scored} tokens in {} windows, {size} bytes\n",
        path.display(),
        windows.len()
    ))
}

fn compare(
    path: &Path,
    text: &Text,
    args: &Args,
    model: &Input,
    settings: Settings,
) -> Result<String, Failure> {
    if BaseFile::is_one(path).map_err(Failure::usage)? {
        let mut base = BaseFile::open(path).map_err(Failure::usage)?;
        if args.base_numerics.is_some() {
            let problem = "a stored base has the numerics that it was made with; leave \
                           --base-numerics out";
            return Err(of_base(path, problem));
        }
        let note = base.note();
        let side = Side::stored(path, base.info());
        let checked = check_stored(base.info(), &model.tokens, &settings);
        let settings = Settings {
            limits: Limits {
                windows: Some(checked.map_err(|e| of_base(path, e))?),
                ..settings.limits
            },
            ..settings
        };
        let comparing = Comparing {
            control: args.control.control()?,
            base: side,
            args,
            model,
            settings,
        };
        return comparing.report(note, |subject, observe| {
            comparing.measure(subject, BaseInput::Stored(base.rows()), observe)
        });
    }
    let base_numerics = args.base_numerics.unwrap_or(Numerics::Exact);
    let base = Input::open(path, base_numerics, text, args)?;
    check_same_text((&base.tokens, base.bos), (&model.tokens, model.bos))
        .map_err(|e| of_base(path, e))?;
    let comparing = Comparing {
        control: args.control.control()?,
        base: Side::evaluated(path, base_numerics),
        args,
        model,
        settings,
    };
    comparing.report(None, |subject, observe| {
        let base = &base.loaded;
        base.placed(Placement::CPU, &comparing.control, |base| {
            comparing.measure(subject, BaseInput::Model(base), observe)
        })
    })
}

fn of_base(path: &Path, e: impl std::fmt::Display) -> Failure {
    Failure::usage(format!("{}: {e}", path.display()))
}

/// What is said of a model or a base.
struct Side {
    path: String,
    /// Those of a stored base are empty where its file does not say.
    numerics: String,
    placement: String,
    /// A stored base's.
    model: String,
    engine: String,
}

impl Side {
    fn evaluated(path: &Path, numerics: Numerics) -> Self {
        Self {
            path: path.display().to_string(),
            numerics: numerics.to_string(),
            placement: Placement::CPU.to_string(),
            model: String::new(),
            engine: String::new(),
        }
    }

    fn stored(path: &Path, info: &BaseInfo) -> Self {
        Self {
            path: path.display().to_string(),
            numerics: info.numerics.clone(),
            placement: info.placement.clone(),
            model: info.model.clone(),
            engine: info.engine.clone(),
        }
    }

    fn text(&self) -> String {
        let said = |what: &str, value: &str| match value {
            "" => format!("{what} not recorded"),
            value => format!("{what} {value}"),
        };
        let stored = match (self.model.as_str(), self.engine.as_str()) {
            ("", "") => String::new(),
            (model, engine) => format!(", of {model} by {engine}"),
        };
        let (numerics, placement) = (&self.numerics, &self.placement);
        format!(
            "{}, {}, {}{stored}",
            self.path,
            said("numerics", numerics),
            said("placement", placement)
        )
    }
}

/// A model that is compared with a base.
struct Comparing<'a> {
    base: Side,
    args: &'a Args,
    model: &'a Input,
    settings: Settings,
    control: Control,
}

type Compared = Result<(Measurement, Vec<TokenKld>), MeasureError>;

impl Comparing<'_> {
    fn measure(
        &self,
        subject: Measurable,
        base: BaseInput,
        observe: &mut dyn FnMut(Observation),
    ) -> Compared {
        let text = self.model.loaded.text(&self.model.tokens);
        measure_against(subject, base, text, &self.settings, &self.control, observe)
    }

    fn report(
        &self,
        note: Option<&str>,
        measure: impl FnOnce(Measurable, &mut dyn FnMut(Observation)) -> Compared,
    ) -> Result<String, Failure> {
        let (args, model) = (self.args, self.model);
        let (m, tokens) = measured(&args.model, &self.control, |observe| {
            let loaded = &model.loaded;
            loaded.placed(Placement::CPU, &self.control, |subject| {
                measure(subject, observe)
            })
        })?;
        let figures = KldFigures::new(&tokens).map_err(|e| match e {
            NoKldFigures::TooFew => Failure::usage(e),
            NoKldFigures::Overflow(_) => Failure::failed(e),
        })?;
        if args.json {
            let mut value = render::kld::json(&figures, note);
            value["engine"] = engine(None).into();
            let known = |text: &String| (!text.is_empty()).then(|| text.clone());
            let base = &self.base;
            value["model"] = args.model.display().to_string().into();
            value["numerics"] = args.numerics.name().into();
            value["placement"] = Placement::CPU.to_string().into();
            value["base"] = base.path.clone().into();
            value["base_numerics"] = known(&base.numerics).into();
            value["base_placement"] = known(&base.placement).into();
            value["base_model"] = known(&base.model).into();
            value["base_engine"] = known(&base.engine).into();
            value["n_ctx"] = args.ctx.into();
            value["windows"] = m.windows.len().into();
            return Ok(format!("{value:#}\n"));
        }
        Ok(format!(
            "model     {}\nbase      {}\ncorpus    {}, {} tokens\ngeometry  context {}, {}\nscored    {} \
             tokens in {} windows\n\n{}",
            Side::evaluated(&args.model, args.numerics).text(),
            self.base.text(),
            args.corpus.display(),
            model.tokens.len(),
            args.ctx,
            self.settings.geometry.mode,
            m.scored,
            m.windows.len(),
            render::kld::text(&figures, note)
        ))
    }
}

/// Measures with a bar.
fn measured<T>(
    model: &Path,
    control: &Control,
    f: impl FnOnce(&mut dyn FnMut(Observation)) -> Result<T, MeasureError>,
) -> Result<T, Failure> {
    let mut bar = WindowsBar::new(&model.to_string_lossy(), &control.interrupt);
    let result = f(&mut |o| bar.at(&o));
    drop(bar);
    Ok(result?)
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or(path.as_os_str());
    name.to_string_lossy().into_owned()
}
