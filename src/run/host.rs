//! What the operating system knows: time, memory, the machine's name.

use std::time::{Duration, Instant, SystemTime};

/// When something began, on both clocks.
pub struct Clock {
    started_at: SystemTime,
    start: Instant,
}

impl Clock {
    pub fn start() -> Self {
        Self {
            started_at: SystemTime::now(),
            start: Instant::now(),
        }
    }

    pub fn elapsed(&self) -> Duration {
        self.start.elapsed()
    }

    /// RFC 3339, in UTC, to the second.
    pub fn started_at(&self) -> String {
        humantime::format_rfc3339_seconds(self.started_at).to_string()
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
