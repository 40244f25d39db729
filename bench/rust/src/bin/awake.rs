//! A program that keeps the processors awake: a thread for each of them spins until the standard input ends. The runner
//! starts it so that it runs only while no other program wants the processor.

use std::io::Read;

fn main() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    for _ in 0..processors {
        std::thread::spawn(|| {
            loop {
                // The pause leaves the processor's resources to other programs on the same core.
                std::hint::spin_loop();
            }
        });
    }
    let _ = std::io::stdin().read(&mut [0]);
}
