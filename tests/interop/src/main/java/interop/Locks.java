package interop;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.util.Map;
import java.util.stream.Stream;
import org.redisson.api.RBucket;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/**
 * All that are {@link RLock}s. KIND: {@code mutex fair spin read write fenced}, or {@code multi} with names joined by
 * commas.
 */
final class Locks {
    private final RedissonClient client;

    Locks(RedissonClient client) {
        this.client = client;
    }

    void addTo(Map<String, Worker.Command> commands) {
        // lock KIND NAME WAIT_MS LEASE_MS @THREAD -> true | false; wait -1: for ever; lease -1: renewed
        commands.put("lock", a -> lock(of(a), a.number(2), a.number(3)));
        // lock-token NAME WAIT_MS LEASE_MS @THREAD -> the token, or null
        commands.put("lock-token", a -> client.getFencedLock(a.text(0))
                .tryLockAndGetToken(a.number(1), a.number(2), MILLISECONDS));
        // try KIND NAME @THREAD -> true | false: the form without a wait, renewed
        commands.put("try", a -> of(a).tryLock());
        // unlock KIND NAME @THREAD -> ok
        commands.put("unlock", a -> {
            of(a).unlock();
            return "ok";
        });
        // force-unlock KIND NAME -> true | false
        commands.put("force-unlock", a -> of(a).forceUnlock());
        // is-locked, remaining-ms KIND NAME
        commands.put("is-locked", a -> of(a).isLocked());
        commands.put("remaining-ms", a -> of(a).remainTimeToLive());
        // is-held, hold-count KIND NAME @THREAD
        commands.put("is-held", a -> of(a).isHeldByCurrentThread());
        commands.put("hold-count", a -> of(a).getHoldCount());
        // token NAME -> the last token, or null
        commands.put("token", a -> ((RFencedLock) client.getFencedLock(a.text(0))).getToken());
        // thread-id @THREAD -> what follows the client's id in a holder's name
        commands.put("thread-id", a -> Thread.currentThread().getId());
        // contend KIND NAME TIMES COUNTER @THREAD -> how often somebody else was inside
        commands.put("contend", a -> contend(of(a), a.number(2), a.text(3)));
    }

    private RLock of(Arguments arguments) {
        String name = arguments.text(1);
        return switch (arguments.text(0)) {
            case "mutex" -> client.getLock(name);
            case "fair" -> client.getFairLock(name);
            case "spin" -> client.getSpinLock(name);
            case "read" -> client.getReadWriteLock(name).readLock();
            case "write" -> client.getReadWriteLock(name).writeLock();
            case "fenced" -> client.getFencedLock(name);
            case "multi" -> client.getMultiLock(
                    Stream.of(name.split(",")).map(client::getLock).toArray(RLock[]::new));
            default -> throw new IllegalArgumentException("no such kind: " + arguments.text(0));
        };
    }

    private static boolean lock(RLock lock, long wait, long lease) throws InterruptedException {
        if (wait < 0) {
            lock.lockInterruptibly(lease, MILLISECONDS);
            return true;
        }
        return lock.tryLock(wait, lease, MILLISECONDS);
    }

    /** Adds one to the counter without care, under the lock: what is missing in the end was done by two at once. */
    private long contend(RLock lock, long times, String name) {
        RBucket<String> counter = client.getBucket(name);
        RBucket<String> inside = client.getBucket(name + ":inside");
        long overlaps = 0;
        for (long i = 0; i < times; i++) {
            lock.lock();
            try {
                if (!inside.setIfAbsent("java")) {
                    overlaps++;
                }
                String old = counter.get();
                counter.set(String.valueOf(old == null ? 1 : Long.parseLong(old) + 1));
                inside.delete();
            } finally {
                lock.unlock();
            }
        }
        return overlaps;
    }
}
