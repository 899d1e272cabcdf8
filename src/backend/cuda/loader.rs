//! Finds NVIDIA's libraries before anything is called in them, so that a missing
//! one is an error with a name.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::error::CudaError;
use super::library::{Library, PATH_VARIABLE};

impl Library {
    /// Makes sure that the library is loaded, and keeps it so.
    ///
    /// # Errors
    /// [`CudaError::Missing`] with all names and folders that were tried.
    pub fn load(self) -> Result<(), CudaError> {
        static DRIVER: OnceLock<Result<libloading::Library, CudaError>> = OnceLock::new();
        static NVRTC: OnceLock<Result<libloading::Library, CudaError>> = OnceLock::new();
        static CUBLAS: OnceLock<Result<libloading::Library, CudaError>> = OnceLock::new();
        let cell = match self {
            Library::Driver => &DRIVER,
            Library::Nvrtc => &NVRTC,
            Library::Cublas => &CUBLAS,
        };
        let loaded = cell.get_or_init(|| {
            let folders = std::env::var_os(PATH_VARIABLE).unwrap_or_default();
            let folders: Vec<PathBuf> = std::env::split_paths(&folders)
                .filter(|f| !f.as_os_str().is_empty())
                .collect();
            open(self, &folders)
        });
        loaded.as_ref().map(|_| ()).map_err(Clone::clone)
    }
}

fn open(library: Library, folders: &[PathBuf]) -> Result<libloading::Library, CudaError> {
    let mut tried = Vec::new();
    // One that is loaded already answers to the name that is written in it.
    let mut held = Vec::new();
    for folder in folders.iter().flat_map(|f| places(f, library)) {
        let files = files(&folder, library);
        if files.is_empty() {
            tried.push(format!("{}/lib{}.so*", folder.display(), library.name()));
        }
        for file in files {
            match load(&file) {
                Ok(loaded) => held.push(loaded),
                Err(e) => tried.push(format!("{} ({e})", file.display())),
            }
        }
    }
    let names = cudarc::get_lib_name_candidates(library.name());
    let found = names.iter().find_map(|name| load(Path::new(name)).ok());
    found.ok_or_else(|| {
        drop(held);
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        // Names that Windows has are of no use here.
        let mut names: Vec<&str> = names.into_iter().filter(|n| !n.contains("64")).collect();
        names.dedup();
        tried.push(names.join(", "));
        CudaError::Missing {
            library,
            tried: tried.join("; "),
        }
    })
}

/// Where a folder may have the library: in itself, or as NVIDIA's wheels lay it
/// out.
fn places(folder: &Path, library: Library) -> Vec<PathBuf> {
    let wheel = match library {
        Library::Driver => None,
        Library::Nvrtc => Some("nvidia/cuda_nvrtc/lib"),
        Library::Cublas => Some("nvidia/cublas/lib"),
    };
    let wheel = wheel.map(|w| folder.join(w)).filter(|w| w.is_dir());
    wheel.map_or_else(|| vec![folder.to_owned()], |w| vec![w])
}

/// `libNAME.so` and `libNAME.so.*`, in order.
fn files(folder: &Path, library: Library) -> Vec<PathBuf> {
    let plain = format!("lib{}.so", library.name());
    let versioned = format!("{plain}.");
    let is_it = |path: &PathBuf| {
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("");
        name == plain || name.starts_with(&versioned)
    };
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut files: Vec<PathBuf> = entries.map(|e| e.path()).filter(is_it).collect();
    files.sort();
    files
}

fn load(path: &Path) -> Result<libloading::Library, libloading::Error> {
    // SAFETY: NVIDIA's libraries may be loaded at any time; what their
    // initializers do is theirs. The user names the folders.
    unsafe { libloading::Library::new(path) }
}
