//! Requests to stop: Ctrl-C, SIGTERM (CI, `timeout`), SIGHUP (a terminal that
//! closes). All of them end pplx alike: finished rows stay, temporary files go, and
//! the exit code is 128 and the signal's number. A second one kills at once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, mpsc};
use std::time::Duration;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::{flag, low_level};

use crate::backend::Interrupt;
use crate::{files, say};

/// How long a verb that looks at the interrupt may take to end by itself.
const GRACE: Duration = Duration::from_millis(750);
/// How long a terminal may take for the last words.
const FAREWELL: Duration = Duration::from_millis(100);

static INTERRUPT: OnceLock<Interrupt> = OnceLock::new();
/// The signal that came; 0 before.
static CAME: OnceLock<Arc<AtomicUsize>> = OnceLock::new();
/// Whether the verb looks at the interrupt.
static POLLED: AtomicBool = AtomicBool::new(false);
static LAST_WORDS: Mutex<String> = Mutex::new(String::new());

/// From now on signals raise the interrupt; where nobody looks at it, or too late,
/// the process ends in good order.
///
/// # Errors
/// What the system says.
pub fn install() -> std::io::Result<()> {
    let raised = INTERRUPT.get_or_init(Interrupt::default).flag();
    let came = CAME.get_or_init(Arc::default);
    // A write beyond `ulimit -f` fails, as one to a full disk does.
    flag::register(libc::SIGXFSZ, Arc::default())?;
    let mut watched = vec![SIGINT, SIGTERM];
    // `nohup` asks for it.
    if !is_ignored(SIGHUP) {
        watched.push(SIGHUP);
    }
    for &signal in &watched {
        // In this order: the first action sees the flag as the signal before left it.
        flag::register_conditional_default(signal, raised.clone())?;
        flag::register_usize(signal, came.clone(), signal.unsigned_abs() as usize)?;
        flag::register(signal, raised.clone())?;
    }
    let mut signals = Signals::new(&watched)?;
    std::thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            if signals.forever().next().is_some() {
                if POLLED.load(Ordering::Relaxed) {
                    std::thread::sleep(GRACE);
                }
                leave();
            }
        })?;
    Ok(())
}

/// Whether whoever started us has this signal ignored.
fn is_ignored(signal: i32) -> bool {
    // SAFETY: zeros are a valid `sigaction`, and a null action changes nothing.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

/// The interrupt that signals raise; whoever takes it looks at it often.
pub fn interrupt() -> Interrupt {
    POLLED.store(true, Ordering::Relaxed);
    INTERRUPT.get_or_init(Interrupt::default).clone()
}

/// 128 and the number of the signal that came, as shells have it.
pub fn exit_code() -> u8 {
    let signal = CAME.get().map_or(0, |came| came.load(Ordering::Relaxed));
    match u8::try_from(signal) {
        Ok(signal @ 1..128) => 128 + signal,
        _ => 130,
    }
}

/// What is said where the process has to end in the middle of something.
pub fn set_last_words(words: &str) {
    let mut last = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    words.clone_into(&mut last);
}

/// Ends the process at any moment: files that are being written never have their
/// names yet, so whatever is on the disk is whole.
fn leave() {
    files::abandon();
    let (said, heard) = mpsc::channel();
    // A terminal that is stopped must not keep us.
    let _ = std::thread::Builder::new().spawn(move || {
        say::clear();
        let last = LAST_WORDS.lock().unwrap_or_else(PoisonError::into_inner);
        let words = match last.as_str() {
            "" => "interrupted",
            words => words,
        };
        say::message(format!("pplx: {words}"));
        let _ = said.send(());
    });
    let _ = heard.recv_timeout(FAREWELL);
    low_level::exit(exit_code().into());
}
