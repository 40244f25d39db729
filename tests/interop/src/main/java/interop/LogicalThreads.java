package interop;

import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/** One Java thread for each name: Redisson knows holders by the id of their thread. */
final class LogicalThreads {
    private final Map<String, ExecutorService> named = new HashMap<>();
    private final ExecutorService nameless = Executors.newCachedThreadPool();

    /** Runs in the named thread, behind what it was told before; null: in any free one. */
    void run(String name, Runnable task) {
        if (name == null) {
            nameless.execute(task);
        } else {
            named.computeIfAbsent(name, unused -> Executors.newSingleThreadExecutor()).execute(task);
        }
    }
}
