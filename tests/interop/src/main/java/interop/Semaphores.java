package interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.time.Duration;
import java.util.Map;
import org.redisson.api.RPermitExpirableSemaphore;
import org.redisson.api.RSemaphore;
import org.redisson.api.RedissonClient;

/** Semaphores: plain ones, and those whose permits expire. No command belongs to a thread. */
final class Semaphores {
    private final RedissonClient client;

    Semaphores(RedissonClient client) {
        this.client = client;
    }

    void addTo(Map<String, Worker.Command> commands) {
        // semaphore-set NAME PERMITS -> true | false
        commands.put("semaphore-set", a -> plain(a).trySetPermits((int) a.number(1)));
        // semaphore-acquire NAME PERMITS WAIT_MS -> true | false
        commands.put("semaphore-acquire", a -> plain(a)
                .tryAcquire((int) a.number(1), Duration.ofMillis(a.number(2))));
        // semaphore-release NAME PERMITS -> ok
        commands.put("semaphore-release", a -> {
            plain(a).release((int) a.number(1));
            return "ok";
        });
        // semaphore-add NAME PERMITS -> ok; may be negative
        commands.put("semaphore-add", a -> {
            plain(a).addPermits((int) a.number(1));
            return "ok";
        });
        // semaphore-available, semaphore-drain NAME -> permits
        commands.put("semaphore-available", a -> plain(a).availablePermits());
        commands.put("semaphore-drain", a -> plain(a).drainPermits());

        // permits-set NAME PERMITS -> true | false
        commands.put("permits-set", a -> leased(a).trySetPermits((int) a.number(1)));
        // permits-acquire NAME WAIT_MS LEASE_MS -> the permit's id, or null; lease -1: for ever
        commands.put("permits-acquire", a -> leased(a)
                .tryAcquire(a.number(1), a.number(2), MILLISECONDS));
        // permits-release, permits-extend NAME ID [LEASE_MS] -> true | false
        commands.put("permits-release", a -> leased(a).tryRelease(a.text(1)));
        commands.put("permits-extend", a -> leased(a)
                .updateLeaseTime(a.text(1), a.number(2), MILLISECONDS));
        // permits-available, permits-total, permits-taken NAME -> permits
        commands.put("permits-available", a -> leased(a).availablePermits());
        commands.put("permits-total", a -> leased(a).getPermits());
        commands.put("permits-taken", a -> leased(a).acquiredPermits());
    }

    private RSemaphore plain(Arguments arguments) {
        return client.getSemaphore(arguments.text(0));
    }

    private RPermitExpirableSemaphore leased(Arguments arguments) {
        return client.getPermitExpirableSemaphore(arguments.text(0));
    }
}
