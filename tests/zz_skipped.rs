//! Not a test: the last of the test binaries, which cargo runs in order of their
//! names. It says which tests were skipped, since libtest counts those as ok.

#[path = "support/skip.rs"]
mod skip;

fn main() {
    let notes = std::fs::read_to_string(skip::notes()).unwrap_or_default();
    println!("\n{}\n", skip::summary(&notes, skip::runner()));
    let _ = std::fs::remove_file(skip::notes());
}
