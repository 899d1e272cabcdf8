//! Builds the CUDA stand-in once and makes cudarc load it; see README.md.
//!
//! Each test file that uses it compiles its own copy (`#[path]`), so not every
//! helper is used in each.
#![allow(dead_code)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_NOW};

use crate::skip;
use sha2::{Digest, Sha256};

const SOURCES: [&str; 15] = [
    "block", "context", "control", "cublas", "driver", "fiber", "gemm", "launch", "memory",
    "module", "nvrtc", "status", "stream", "team", "warp",
];

const LIBRARY: &str = "libpplx-cuda-standin.so";

/// The names that cudarc and we look for. Each is an empty library with that
/// name as its SONAME, which needs the one with the code.
const NAMES: [&str; 6] = [
    "libcuda.so",
    "libcuda.so.1",
    "libnvrtc.so",
    "libnvrtc.so.12",
    "libcublas.so",
    "libcublas.so.12",
];

/// The stand-in's libraries in this process, and what only a stand-in can do.
pub struct StandIn {
    library: Library,
}

/// The stand-in, alone: what is set and counted is the process's, so tests
/// that use it run one after the other. It starts and ends as a device
/// without failures.
pub struct Exclusive {
    standin: &'static StandIn,
    _lock: MutexGuard<'static, ()>,
}

impl std::ops::Deref for Exclusive {
    type Target = StandIn;
    fn deref(&self) -> &StandIn {
        self.standin
    }
}

impl Drop for Exclusive {
    fn drop(&mut self) {
        self.standin.recover();
    }
}

/// Loads the stand-in for this process, or `None` where `PPLX_CUDA_STANDIN=0`
/// asks for the real driver.
///
/// It must come before anything that cudarc does: cudarc keeps what it finds
/// first. glibc gives a library that is already loaded to whoever asks for its
/// SONAME, so neither `LD_LIBRARY_PATH` nor a second process is needed.
pub fn standin() -> Option<Exclusive> {
    static STANDIN: OnceLock<Option<StandIn>> = OnceLock::new();
    static LOCK: Mutex<()> = Mutex::new(());
    let lock = LOCK.lock().unwrap_or_else(PoisonError::into_inner);
    let standin = STANDIN
        .get_or_init(|| {
            if std::env::var_os("PPLX_CUDA_STANDIN").is_some_and(|v| v == "0") {
                return None;
            }
            Some(StandIn::load(&build()))
        })
        .as_ref();
    let Some(standin) = standin else {
        skip::skip("standin", "PPLX_CUDA_STANDIN is 0");
        return None;
    };
    standin.recover();
    standin.get("standin_end_contexts");
    Some(Exclusive {
        standin,
        _lock: lock,
    })
}

/// Makes a program that a test starts find the stand-in.
///
/// Set `STANDIN_MEMORY`, `STANDIN_FAIL_ALLOCATION`, `STANDIN_FAIL_LAUNCH` or
/// `STANDIN_LOSE_DEVICE` on it for what [`StandIn`]'s functions of these names
/// do here.
pub fn for_command(command: &mut Command) -> &mut Command {
    command.env("LD_LIBRARY_PATH", build())
}

/// Leaves a program the libraries that the system itself has: none, on a machine
/// without a driver.
pub fn without_cuda(command: &mut Command) -> &mut Command {
    command.env_remove("LD_LIBRARY_PATH")
}

impl StandIn {
    fn load(directory: &Path) -> StandIn {
        let open = |name: &str| {
            let path = directory.join(name);
            // SAFETY: the libraries are the ones just built; their
            // constructors read environment variables only.
            unsafe { Library::open(Some(&path), RTLD_NOW | RTLD_GLOBAL) }
                .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        };
        let library = open(LIBRARY);
        for name in NAMES {
            std::mem::forget(open(name));
        }
        StandIn { library }
    }

    fn get(&self, name: &str) -> u64 {
        // SAFETY: all functions of these names have this signature.
        unsafe {
            let f = self
                .library
                .get::<unsafe extern "C" fn() -> u64>(name.as_bytes())
                .expect("a control of the stand-in");
            f()
        }
    }

    fn set(&self, name: &str, value: u64) {
        // SAFETY: as above.
        unsafe {
            let f = self
                .library
                .get::<unsafe extern "C" fn(u64)>(name.as_bytes())
                .expect("a control of the stand-in");
            f(value);
        }
    }

    /// How much memory the device has; 8 GiB where nobody says.
    pub fn set_memory(&self, bytes: u64) {
        self.set("standin_set_memory", bytes);
    }

    /// Bytes in use, each allocation rounded up to 256.
    pub fn used_memory(&self) -> u64 {
        self.get("standin_used_memory")
    }

    /// Most bytes in use at once since [`reset_peak`](Self::reset_peak).
    pub fn peak_memory(&self) -> u64 {
        self.get("standin_peak_memory")
    }

    pub fn reset_peak(&self) {
        self.get("standin_reset_peak");
    }

    pub fn live_allocations(&self) -> u64 {
        self.get("standin_live_allocations")
    }

    /// Allocations so far, failed ones included.
    pub fn allocations(&self) -> u64 {
        self.get("standin_allocations")
    }

    /// Kernels and cuBLAS products launched so far.
    pub fn launches(&self) -> u64 {
        self.get("standin_launches")
    }

    /// Fails the `n`-th allocation from now on (1 is the next).
    pub fn fail_allocation(&self, n: u64) {
        self.set("standin_fail_allocation", n);
    }

    /// Fails the `n`-th launch from now on, as the device does: the launch
    /// itself succeeds, and what comes after it reports the failure.
    pub fn fail_launch(&self, n: u64) {
        self.set("standin_fail_launch", n);
    }

    /// Fails the `calls`-th call of the driver from now on, and all after it.
    pub fn lose_device(&self, calls: u64) {
        self.set("standin_lose_device", calls);
    }

    /// Runs the blocks of a grid, and the threads of a block between barriers,
    /// from the last to the first. What a kernel computes must not change.
    pub fn set_reverse(&self, on: bool) {
        self.set("standin_set_reverse", on.into());
    }

    /// How many host threads one launch may take; 2 where there are as many.
    pub fn set_host_threads(&self, n: u64) {
        self.set("standin_set_host_threads", n);
    }

    /// Takes all failures back, those that have happened included. What is
    /// allocated stays.
    pub fn recover(&self) {
        self.get("standin_recover");
        self.set_memory(8 << 30);
        self.set_reverse(false);
    }
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda-standin")
}

/// Instructions that kernels and products are compiled to: those of this
/// machine, in two steps, so that the choice can be part of a name.
fn host_flags() -> &'static str {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") {
        return "-march=x86-64-v3";
    }
    ""
}

/// The folder with the libraries, which are built where their sources, the
/// compiler's flags or this folder are new.
fn build() -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| build_in(&root())).clone()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join("cuda-standin")
}

fn build_in(root: &Path) -> PathBuf {
    let sources = sources();
    let mut files: Vec<PathBuf> = std::fs::read_dir(&sources)
        .expect("the stand-in's sources")
        .map(|e| e.expect("an entry").path())
        .filter(|p| p.extension().is_some_and(|e| e == "cpp" || e == "h"))
        .collect();
    files.sort();
    let mut hash = Sha256::new();
    for file in &files {
        hash.update(file.to_string_lossy().as_bytes());
        hash.update(std::fs::read(file).expect("a source"));
    }
    hash.update(host_flags());
    let hash: String = hash.finalize()[..8]
        .iter()
        .map(|b| format!("{b:02x}"))
        .collect();
    let directory = root.join(hash);
    std::fs::create_dir_all(&directory).expect("a folder in the target folder");
    // Test programs may run at the same time; the others wait for the first.
    let lock = File::create(root.join("lock")).expect("a lock file");
    lock.lock().expect("a lock");
    let done = directory.join("built");
    if !done.exists() {
        compile(&sources, &directory);
        std::fs::write(&done, "").expect("a mark");
    }
    directory
}

fn compile(sources: &Path, directory: &Path) {
    let text = |name: &str, value: &str| format!("-D{name}=\"{value}\"");
    let flags = [
        "-std=c++17".to_owned(),
        "-O2".to_owned(),
        "-fPIC".to_owned(),
        text("STANDIN_SOURCE_DIR", &sources.to_string_lossy()),
        text("STANDIN_BUILD_DIR", &directory.to_string_lossy()),
        text("STANDIN_HOST_FLAGS", host_flags()),
    ];
    let run = |command: &mut Command| {
        let output = command
            .output()
            .unwrap_or_else(|e| panic!("the CUDA stand-in is built with g++: {e}"));
        assert!(
            output.status.success(),
            "{command:?}\n{}",
            String::from_utf8_lossy(&output.stderr)
        );
    };
    let objects: Vec<PathBuf> = SOURCES
        .iter()
        .map(|s| directory.join(s).with_extension("o"))
        .collect();
    std::thread::scope(|scope| {
        let (run, flags) = (&run, &flags);
        for (source, object) in SOURCES.iter().zip(&objects) {
            scope.spawn(move || {
                let mut command = Command::new("g++");
                command.args(flags);
                if *source == "gemm" {
                    command.arg("-O3").args(host_flags().split_whitespace());
                }
                command
                    .arg("-c")
                    .arg(sources.join(source).with_extension("cpp"))
                    .arg("-o")
                    .arg(object);
                run(&mut command);
            });
        }
    });
    let library = directory.join(LIBRARY);
    let shared = |soname: &str, to: &Path| {
        let mut command = Command::new("g++");
        command
            .args(["-shared", "-Wl,--no-as-needed", "-Wl,-rpath,$ORIGIN"])
            .arg(format!("-Wl,-soname,{soname}"))
            .arg("-o")
            .arg(to);
        command
    };
    run(shared(LIBRARY, &library)
        .args(&objects)
        .args(["-ldl", "-lpthread"]));
    for name in NAMES {
        run(shared(name, &directory.join(name)).arg(&library));
    }
    for object in objects {
        let _ = std::fs::remove_file(object);
    }
}
