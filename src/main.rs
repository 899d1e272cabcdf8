fn main() -> std::process::ExitCode {
    pplx::cli::main()
}
