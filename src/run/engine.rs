//! What computes the figures, as rows name it.

use std::sync::LazyLock;

use crate::backend::ARITHMETIC;

/// Version, arithmetic and commit: `0.1.0, arithmetic 1, commit 7413ec0f1a`.
pub fn version() -> &'static str {
    static VERSION: LazyLock<String> = LazyLock::new(|| {
        let mut version = format!("{}, arithmetic {ARITHMETIC}", env!("CARGO_PKG_VERSION"));
        let commit = env!("PPLX_COMMIT");
        if !commit.is_empty() {
            version += ", commit ";
            version += commit;
        }
        version
    });
    &VERSION
}

/// The engine as result tables name it, with the GPU where one computes: it rounds
/// in its own way.
pub fn engine(gpu: Option<&str>) -> String {
    let mut engine = format!("pplx {}", version());
    if let Some(gpu) = gpu {
        engine += ", ";
        engine += gpu;
    }
    engine
}
