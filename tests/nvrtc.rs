//! NVIDIA's own compiler on the kernels, which needs no GPU: what the stand-in's
//! g++ lets pass, it may not.

use pplx::backend::cuda::{Arch, Library, compile_kernels, nvrtc_version};

use crate::support::skip;

/// False where there is no NVRTC: the test is skipped.
fn nvrtc() -> bool {
    match Library::Nvrtc.load() {
        Ok(()) => true,
        Err(e) => {
            skip("nvrtc", e);
            false
        }
    }
}

#[test]
fn kernels_compile_for_ampere_and_hopper() {
    if !nvrtc() {
        return;
    }
    let version = nvrtc_version().unwrap_or_else(|e| panic!("{e}"));
    assert!(version.major >= 12, "NVRTC {version}");
    for (major, minor) in [(8, 0), (9, 0)] {
        let code = compile_kernels(Arch { major, minor })
            .unwrap_or_else(|e| panic!("sm_{major}{minor}: {e}"));
        // Machine code, not text for the driver to translate.
        assert_eq!(code.get(..4), Some(b"\x7fELF".as_slice()));
    }
}
