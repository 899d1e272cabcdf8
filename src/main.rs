//! The program `pplx`; everything is in the library.

fn main() -> std::process::ExitCode {
    pplx::cli::main()
}
