package interop;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;
import java.util.stream.Stream;

/** One Java thread for each name: Redisson knows holders by the id of their thread. */
final class LogicalThreads {
    private final Map<String, ExecutorService> named = new HashMap<>();
    private final ExecutorService nameless = Executors.newCachedThreadPool();

    /** Runs in the named thread, behind what it was told before; null: in any free one. */
    void run(String name, Runnable task) {
        if (name == null) {
            nameless.execute(task);
        } else {
            named.computeIfAbsent(name, unused -> Executors.newSingleThreadExecutor(run -> new Thread(run, name)))
                    .execute(task);
        }
    }

    /** Returns whether the named thread waits at a semaphore, as Redisson's waiters do until a message comes. */
    static boolean sleeps(String name) {
        return Thread.getAllStackTraces().entrySet().stream()
                .filter(thread -> thread.getKey().getName().equals("@" + name))
                .anyMatch(thread -> Stream.of(thread.getValue())
                        .anyMatch(frame -> frame.getClassName().equals(Semaphore.class.getName())));
    }
}
