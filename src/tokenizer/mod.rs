//! From a GGUF vocabulary to token ids, exactly as llama.cpp makes them.
//!
//! The models of a vocabulary are `bpe` (behind a pre-tokenizer; `tokenizers` merges),
//! `spm` (SentencePiece BPE), `unigram` and `rwkv`, the latter three our own;
//! each says why. Before them, `special` takes special
//! tokens out of the text; `cut` says where a text can be taken apart without
//! changing its tokens. What llama.cpp would guess (a missing or unknown
//! pre-tokenizer) is an error here.

mod bpe;
mod build;
mod charsmap;
mod cut;
mod error;
mod pretokenizer;
mod rwkv;
mod special;
mod spm;
mod table;
mod trie;
mod unigram;
mod vocab;

use sha2::{Digest, Sha256};

use crate::gguf::{Metadata, Value};
pub use build::Options;
use build::{Built, Ends, Model};
use cut::CutRule;
pub use error::TokenizerError;
use special::{Fragment, SpecialTokens};
use vocab::{Kind, Vocab};

/// Counts changes of this module that change ids, for [`Tokenizer::fingerprint`].
const ALGORITHM: u32 = 1;

/// A tokenizer built from a GGUF vocabulary.
pub struct Tokenizer {
    vocab: Vocab,
    special: SpecialTokens,
    model: Model,
    cut: CutRule,
    ends: Ends,
    fingerprint: String,
}

impl Tokenizer {
    /// Reads the vocabulary of a model.
    ///
    /// # Errors
    /// A vocabulary that is malformed, of an unsupported kind, or whose
    /// pre-tokenizer is missing or unknown.
    pub fn from_gguf(meta: &Metadata, options: &Options) -> Result<Self, TokenizerError> {
        let Built {
            vocab,
            model,
            cut,
            ends,
        } = build::build(meta, options)?;
        let special = SpecialTokens::new(&vocab, meta, options.parse_special)?;
        Ok(Self {
            cut: CutRule::new(cut, &special),
            fingerprint: fingerprint(meta, options),
            vocab,
            special,
            model,
            ends,
        })
    }

    /// The ids of a whole text, without BOS and EOS.
    pub fn encode(&self, text: &str) -> Result<Vec<u32>, TokenizerError> {
        self.encode_part(text, true)
    }

    /// The ids of a part of a text that [`Self::last_cut`] allowed to be taken
    /// apart; `first` for the part that the text begins with.
    pub fn encode_part(&self, text: &str, first: bool) -> Result<Vec<u32>, TokenizerError> {
        let mut ids = Vec::with_capacity(text.len() / 3);
        let mut starts = first;
        for fragment in self.special.partition(text) {
            match fragment {
                Fragment::Token(id) => ids.push(id),
                Fragment::Text(text) => match &self.model {
                    Model::Bpe(model) => model.encode(text, &mut ids)?,
                    Model::Spm(model) => model.encode(text, starts, &mut ids)?,
                    Model::Unigram(model) => model.encode(text, starts, &mut ids),
                    Model::Rwkv(model) => model.encode(text, &mut ids)?,
                },
            }
            starts = matches!(fragment, Fragment::Token(_));
        }
        Ok(ids)
    }

    /// The last byte offset, `from` or later, at which `text` can be cut so that
    /// its parts give the tokens of the whole, whatever text follows. It is
    /// never 0 nor the end of the text.
    pub fn last_cut(&self, text: &str, from: usize) -> Option<usize> {
        let mut chars = text.char_indices().rev();
        let (mut at, mut behind) = chars.next()?;
        for (before_at, before) in chars {
            if at < from {
                return None;
            }
            if self.cut.is_safe(before, behind) {
                return Some(at);
            }
            (at, behind) = (before_at, before);
        }
        None
    }

    /// Number of tokens; ids are smaller.
    pub fn vocab_size(&self) -> usize {
        self.vocab.len()
    }

    /// The id that begins a text, where the vocabulary has one.
    pub fn bos(&self) -> Option<u32> {
        self.ends.bos
    }

    /// The id that ends a text, where the vocabulary has one.
    pub fn eos(&self) -> Option<u32> {
        self.ends.eos
    }

    /// Whether a text begins with BOS; [`Self::bos`] is then set.
    pub fn add_bos(&self) -> bool {
        self.ends.add_bos
    }

    /// Whether a text ends with EOS; [`Self::eos`] is then set.
    pub fn add_eos(&self) -> bool {
        self.ends.add_eos
    }

    /// The token put before a text: BOS, if it is to be added. (llama.cpp adds
    /// none with RWKV vocabularies, whatever the flags say.)
    pub fn prefix(&self) -> Option<u32> {
        self.ends.bos.filter(|_| self.ends.add_bos && self.wraps())
    }

    /// The token put behind a text: EOS, if it is to be added.
    pub fn suffix(&self) -> Option<u32> {
        self.ends.eos.filter(|_| self.ends.add_eos && self.wraps())
    }

    fn wraps(&self) -> bool {
        !matches!(self.model, Model::Rwkv(_))
    }

    /// The bytes of text that a token stands for: none for control and unknown
    /// tokens and for ids outside the vocabulary.
    pub fn piece(&self, id: u32) -> Vec<u8> {
        let id = id as usize;
        let (Some(text), Some(kind)) = (self.vocab.texts.get(id), self.vocab.kinds.get(id)) else {
            return Vec::new();
        };
        match (kind, &self.model) {
            (Kind::Control | Kind::Unknown, _) => Vec::new(),
            (_, Model::Rwkv(_)) => rwkv::unescape(text),
            (Kind::UserDefined, _) => text.clone().into_bytes(),
            (Kind::Byte, _) => {
                byte_token(text).map_or_else(|| text.clone().into_bytes(), |b| vec![b])
            }
            (_, Model::Bpe(model)) => model.decode(text),
            (_, Model::Spm(_) | Model::Unigram(_)) => text.replace('\u{2581}', " ").into_bytes(),
        }
    }

    /// Why another tokenizer reads texts as other ids than this one, in words; `None`
    /// where nothing is found. Vocabularies, pre-tokenizers and what is put before and
    /// behind a text are looked at, merges and scores are not.
    pub fn difference(&self, other: &Self) -> Option<String> {
        if self.fingerprint == other.fingerprint {
            return None;
        }
        let (a, b) = (&self.vocab.texts, &other.vocab.texts);
        if self.model.kind() != other.model.kind() {
            let (a, b) = (self.model.kind(), other.model.kind());
            return Some(format!("one is {a}, the other {b}"));
        }
        if a.len() != b.len() {
            let (a, b) = (a.len(), b.len());
            return Some(format!("vocabularies of {a} and of {b} tokens"));
        }
        if let Some(id) = (0..a.len()).find(|&id| a[id] != b[id]) {
            return Some(format!("token {id} is {:?} and {:?}", a[id], b[id]));
        }
        if let (Model::Bpe(a), Model::Bpe(b)) = (&self.model, &other.model)
            && !a.cuts_as(b)
        {
            return Some("their pre-tokenizers differ".to_owned());
        }
        let ends = |ends: (Option<u32>, Option<u32>)| {
            let token = |id: Option<u32>| id.map_or("none".to_owned(), |id| format!("token {id}"));
            format!("{} before and {} behind it", token(ends.0), token(ends.1))
        };
        let ends_of = |t: &Self| (t.prefix(), t.suffix());
        let (a, b) = (ends_of(self), ends_of(other));
        (a != b).then(|| format!("a text has {} for one, {} for the other", ends(a), ends(b)))
    }

    /// A hash (hex) of all that decides the ids of a text.
    pub fn fingerprint(&self) -> String {
        self.fingerprint.clone()
    }
}

/// The byte of a byte token, `<0xXX>`.
fn byte_token(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    u8::from_str_radix(hex, 16).ok()
}

fn fingerprint(meta: &Metadata, options: &Options) -> String {
    let mut hash = Sha256::new();
    hash.update(ALGORITHM.to_le_bytes());
    hash.update(format!("{options:?}"));
    // Names that decide about special tokens, and the whole vocabulary.
    let decides = |key: &str| key.starts_with("tokenizer.ggml.") || key == "general.name";
    for (key, value) in meta.iter().filter(|(key, _)| decides(key)) {
        let mut field = |bytes: &[u8]| {
            hash.update((bytes.len() as u64).to_le_bytes());
            hash.update(bytes);
        };
        field(key.as_bytes());
        match value {
            Value::Array(crate::gguf::Array::String(texts)) => {
                field(&(texts.len() as u64).to_le_bytes());
                texts.iter().for_each(|t| field(t.as_bytes()));
            }
            Value::Array(crate::gguf::Array::F32(numbers)) => field(bytemuck::cast_slice(numbers)),
            Value::Array(crate::gguf::Array::I32(numbers)) => field(bytemuck::cast_slice(numbers)),
            other => field(format!("{other:?}").as_bytes()),
        }
    }
    format!("{:x}", hash.finalize())
}
