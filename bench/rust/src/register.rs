//! The file that every holder of the hot key writes: the process that is inside, the process that was inside last, and
//! the time at which it left.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

pub(crate) struct Register {
    file: File,
    me: u64,
}

impl Register {
    pub(crate) fn open(path: &str) -> Register {
        let file = File::options().read(true).write(true).open(path);
        Register {
            file: file.expect("a register"),
            me: u64::from(std::process::id()),
        }
    }

    /// Notes that this process is inside. Returns whether somebody else was inside, and, if another process was inside
    /// last, for how long nobody was.
    pub(crate) fn enter(&self) -> (bool, Option<Duration>) {
        let [inside, last, ended] = self.read();
        let gap = (last != 0 && last != self.me)
            .then(|| Duration::from_nanos(now().saturating_sub(ended)));
        self.file
            .write_all_at(&self.me.to_le_bytes(), 0)
            .expect("a write");
        (inside != 0, gap)
    }

    /// Notes that this process has left. Returns whether somebody else has been inside meanwhile.
    pub(crate) fn leave(&self) -> bool {
        let [inside, ..] = self.read();
        let mut bytes = [0; 24];
        bytes[8..16].copy_from_slice(&self.me.to_le_bytes());
        bytes[16..].copy_from_slice(&now().to_le_bytes());
        self.file.write_all_at(&bytes, 0).expect("a write");
        inside != self.me
    }

    fn read(&self) -> [u64; 3] {
        let mut bytes = [0; 24];
        self.file.read_exact_at(&mut bytes, 0).expect("24 bytes");
        [0, 8, 16].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()))
    }
}

fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
