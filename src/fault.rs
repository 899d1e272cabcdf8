//! Faults of pplx itself: a panic is a message and an exit code, or one run's
//! failure.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook};
use std::sync::{Mutex, PoisonError};

use crate::say;

/// What the last panic said, on whatever thread.
static LAST: Mutex<Option<String>> = Mutex::new(None);

/// From now on panics print nothing by themselves; [`caught`] yields what they say.
pub fn install() {
    set_hook(Box::new(|info| {
        let mut said = text_of(info.payload());
        if let Some(place) = info.location() {
            said += &format!(" ({}:{})", short(place.file()), place.line());
        }
        // RUST_BACKTRACE asks for it.
        let trace = Backtrace::capture();
        if trace.status() == BacktraceStatus::Captured {
            say::at_once(&format!("{said}\n{trace}"));
        }
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        // What follows a panic is not its cause.
        last.get_or_insert(said);
    }));
}

/// `f`, or what its panic says: "internal error: …". What `f` had borrowed may be
/// left half done.
///
/// # Errors
/// A panic, here or on a thread that `f` waits for.
pub fn caught<T>(f: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|payload| {
        let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
        let said = last.take().unwrap_or_else(|| text_of(&*payload));
        format!("internal error: {said}; please report it")
    })
}

/// The end of a path: rows must not tell where pplx was built.
fn short(file: &str) -> &str {
    const COMPONENTS: usize = 3;
    let slash = file.rmatch_indices(['/', '\\']).nth(COMPONENTS - 1);
    slash.map_or(file, |(at, _)| file.get(at + 1..).unwrap_or(file))
}

fn text_of(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
    text.unwrap_or_else(|| "panic".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_also_on_another_thread() {
        assert_eq!(caught(|| 7), Ok(7));
        let here = caught(|| [1, 2, 3].iter().position(|&x| x == 4).expect("no four"));
        assert_eq!(
            here.unwrap_err(),
            "internal error: no four; please report it"
        );
        let there = caught(|| {
            rayon::join(|| 1, || -> u8 { panic!("on a thread, {}", 5) });
        });
        assert_eq!(
            there.unwrap_err(),
            "internal error: on a thread, 5; please report it"
        );
    }

    #[test]
    fn places_are_the_same_wherever_pplx_was_built() {
        assert_eq!(short("src/run/sweep.rs"), "src/run/sweep.rs");
        assert_eq!(short("/home/me/x-1.0/src/y.rs"), "x-1.0/src/y.rs");
        assert_eq!(short("y.rs"), "y.rs");
    }
}
