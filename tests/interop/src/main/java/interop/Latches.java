package interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.Map;
import org.redisson.api.RCountDownLatch;
import org.redisson.api.RedissonClient;

/** Count-down latches. No command belongs to a thread. */
final class Latches {
    private final RedissonClient client;

    Latches(RedissonClient client) {
        this.client = client;
    }

    void addTo(Map<String, Worker.Command> commands) {
        // latch-set NAME COUNT -> true | false
        commands.put("latch-set", a -> of(a).trySetCount(a.number(1)));
        // latch-down NAME -> ok
        commands.put("latch-down", a -> {
            of(a).countDown();
            return "ok";
        });
        // latch-count NAME -> the count
        commands.put("latch-count", a -> of(a).getCount());
        // latch-await NAME WAIT_MS -> true | false
        commands.put("latch-await", a -> of(a).await(a.number(1), MILLISECONDS));
        // latch-delete NAME -> true | false
        commands.put("latch-delete", a -> of(a).delete());
    }

    private RCountDownLatch of(Arguments arguments) {
        return client.getCountDownLatch(arguments.text(0));
    }
}
