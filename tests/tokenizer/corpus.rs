//! Corpora, id files and the token cache.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use pplx::corpus::{
    CorpusError, CorpusTokens, TokenCache, read_ids, tokenize_file, tokenize_reader,
    tokenize_reader_until, write_ids,
};
use pplx::tokenizer::{Options, Tokenizer};
use proptest::prelude::*;

use super::support::pair_vocab;

fn gpt2() -> Tokenizer {
    Tokenizer::from_gguf(pair_vocab("gpt-2").metadata(), &Options::default()).unwrap()
}

/// The offset in the error for a text that is not UTF-8.
fn bad_byte(text: &[u8], chunk_bytes: usize) -> u64 {
    let mut source = text;
    match tokenize_reader(&mut source, Path::new("t"), &gpt2(), chunk_bytes) {
        Err(CorpusError::Utf8 { offset, .. }) => offset,
        other => panic!("{other:?}"),
    }
}

#[test]
fn invalid_utf8_is_named_by_its_offset() {
    for chunk_bytes in [1, 2, 3, 5, 1000] {
        assert_eq!(bad_byte(b"a b\xffc", chunk_bytes), 3);
        assert_eq!(
            bad_byte("é é 漢".as_bytes().split_last().unwrap().1, chunk_bytes),
            6
        );
        assert_eq!(bad_byte(b"hello w\xe6\xbcorld", chunk_bytes), 7);
        assert_eq!(bad_byte(b"ok \xc0\xaf", chunk_bytes), 3);
    }
}

#[test]
fn a_character_split_by_a_read_is_no_error() {
    let text = "é 漢字 🦙 x";
    let mut source = text.as_bytes();
    let tokens = tokenize_reader(&mut source, Path::new("t"), &gpt2(), 1).unwrap();
    assert_eq!(tokens.ids, gpt2().encode(text).unwrap());
}

#[test]
fn a_chunk_of_nothing_is_refused() {
    let error = tokenize_reader(&mut "x".as_bytes(), Path::new("t"), &gpt2(), 0);
    assert!(error.unwrap_err().to_string().contains("chunk size"));
}

proptest! {
    #[test]
    fn ids_survive_their_files(ids in prop::collection::vec(any::<u32>(), 0..50)) {
        let directory = tempfile::tempdir().unwrap();
        let lines = directory.path().join("ids");
        write_ids(&lines, &ids).unwrap();
        prop_assert_eq!(&read_ids(&lines).unwrap(), &ids);
        let json = directory.path().join("ids.json");
        std::fs::write(&json, format!(" {ids:?}\n")).unwrap();
        prop_assert_eq!(read_ids(&json).unwrap(), ids);
    }
}

#[test]
fn what_is_no_id_is_named_by_its_line() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ids");
    let message = |text: &str| {
        std::fs::write(&path, text).unwrap();
        read_ids(&path).unwrap_err().to_string()
    };
    assert!(message("1\n\n2\nx3\n").contains("line 4: \"x3\""));
    assert!(message("1\n-2\n").contains("line 2"));
    assert!(message("4294967296").contains("line 1"));
    assert!(message("[1, 2").contains("JSON"));
    assert!(message("[1.5]").contains("JSON"));
}

/// [`TokenCache::tokenize`] where nothing stops it and the cache can be written.
fn through(
    cache: &TokenCache,
    corpus: &Path,
    tokenizer: &Tokenizer,
    chunk_bytes: usize,
) -> Result<CorpusTokens, CorpusError> {
    let (never, mut writable) = (AtomicBool::new(false), |e| panic!("{e}"));
    cache.tokenize(corpus, tokenizer, chunk_bytes, &never, &mut writable)
}

#[test]
fn the_cache_gives_what_tokenizing_gives() {
    let directory = tempfile::tempdir().unwrap();
    let corpus = directory.path().join("corpus.txt");
    std::fs::write(&corpus, "hello world 2024\n").unwrap();
    let tokenizer = gpt2();
    let expected = tokenize_file(&corpus, &tokenizer, 4).unwrap();
    let cache = TokenCache::new(Some(directory.path().join("cache")));
    let entries = || -> Vec<_> {
        let files = std::fs::read_dir(directory.path().join("cache")).unwrap();
        files.map(|f| f.unwrap().path()).collect()
    };
    assert_eq!(through(&cache, &corpus, &tokenizer, 4).unwrap(), expected);
    let entry = &entries()[0];
    let written = std::fs::read(entry).unwrap();
    // What is read is the entry, if it is whole: here one with other ids in it.
    assert_eq!(through(&cache, &corpus, &tokenizer, 4).unwrap(), expected);

    // Damaged anywhere, or cut short, it is made anew.
    for at in (0..written.len()).step_by(7).chain([written.len() - 1]) {
        let mut damaged = written.clone();
        damaged[at] ^= 1;
        std::fs::write(entry, &damaged).unwrap();
        assert_eq!(through(&cache, &corpus, &tokenizer, 4).unwrap(), expected);
        assert_eq!(std::fs::read(entry).unwrap(), written);
        std::fs::write(entry, &written[..at]).unwrap();
        assert_eq!(through(&cache, &corpus, &tokenizer, 4).unwrap(), expected);
    }

    // Another text or another tokenizer is another entry.
    std::fs::write(&corpus, "hello world 2025\n").unwrap();
    let changed = through(&cache, &corpus, &tokenizer, 4).unwrap();
    assert_ne!(changed.ids, expected.ids);
    let gguf = pair_vocab("gpt-2");
    let with_bos = Options {
        add_bos: Some(true),
        ..Options::default()
    };
    let other = Tokenizer::from_gguf(gguf.metadata(), &with_bos).unwrap();
    let begun = through(&cache, &corpus, &other, 4).unwrap();
    assert_eq!(begun.ids[1..], changed.ids);
    assert_eq!(entries().len(), 3);
}

#[test]
fn the_cache_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let corpus = directory.path().join("corpus.txt");
    std::fs::write(&corpus, "hello world").unwrap();
    let tokenizer = gpt2();
    let cache = TokenCache::new(Some(directory.path().join("cache")));
    through(&cache, &corpus, &tokenizer, 4).unwrap();
    // A chunk size that tokenizing refuses shows whether it happens.
    assert!(through(&cache, &corpus, &tokenizer, 0).is_ok());
}

#[test]
fn a_cache_that_cannot_be_written_costs_nothing_but_time() {
    let directory = tempfile::tempdir().unwrap();
    let corpus = directory.path().join("corpus.txt");
    std::fs::write(&corpus, "hello world 2024\n").unwrap();
    let tokenizer = gpt2();
    let expected = tokenize_file(&corpus, &tokenizer, 4).unwrap();
    let never = AtomicBool::new(false);
    for (cache, noted) in [(Some(corpus.join("no-directory")), 1), (None, 0)] {
        let mut notes = 0;
        let cache = TokenCache::new(cache);
        let mut forgetful = |_| notes += 1;
        let tokens = cache.tokenize(&corpus, &tokenizer, 4, &never, &mut forgetful);
        assert_eq!(tokens.unwrap(), expected);
        assert_eq!(notes, noted);
    }
}

#[test]
fn tokenizing_ends_when_it_is_interrupted() {
    /// A text without end, which raises the flag after a while.
    struct Endless<'a>(&'a AtomicBool, usize);
    impl std::io::Read for Endless<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
            self.1 += 1;
            self.0.store(self.1 >= 100, Ordering::Relaxed);
            assert!(self.1 <= 100, "it goes on");
            buffer.fill(b' ');
            buffer[0] = b'a';
            Ok(buffer.len())
        }
    }
    let raised = AtomicBool::new(false);
    let mut text = Endless(&raised, 0);
    let tokens = tokenize_reader_until(&mut text, Path::new("t"), &gpt2(), 64, &raised);
    assert!(matches!(tokens, Err(CorpusError::Interrupted)));

    let directory = tempfile::tempdir().unwrap();
    let corpus = directory.path().join("corpus.txt");
    std::fs::write(&corpus, "hello").unwrap();
    for cache in [None, Some(directory.path().join("cache"))] {
        let tokens = TokenCache::new(cache).tokenize(&corpus, &gpt2(), 4, &raised, &mut |_| ());
        assert!(matches!(tokens, Err(CorpusError::Interrupted)));
    }
    assert!(!directory.path().join("cache").exists());
}
