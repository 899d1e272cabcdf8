//! The GGUF reader against well-formed, malformed and mutated files.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use pplx::gguf::{Array, BlockType, Gguf, GgufWriter, Problem, Value};
use proptest::prelude::*;

/// Counts what each thread has allocated, so that a test can say how much the
/// reader takes. Test binary only.
struct Counting;

thread_local! {
    static LIVE: Cell<isize> = const { Cell::new(0) };
    static PEAK: Cell<isize> = const { Cell::new(0) };
}

fn count(bytes: isize) {
    // A thread that is ending has no counters any more.
    let _ = LIVE.try_with(|live| {
        live.set(live.get() + bytes);
        let _ = PEAK.try_with(|peak| peak.set(peak.get().max(live.get())));
    });
}

// SAFETY: every call is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as isize);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        count(-(layout.size() as isize));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The result of `f` and the most that it had allocated at a time.
fn peak_of<T>(f: impl FnOnce() -> T) -> (T, usize) {
    let before = LIVE.get();
    PEAK.set(before);
    let result = f();
    (result, (PEAK.get() - before) as usize)
}

// A file, field by field, as the specification lays it out.

fn string(s: &str) -> Vec<u8> {
    [&(s.len() as u64).to_le_bytes()[..], s.as_bytes()].concat()
}

fn head(version: u32, tensors: u64, pairs: u64) -> Vec<u8> {
    let mut out = b"GGUF".to_vec();
    out.extend(version.to_le_bytes());
    out.extend(tensors.to_le_bytes());
    out.extend(pairs.to_le_bytes());
    out
}

fn pair(key: &str, ty: u32, value: &[u8]) -> Vec<u8> {
    [&string(key)[..], &ty.to_le_bytes(), value].concat()
}

fn array(ty: u32, len: u64, elements: &[u8]) -> Vec<u8> {
    [&ty.to_le_bytes()[..], &len.to_le_bytes(), elements].concat()
}

fn tensor(name: &str, dims: &[u64], ty: u32, offset: u64) -> Vec<u8> {
    let mut out = string(name);
    out.extend((dims.len() as u32).to_le_bytes());
    out.extend(dims.iter().flat_map(|d| d.to_le_bytes()));
    out.extend(ty.to_le_bytes());
    out.extend(offset.to_le_bytes());
    out
}

/// Header parts, then `data` bytes of tensor data at the next multiple of 32.
fn file(parts: &[Vec<u8>], data: usize) -> Vec<u8> {
    let mut out = parts.concat();
    out.resize(out.len().next_multiple_of(32) + data, 0xab);
    out
}

fn read(bytes: Vec<u8>) -> Result<Gguf, Problem> {
    Gguf::from_bytes("test.gguf", bytes).map_err(|e| e.problem)
}

/// One file's refusal; the pattern says why it has to be refused.
macro_rules! refused {
    ($bytes:expr, $pattern:pat $(if $guard:expr)?) => {
        match read($bytes).err() {
            Some($pattern) $(if $guard)? => {}
            other => panic!("expected {}, got {other:?}", stringify!($pattern)),
        }
    };
}

/// Refusal of a file with one metadata pair.
macro_rules! pair_refused {
    ($ty:expr, $value:expr, $($pattern:tt)+) => {
        refused!([head(3, 0, 1), pair("k", $ty, &$value)].concat(), $($pattern)+)
    };
}

/// Refusal of a file with one tensor and 64 bytes of data.
macro_rules! tensor_refused {
    ($dims:expr, $ty:expr, $offset:expr, $($pattern:tt)+) => {
        refused!(file(&[head(3, 1, 0), tensor("t", $dims, $ty, $offset)], 64), $($pattern)+)
    };
}

#[test]
fn a_file_written_by_hand_is_read() {
    let scalars: [(u32, Vec<u8>, Value); 12] = [
        (0, vec![200], Value::U8(200)),
        (1, vec![0x80], Value::I8(-128)),
        (2, vec![0x34, 0x12], Value::U16(0x1234)),
        (3, vec![0xfe, 0xff], Value::I16(-2)),
        (4, vec![1, 0, 0, 0x80], Value::U32(0x8000_0001)),
        (5, vec![0xff; 4], Value::I32(-1)),
        (6, vec![0, 0, 0xc0, 0x3f], Value::F32(1.5)),
        (7, vec![1], Value::Bool(true)),
        (8, string("é"), Value::String("é".into())),
        (10, vec![0xff; 8], Value::U64(u64::MAX)),
        (11, vec![0xff; 8], Value::I64(-1)),
        (12, vec![0, 0, 0, 0, 0, 0, 0, 0xc0], Value::F64(-2.0)),
    ];
    let arrays: [(Vec<u8>, Array); 4] = [
        (
            array(5, 2, &[1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff]),
            Array::I32(vec![1, -1]),
        ),
        (array(7, 2, &[0, 1]), Array::Bool(vec![false, true])),
        (
            array(8, 2, &[string("a"), string("")].concat()),
            Array::String(vec!["a".into(), String::new()]),
        ),
        (array(6, 0, &[]), Array::F32(vec![])),
    ];
    for version in [2, 3] {
        let mut parts = vec![head(version, 2, 16)];
        for (i, (ty, bytes, _)) in scalars.iter().enumerate() {
            parts.push(pair(&format!("s{i}"), *ty, bytes));
        }
        for (i, (bytes, _)) in arrays.iter().enumerate() {
            parts.push(pair(&format!("a{i}"), 9, bytes));
        }
        parts.push(tensor("matrix", &[32, 3], 2, 64));
        parts.push(tensor("vector", &[5], 0, 0));
        let bytes = file(&parts, 64 + 3 * 18);
        let data_start = bytes.len() - 64 - 3 * 18;
        let gguf = read(bytes).unwrap();
        for (i, (_, _, value)) in scalars.iter().enumerate() {
            assert_eq!(gguf.metadata().get(&format!("s{i}")), Some(value));
        }
        for (i, (_, value)) in arrays.iter().enumerate() {
            let found = gguf.metadata().get(&format!("a{i}"));
            assert_eq!(found, Some(&Value::Array(value.clone())));
        }
        let matrix = gguf.tensor("matrix").unwrap();
        assert_eq!(
            (matrix.dims.as_slice(), matrix.ty),
            (&[32, 3][..], BlockType::Q4_0)
        );
        assert_eq!((matrix.offset, matrix.n_bytes), (data_start + 64, 54));
        assert_eq!((matrix.elements(), gguf.data(matrix).len()), (96, 54));
        let vector = gguf.tensor("vector").unwrap();
        assert_eq!((vector.offset, vector.n_bytes), (data_start, 20));
        assert!(gguf.tensor("absent").is_none());
    }
}

#[test]
fn block_sizes_are_those_of_candle() {
    use candle_core::quantized::GgmlDType as Candle;
    for (ours, candle) in [
        (BlockType::F32, Candle::F32),
        (BlockType::F16, Candle::F16),
        (BlockType::BF16, Candle::BF16),
        (BlockType::Q4_0, Candle::Q4_0),
        (BlockType::Q4_1, Candle::Q4_1),
        (BlockType::Q5_0, Candle::Q5_0),
        (BlockType::Q5_1, Candle::Q5_1),
        (BlockType::Q8_0, Candle::Q8_0),
        (BlockType::Q8_1, Candle::Q8_1),
        (BlockType::Q2_K, Candle::Q2K),
        (BlockType::Q3_K, Candle::Q3K),
        (BlockType::Q4_K, Candle::Q4K),
        (BlockType::Q5_K, Candle::Q5K),
        (BlockType::Q6_K, Candle::Q6K),
        (BlockType::Q8_K, Candle::Q8K),
    ] {
        let ours_size = (ours.block_elements(), ours.block_bytes());
        assert_eq!(
            ours_size,
            (candle.block_size(), candle.type_size()),
            "{ours}"
        );
    }
    for &ty in BlockType::ALL {
        assert_eq!(BlockType::from_id(ty.id()), Some(ty));
    }
}

#[test]
fn what_is_no_gguf_file_is_named() {
    refused!(vec![], Problem::BadMagic { found } if found.is_empty());
    refused!(b"GGU".to_vec(), Problem::BadMagic { .. });
    refused!(b"GGML\x03\0\0\0".to_vec(), Problem::BadMagic { found } if found == b"GGML");
    refused!(head(1, 0, 0), Problem::Version(1));
    refused!(head(4, 0, 0), Problem::Version(4));
    refused!(head(0, 0, 0), Problem::Version(0));
    refused!(head(3u32.swap_bytes(), 0, 0), Problem::BigEndian);
    refused!(head(2u32.swap_bytes(), 0, 0), Problem::BigEndian);
}

#[test]
fn files_that_cannot_be_opened_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let open = |name: &str| Gguf::open(dir.path().join(name)).err().unwrap();
    let missing = open("missing.gguf");
    assert!(matches!(missing.problem, Problem::Io(_)));
    assert!(missing.to_string().contains("missing.gguf"), "{missing}");
    assert!(matches!(open(".").problem, Problem::Io(_)));
    std::fs::write(dir.path().join("empty.gguf"), b"").unwrap();
    assert!(matches!(
        open("empty.gguf").problem,
        Problem::BadMagic { .. }
    ));
    let path = dir.path().join("good.gguf");
    std::fs::write(&path, sample()).unwrap();
    let mapped = Gguf::open(&path).unwrap();
    let owned = read(sample()).unwrap();
    assert_eq!(mapped.tensors(), owned.tensors());
    assert_eq!(mapped.file_len(), sample().len());
    for t in owned.tensors() {
        assert_eq!(mapped.data(t), owned.data(t));
    }
}

#[test]
fn counts_in_the_billions_are_refused_without_allocating() {
    let billions = [3_000_000_000, u64::MAX, u64::MAX / 8 + 2, 1 << 61];
    for n in billions {
        let huge = [
            head(3, 0, n),
            head(3, n, 0),
            [head(3, 0, 1), n.to_le_bytes().to_vec()].concat(),
            [head(3, 0, 1), pair("k", 8, &n.to_le_bytes())].concat(),
            [head(3, 1, 0), n.to_le_bytes().to_vec()].concat(),
        ];
        let arrays = [0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12]
            .map(|ty| [head(3, 0, 1), pair("k", 9, &array(ty, n, &[0; 64]))].concat());
        for mut bytes in huge.into_iter().chain(arrays) {
            bytes.extend([0; 64]);
            let (result, peak) = peak_of(|| read(bytes).err());
            let named = matches!(
                result,
                Some(Problem::ImplausibleCount { .. } | Problem::Truncated { .. })
            );
            assert!(named, "{result:?}");
            assert!(peak < 4096, "{peak} bytes were allocated for {result:?}");
        }
    }
}

#[test]
fn malformed_metadata_is_named() {
    pair_refused!(13, [0; 8], Problem::ValueType { id: 13, key } if key == "k");
    pair_refused!(9, array(13, 1, &[0; 8]), Problem::ValueType { id: 13, .. });
    let nested = array(9, 1, &array(0, 1, &[0]));
    pair_refused!(9, nested, Problem::NestedArray { .. });
    pair_refused!(7, [2], Problem::Bool { found: 2, .. });
    pair_refused!(9, array(7, 2, &[1, 3]), Problem::Bool { found: 3, .. });
    // 24 bytes of header, 8 + 1 of the key, 4 of the type, 8 of the length, and
    // the invalid byte is the second.
    let bad = [&2u64.to_le_bytes()[..], b"a\xff"].concat();
    pair_refused!(8, bad, Problem::Utf8 { at: 46, .. });
    pair_refused!(9, array(8, 1, &bad), Problem::Utf8 { .. });
    let bad_key = [head(3, 0, 1), bad.clone(), vec![0; 16]].concat();
    refused!(bad_key, Problem::Utf8 { at: 33, .. });
    let bad_name = [head(3, 1, 0), bad, vec![0; 64]].concat();
    refused!(bad_name, Problem::Utf8 { at: 33, .. });
    let twice = [head(3, 0, 2), pair("k", 0, &[1]), pair("k", 7, &[1])].concat();
    refused!(twice, Problem::DuplicateKey(key) if key == "k");
}

#[test]
fn alignments_are_checked() {
    let aligned = |ty, value: &[u8]| [head(3, 0, 1), pair("general.alignment", ty, value)].concat();
    for bad in [0u32, 1, 4, 24, 33, 1 << 17, u32::MAX] {
        refused!(aligned(4, &bad.to_le_bytes()), Problem::Alignment(_));
    }
    refused!(aligned(8, &string("32")), Problem::Alignment(text) if text.contains("\"32\""));
    refused!(aligned(5, &(-32i32).to_le_bytes()), Problem::Alignment(_));
    for good in [8u32, 32, 64, 65536] {
        read(aligned(4, &good.to_le_bytes())).unwrap();
    }
    // The alignment moves the start of the data and the offsets allowed.
    let two = |offset| {
        [
            head(3, 2, 1),
            pair("general.alignment", 4, &64u32.to_le_bytes()),
            tensor("a", &[8], 0, 0),
            tensor("b", &[8], 0, offset),
        ]
        .concat()
    };
    refused!(
        two(32),
        Problem::Misaligned {
            offset: 32,
            alignment: 64,
            ..
        }
    );
    let mut bytes = two(64);
    let data_start = bytes.len().next_multiple_of(64);
    bytes.resize(data_start + 96, 0);
    let gguf = read(bytes).unwrap();
    assert_eq!(gguf.tensor("b").unwrap().offset, data_start + 64);
}

#[test]
fn malformed_tensors_are_named() {
    tensor_refused!(&[], 0, 0, Problem::DimensionCount { found: 0, .. });
    tensor_refused!(&[1; 5], 0, 0, Problem::DimensionCount { found: 5, .. });
    tensor_refused!(&[0], 0, 0, Problem::Shape { .. });
    tensor_refused!(&[4, 0, 4], 0, 0, Problem::Shape { .. });
    tensor_refused!(&[1 << 32, 1 << 32], 0, 0, Problem::Shape { .. });
    tensor_refused!(&[1 << 62, 2], 0, 0, Problem::Shape { .. });
    // Elements fit 63 bits, their bytes do not fit 64.
    tensor_refused!(&[1 << 62], 28, 0, Problem::Shape { .. });
    tensor_refused!(&[1 << 61], 0, 0, Problem::PastEnd { .. });
    for unused in [4, 5, 31, 33, 36, 38, 43, 1000, u32::MAX] {
        tensor_refused!(&[32], unused, 0, Problem::ElementType { id, .. } if id == unused);
    }
    tensor_refused!(
        &[33],
        2,
        0,
        Problem::RowLength {
            row: 33,
            ty: BlockType::Q4_0,
            ..
        }
    );
    // Whole blocks in all, but not in each row.
    tensor_refused!(&[16, 2], 2, 0, Problem::RowLength { row: 16, .. });
    tensor_refused!(&[128], 12, 0, Problem::RowLength { .. });
    tensor_refused!(
        &[4],
        0,
        8,
        Problem::Misaligned {
            offset: 8,
            alignment: 32,
            ..
        }
    );
    tensor_refused!(
        &[17],
        0,
        0,
        Problem::PastEnd {
            bytes: 68,
            data_len: 64,
            ..
        }
    );
    tensor_refused!(&[4], 0, 64, Problem::PastEnd { offset: 64, .. });
    tensor_refused!(&[4], 0, u64::MAX - 31, Problem::PastEnd { .. });
    tensor_refused!(&[4], 0, 1 << 63, Problem::PastEnd { .. });
    read(file(&[head(3, 1, 0), tensor("t", &[16], 0, 0)], 64)).unwrap();

    let two = |names: [&str; 2], first: u64, second: u64| {
        let infos = [
            tensor(names[0], &[9], 0, first),
            tensor(names[1], &[8], 0, second),
        ];
        let [a, b] = infos;
        file(&[head(3, 2, 0), a, b], 128)
    };
    refused!(two(["a", "a"], 0, 64), Problem::DuplicateTensor(name) if name == "a");
    refused!(two(["a", "b"], 0, 0), Problem::Overlap { .. });
    refused!(two(["a", "b"], 0, 32), Problem::Overlap { first, second } if first == "a" && second == "b");
    refused!(two(["a", "b"], 64, 96), Problem::Overlap { .. });
    read(two(["a", "b"], 0, 64)).unwrap();
    read(two(["a", "b"], 32, 0)).unwrap();
}

/// A small file that has everything in it.
fn sample() -> Vec<u8> {
    let mut w = GgufWriter::new("llama");
    w.meta("u8", Value::U8(1));
    w.meta("i16", Value::I16(-5));
    w.meta("general.alignment", Value::U32(32));
    w.meta("f32", Value::F32(1e-5));
    w.meta("bool", Value::Bool(true));
    w.meta("f64", Value::F64(0.5));
    w.meta("i64", Value::I64(-1));
    let strings = ["<s>", "</s>", "é", ""].map(str::to_owned);
    w.meta("tokens", Value::Array(Array::String(strings.to_vec())));
    w.meta("scores", Value::Array(Array::F32(vec![0.0, -1.5, 3.0])));
    w.meta("types", Value::Array(Array::I32(vec![1, 3, 6])));
    w.meta("flags", Value::Array(Array::Bool(vec![true, false])));
    w.f32_tensor("norm", &[3], &[1.0, 2.0, 3.0]);
    w.tensor("blk.0.q", &[32, 2], BlockType::Q8_0, vec![7; 68]);
    w.tensor("blk.0.k", &[256, 1, 1, 1], BlockType::Q4_K, vec![9; 144]);
    w.to_bytes()
}

#[test]
fn a_file_cut_at_any_byte_is_refused() {
    let whole = sample();
    assert!(read(whole.clone()).is_ok());
    for len in 0..whole.len() {
        let problem = read(whole[..len].to_vec()).err();
        let named = match &problem {
            Some(Problem::BadMagic { found }) => len < 4 && *found == whole[..len],
            Some(Problem::Truncated { at, need, left, .. }) => {
                at + left == len && *need > *left as u64
            }
            Some(Problem::ImplausibleCount { .. } | Problem::PastEnd { .. }) => true,
            _ => false,
        };
        assert!(named, "cut at {len} of {}: {problem:?}", whole.len());
    }
}

/// Marsaglia's xorshift: mutations that are the same in every run.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() >> 33) as usize % n
    }
}

fn mutate(bytes: &mut Vec<u8>, random: &mut Random) {
    let len = bytes.len();
    match random.below(5) {
        0 => {
            let at = random.below(len);
            bytes[at] ^= 1 << random.below(8);
        }
        1 => {
            for _ in 0..=random.below(8) {
                let at = random.below(len);
                bytes[at] = random.next() as u8;
            }
        }
        2 => {
            // A count, length or offset at the edge of something.
            let n = len as u64;
            let edges = [0, 1, n - 1, n, n + 1, 1 << 31, 1 << 32, 1 << 63, u64::MAX];
            let value = edges[random.below(edges.len())].wrapping_sub(random.below(64) as u64);
            let at = random.below(len - 8);
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        3 => bytes.truncate(random.below(len)),
        _ => {
            let (from, to) = (random.below(len), random.below(len));
            let n = random.below(len - from.max(to)).min(64);
            bytes.copy_within(from..from + n, to);
        }
    }
}

#[test]
fn mutated_files_neither_panic_nor_allocate_much() {
    let whole = sample();
    let mut random = Random(0x5eed_5eed_5eed_5eed);
    let (mut accepted, mut most) = (0, 0);
    const RUNS: usize = 200_000;
    for run in 0..RUNS {
        let mut bytes = whole.clone();
        mutate(&mut bytes, &mut random);
        let len = bytes.len();
        let parse = || {
            let gguf = read(bytes).ok()?;
            // What was accepted must be usable.
            let data: usize = gguf.tensors().iter().map(|t| gguf.data(t).len()).sum();
            let described: usize = gguf
                .metadata()
                .iter()
                .map(|(_, v)| v.describe().len())
                .sum();
            Some(data + described)
        };
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| peak_of(parse)));
        let (result, peak) = caught.unwrap_or_else(|_| panic!("mutation {run} panicked"));
        accepted += usize::from(result.is_some());
        most = most.max(peak);
        assert!(
            peak <= 12 * len + 1024,
            "mutation {run}: {peak} bytes for a file of {len}"
        );
    }
    eprintln!(
        "{RUNS} mutations, {accepted} accepted, at most {most} bytes for {}",
        whole.len()
    );
    // Mutations of data and padding are harmless, most of the others are not.
    assert!((RUNS / 10..RUNS * 9 / 10).contains(&accepted), "{accepted}");
}

#[test]
fn memory_stays_a_small_multiple_of_the_header() {
    let empty = [
        head(3, 0, 1),
        pair("k", 9, &array(8, 50_000, &[0; 400_000])),
    ]
    .concat();
    let mut pairs = vec![head(3, 0, 20_000)];
    pairs.extend((0..20_000).map(|i| pair(&format!("{i:x}"), 0, &[0])));
    let mut tensors = vec![head(3, 10_000, 0)];
    tensors.extend((0..10_000).map(|i| tensor(&format!("{i:x}"), &[1], 0, 32 * i)));
    for bytes in [empty, pairs.concat(), file(&tensors, 320_000)] {
        let len = bytes.len();
        let (gguf, peak) = peak_of(|| read(bytes));
        assert!(gguf.is_ok());
        assert!(peak <= 12 * len, "{peak} bytes for a file of {len}");
    }
}

fn floats32() -> impl Strategy<Value = f32> {
    any::<u32>().prop_map(f32::from_bits)
}

fn floats64() -> impl Strategy<Value = f64> {
    any::<u64>().prop_map(f64::from_bits)
}

fn scalars() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::U8),
        any::<i8>().prop_map(Value::I8),
        any::<u16>().prop_map(Value::U16),
        any::<i16>().prop_map(Value::I16),
        any::<u32>().prop_map(Value::U32),
        any::<i32>().prop_map(Value::I32),
        floats32().prop_map(Value::F32),
        any::<bool>().prop_map(Value::Bool),
        ".{0,12}".prop_map(Value::String),
        any::<u64>().prop_map(Value::U64),
        any::<i64>().prop_map(Value::I64),
        floats64().prop_map(Value::F64),
    ]
}

fn arrays() -> impl Strategy<Value = Value> {
    fn many<S: Strategy>(element: S) -> impl Strategy<Value = Vec<S::Value>> {
        proptest::collection::vec(element, 0..6)
    }
    let arrays = prop_oneof![
        many(any::<u8>()).prop_map(Array::U8),
        many(any::<i8>()).prop_map(Array::I8),
        many(any::<u16>()).prop_map(Array::U16),
        many(any::<i16>()).prop_map(Array::I16),
        many(any::<u32>()).prop_map(Array::U32),
        many(any::<i32>()).prop_map(Array::I32),
        many(floats32()).prop_map(Array::F32),
        many(any::<bool>()).prop_map(Array::Bool),
        many(".{0,12}").prop_map(Array::String),
        many(any::<u64>()).prop_map(Array::U64),
        many(any::<i64>()).prop_map(Array::I64),
        many(floats64()).prop_map(Array::F64),
    ];
    arrays.prop_map(Value::Array)
}

/// Dimensions and type of a tensor whose rows are whole blocks.
fn tensors() -> impl Strategy<Value = (BlockType, Vec<u64>, u8)> {
    let ty = proptest::sample::select(BlockType::ALL.to_vec());
    let rest = proptest::collection::vec(1u64..4, 0..=3);
    (ty, 1u64..3, rest, any::<u8>()).prop_map(|(ty, blocks, rest, fill)| {
        let mut dims = vec![blocks * ty.block_elements() as u64];
        dims.extend(rest);
        (ty, dims, fill)
    })
}

/// Equal to the bit: a NaN equals itself, 0 and -0 differ.
fn same(a: &Value, b: &Value) -> bool {
    let bits32 = |v: &[f32]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let bits64 = |v: &[f64]| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    match (a, b) {
        (Value::F32(a), Value::F32(b)) => a.to_bits() == b.to_bits(),
        (Value::F64(a), Value::F64(b)) => a.to_bits() == b.to_bits(),
        (Value::Array(Array::F32(a)), Value::Array(Array::F32(b))) => bits32(a) == bits32(b),
        (Value::Array(Array::F64(a)), Value::Array(Array::F64(b))) => bits64(a) == bits64(b),
        _ => a == b,
    }
}

proptest! {
    // The seeds of failures belong into tests, not into files beside them.
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_written_is_read_back(
        values in proptest::collection::vec((".{0,8}", prop_oneof![scalars(), arrays()]), 0..12),
        tensors in proptest::collection::vec(tensors(), 0..6),
    ) {
        let mut w = GgufWriter::default();
        for (i, (key, value)) in values.iter().enumerate() {
            w.meta(&format!("{i}{key}"), value.clone());
        }
        for (i, (ty, dims, fill)) in tensors.iter().enumerate() {
            let bytes = ty.bytes_for(dims.iter().product()).unwrap() as usize;
            w.tensor(&format!("t{i}"), dims, *ty, vec![*fill; bytes]);
        }
        let gguf = read(w.to_bytes()).unwrap();
        let found: Vec<_> = gguf.metadata().iter().collect();
        prop_assert_eq!(found.len(), values.len());
        for (i, ((key, value), (found_key, found_value))) in values.iter().zip(found).enumerate() {
            prop_assert_eq!(format!("{i}{key}"), found_key);
            prop_assert!(same(value, found_value), "{:?} {:?}", value, found_value);
        }
        prop_assert_eq!(gguf.tensors().len(), tensors.len());
        for ((ty, dims, fill), found) in tensors.iter().zip(gguf.tensors()) {
            prop_assert_eq!((ty, dims), (&found.ty, &found.dims));
            prop_assert!(gguf.data(found).iter().all(|b| b == fill));
            prop_assert_eq!(found.offset % 32, 0);
        }
    }
}
