//! What the operating system knows: time, memory, the machine's name.

use std::fmt::Write;
use std::time::{Duration, Instant, SystemTime};

/// When something began, on both clocks.
pub struct Clock {
    started_at: SystemTime,
    start: Instant,
}

impl Clock {
    /// Begins to measure.
    pub fn start() -> Self {
        Self {
            started_at: SystemTime::now(),
            start: Instant::now(),
        }
    }

    /// The time since it was started.
    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// RFC 3339, in UTC, to the second; empty where the system's clock is before
    /// 1970 or after 9999, which that cannot tell.
    pub fn started_at(&self) -> String {
        // The formatter panics of the one and fails for the other.
        if self.started_at < SystemTime::UNIX_EPOCH {
            return String::new();
        }
        let mut text = String::new();
        match write!(
            text,
            "{}",
            humantime::format_rfc3339_seconds(self.started_at)
        ) {
            Ok(()) => text,
            Err(_) => String::new(),
        }
    }
}

/// The largest resident memory this process has had; `None` where the system
/// does not tell.
pub fn peak_rss_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}

/// Main memory in bytes: all of it, and what is available; `None` where the system
/// does not tell.
pub fn memory() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let bytes = |key: &str| -> Option<u64> {
        let line = text.lines().find_map(|l| l.strip_prefix(key))?;
        let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
        kib.checked_mul(1024)
    };
    Some((bytes("MemTotal:")?, bytes("MemAvailable:")?))
}

/// The machine's name, empty where the system does not tell.
pub(super) fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .ok()
        .or_else(|| std::env::var("HOSTNAME").ok())
        .unwrap_or_default()
        .trim()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_are_far_off_have_no_date() {
        let at = |seconds: u64, before: bool| {
            let by = Duration::from_secs(seconds);
            let epoch = SystemTime::UNIX_EPOCH;
            let started_at = match before {
                true => epoch.checked_sub(by),
                false => epoch.checked_add(by),
            };
            let clock = Clock {
                started_at: started_at.unwrap(),
                start: Instant::now(),
            };
            clock.started_at()
        };
        assert_eq!(at(0, false), "1970-01-01T00:00:00Z");
        assert_eq!(at(253_402_300_799, false), "9999-12-31T23:59:59Z");
        assert_eq!(at(253_402_300_800, false), "");
        assert_eq!(at(1, true), "");
        assert_eq!(at(5_000_000_000, true), "");
    }
}
