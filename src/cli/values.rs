//! Numbers on the command line: what an option cannot mean is refused by clap, which
//! names the option.

use std::thread::available_parallelism;

/// Threads that any machine may be given: enough for the largest, few enough for the
/// system to start them.
const MANY_THREADS: usize = 1024;

/// A whole number of at least `LEAST`.
pub fn count<const LEAST: usize>(text: &str) -> Result<usize, String> {
    match whole(text)? {
        n if n < LEAST => Err(format!("at least {LEAST} is needed")),
        n => Ok(n),
    }
}

/// A number of windows; llama-perplexity's -1 is to leave it out.
pub fn windows(text: &str) -> Result<usize, String> {
    let hint = "; leave the option out for all windows";
    match text.trim_start().starts_with('-') {
        true => Err(format!("at least 1 is needed{hint}")),
        false => count::<1>(text).map_err(|e| format!("{e}{hint}")),
    }
}

/// A number of worker threads; 0 is one for each core.
pub fn threads(text: &str) -> Result<usize, String> {
    let cores = available_parallelism().map_or(1, usize::from);
    let most = MANY_THREADS.max(4 * cores);
    match whole(text)? {
        n if n > most => Err(format!(
            "more than the {most} threads that are of use here ({cores} cores); 0 takes every core"
        )),
        n => Ok(n),
    }
}

fn whole(text: &str) -> Result<usize, String> {
    text.parse().map_err(|_| "not a whole number".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_number_cannot_mean_is_refused() {
        assert_eq!(count::<2>("2"), Ok(2));
        assert_eq!(count::<2>("1"), Err("at least 2 is needed".to_owned()));
        assert!(count::<1>("-3").is_err() && count::<1>("1.5").is_err());
        assert!(count::<1>("99999999999999999999").is_err());
        assert_eq!(windows("7"), Ok(7));
        for none in ["0", "-1"] {
            let why = windows(none).unwrap_err();
            assert!(why.contains("leave the option out"), "{why}");
        }
        assert_eq!((threads("0"), threads("512")), (Ok(0), Ok(512)));
        assert!(threads("100000").unwrap_err().contains("cores"));
    }
}
