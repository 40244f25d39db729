package bench;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.ArrayList;
import java.util.List;
import org.redisson.Redisson;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;
import org.redisson.config.Config;

/**
 * Acquires and releases locks with Redisson, and prints what it measured as one line of JSON.
 *
 * <p>Driver URL WORKLOAD TASKS SECONDS HOLD_MS [REGISTER]: see bench/README.md.
 */
public final class Driver {
    /** The same load runs for so long before anything is counted: longer than elsewhere, for the compiler. */
    private static final long WARM_UP = 4_000_000_000L;

    /**
     * In "wait", one thread keeps the lock for so long after it has said that the time is over, so that the runner can look
     * at the server.
     */
    private static final long LOOK = 300_000_000L;

    private static long start;
    private static long end;
    private static long holdMs;
    private static final Recorder WAITS = new Recorder();
    private static final Recorder GAPS = new Recorder();

    /** What becomes of one task, which is a thread: in Redisson, a thread is who holds. */
    private static final class Task extends Thread {
        private final RLock lock;
        private final Register register;
        private final boolean waits;
        private long pairs;
        private long allPairs;
        private long overlaps;
        /** How many counted holds came after one of another process. */
        private long changes;

        Task(RLock lock, Register register, boolean waits) {
            this.lock = lock;
            this.register = register;
            this.waits = waits;
        }

        @Override
        public void run() {
            try {
                if (waits) {
                    once();
                } else {
                    cycle();
                }
            } catch (InterruptedException error) {
                throw new IllegalStateException(error);
            }
        }

        /** Waits for the one who has the lock, has it once, and tells how long after the release everybody before it was done. */
        private void once() {
            lock.lock();
            lock.unlock();
            WAITS.add(Math.max(0, System.nanoTime() - end - LOOK));
            pairs = allPairs = 1;
        }

        private void cycle() throws InterruptedException {
            while (true) {
                long asked = System.nanoTime();
                if (asked >= end) {
                    return;
                }
                lock.lock();
                long acquired = System.nanoTime();
                boolean counts = acquired >= start;
                if (register != null) {
                    register.enter();
                    overlaps += register.overlap() ? 1 : 0;
                    if (register.gap() >= 0 && counts) {
                        GAPS.add(register.gap());
                        changes++;
                    }
                }
                if (holdMs > 0) {
                    Thread.sleep(holdMs);
                }
                if (register != null) {
                    register.leave();
                    overlaps += register.overlap() ? 1 : 0;
                }
                lock.unlock();
                long released = System.nanoTime();
                allPairs++;
                pairs += released >= start && released < end ? 1 : 0;
                if (counts) {
                    WAITS.add(acquired - asked);
                }
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        // The default settings: a lock without a lease of its own has 30 s, renewed every third.
        Config config = new Config();
        config.useSingleServer().setAddress(arguments[0]);
        RedissonClient redisson = Redisson.create(config);
        boolean own = arguments[1].equals("own");
        boolean waits = arguments[1].equals("wait");
        double seconds = Double.parseDouble(arguments[3]);
        holdMs = Long.parseLong(arguments[4]);
        List<Task> tasks = new ArrayList<>();
        for (int task = 0; task < Integer.parseInt(arguments[2]); task++) {
            RLock lock = redisson.getLock(own ? "bench:own:" + task : "bench:hot");
            tasks.add(new Task(lock, arguments.length > 5 ? new Register(arguments[5]) : null, waits));
        }

        System.err.println("ready");
        for (int read = System.in.read(); read != '\n' && read != -1; ) {
            read = System.in.read();
        }
        RLock held = redisson.getLock("bench:hot");
        if (waits) {
            held.lock();
        }
        start = System.nanoTime() + WARM_UP;
        end = start + (long) (seconds * 1e9);
        tasks.forEach(Thread::start);
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        sleepUntil(start);
        long before = system.getProcessCpuTime();
        if (waits) {
            System.err.println("begun");
        }
        sleepUntil(end);
        long cpu = system.getProcessCpuTime() - before;
        if (waits) {
            System.err.println("over");
            sleepUntil(end + LOOK);
            held.unlock();
        }
        for (Task task : tasks) {
            task.join();
        }
        report(seconds, cpu, tasks);
        redisson.shutdown();
    }

    private static void sleepUntil(long time) throws InterruptedException {
        long left = Math.max(0, time - System.nanoTime());
        Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
    }

    private static void report(double seconds, long cpu, List<Task> tasks) {
        System.out.printf(
                "{\"pairs\":%d,\"all_pairs\":%d,\"seconds\":%s,\"per_task\":%s,\"client_cpu_us\":%d,"
                        + "\"wait_us\":{\"p50\":%s,\"p99\":%s,\"max\":%s,\"samples\":%s},\"gap_us\":%s,\"changes\":%d,\"overlaps\":%d}%n",
                tasks.stream().mapToLong(task -> task.pairs).sum(),
                tasks.stream().mapToLong(task -> task.allPairs).sum(),
                seconds,
                tasks.stream().map(task -> task.pairs).toList(),
                cpu / 1000,
                WAITS.quantile(0.5),
                WAITS.quantile(0.99),
                WAITS.longest(),
                WAITS.thinned(),
                GAPS.thinned(),
                tasks.stream().mapToLong(task -> task.changes).sum(),
                tasks.stream().mapToLong(task -> task.overlaps).sum());
    }
}
