package bench;

import static java.util.concurrent.TimeUnit.MILLISECONDS;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.function.BooleanSupplier;
import org.redisson.Redisson;
import org.redisson.api.RFencedLock;
import org.redisson.api.RLock;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.RedisException;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;

/**
 * A client of a torture round that takes its locks with Redisson: its plain lock or, with {@code FENCED}, the one with
 * tokens. {@code tests/torture/peers.rs} says what it is given and says.
 */
public final class Torture {
    private static final long LEASE = 1_000;
    private static final long WAIT = 2_000;
    private static final int WARM_UP = 300;
    private static final long STEP = 5;

    /** An acquire that has not returned for so long after the end hangs. */
    private static final long PATIENCE = 10_000;

    private static final boolean FENCED = !System.getenv().getOrDefault("FENCED", "").isEmpty();
    private static final String ENTER = System.getenv("REGISTER_ENTER");
    private static final String SET = System.getenv("REGISTER_SET");
    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);
    private static volatile boolean stop;

    /** In Redisson, a thread is who holds. */
    private static final class Task extends Thread {
        private final RedissonClient client;
        private final RScript resource;
        private final String key;
        private final String name;
        private final Random random;
        private StringBuilder said = new StringBuilder();
        private long until;

        Task(RedissonClient client, RScript resource, String key, String name, long seed) {
            this.client = client;
            this.resource = resource;
            this.key = key;
            this.name = name;
            random = new Random(seed);
        }

        @Override
        public void run() {
            try {
                for (long cycle = 0; !stop; cycle++) {
                    cycle(name + "." + cycle);
                    Torture.say(said.toString());
                    said = new StringBuilder();
                    if (key.startsWith("long")) {
                        sleep(random.nextInt(300));
                    }
                }
            } catch (Throwable error) {
                error.printStackTrace();
                Runtime.getRuntime().halt(4);
            }
        }

        private void cycle(String holder) throws InterruptedException {
            RLock lock = FENCED ? client.getFencedLock("lock:" + key) : client.getLock("lock:" + key);
            Long token;
            try {
                token = acquire(lock);
            } catch (RedisException error) {
                say("none unavailable");
                sleep(STEP);
                return;
            }
            if (token == null) {
                say("none busy");
                sleep(STEP);
                return;
            }
            long from = System.nanoTime();
            until = from;
            // With a lease of its own, a lock ends by itself, and its user counts from the answer. Without one, the client
            // renews it until it is unlocked, and tells of nothing before.
            BooleanSupplier isHeld = isWhole() ? () -> System.nanoTime() - from < LEASE * 1_000_000 : () -> true;
            List<Object> entered = enter(holder, token, isHeld);
            boolean held = keep(isHeld);
            if (held && Long.parseLong(entered.get(0).toString()) == 1) {
                set(Long.parseLong(entered.get(2).toString()) + 1);
                held = seen(isHeld);
                if (!held) {
                    say("doubt " + key);
                }
            }
            say("hold " + key + " " + holder + " " + token + " " + from + " " + until);
            String end = release(lock);
            say("end " + end);
            // The end of a lease of its own is the plan.
            String why = isWhole() || end.equals("unavailable") ? "untold" : end.equals("lost") ? "release" : null;
            if (why != null) {
                say("loss " + key + " " + holder + " " + System.nanoTime() + " " + why);
            }
        }

        private boolean isWhole() {
            return key.startsWith("whole");
        }

        /** The token, or 0 where there are none; null when the lock was not free in time. */
        private Long acquire(RLock lock) throws InterruptedException {
            if (lock instanceof RFencedLock fenced) {
                return isWhole()
                        ? fenced.tryLockAndGetToken(WAIT, LEASE, MILLISECONDS)
                        : fenced.tryLockAndGetToken(WAIT, MILLISECONDS);
            }
            boolean locked = isWhole() ? lock.tryLock(WAIT, LEASE, MILLISECONDS) : lock.tryLock(WAIT, MILLISECONDS);
            return locked ? 0L : null;
        }

        /** How the release went. */
        private static String release(RLock lock) {
            try {
                lock.unlock();
                return "ok";
            } catch (IllegalMonitorStateException error) {
                return "lost";
            } catch (RedisException error) {
                return "unavailable";
            }
        }

        /** Holds the lock for a while. Returns whether it was certain to the end. */
        private boolean keep(BooleanSupplier isHeld) throws InterruptedException {
            int steps = key.startsWith("long") ? 20 + random.nextInt(580) : isWhole() ? Integer.MAX_VALUE : 0;
            boolean held = seen(isHeld);
            for (; steps > 0 && held && !stop; steps--) {
                sleep(STEP);
                held = seen(isHeld);
            }
            return held;
        }

        private boolean seen(BooleanSupplier isHeld) {
            long asked = System.nanoTime();
            boolean held = isHeld.getAsBoolean();
            until = held ? asked : until;
            return held;
        }

        /** Whether the register accepted the token, the number of its writes, and the counter's value. */
        private List<Object> enter(String holder, long token, BooleanSupplier isHeld) {
            long asked = System.nanoTime();
            List<Object> answer = resource.eval(RScript.Mode.READ_WRITE, ENTER, RScript.ReturnType.LIST,
                    List.of("resource:" + key), String.valueOf(token), "checked");
            long answered = System.nanoTime();
            say("write " + key + " " + holder + " " + token + " " + answer.get(1) + " " + answer.get(0) + " "
                    + (isHeld.getAsBoolean() ? 1 : 0) + " " + asked + " " + answered);
            return answer;
        }

        private void set(long value) {
            resource.eval(RScript.Mode.READ_WRITE, SET, RScript.ReturnType.LONG, List.of("resource:" + key),
                    String.valueOf(value));
        }

        private void say(String line) {
            said.append(line).append('\n');
        }
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments.length != 6) {
            throw new IllegalArgumentException("TOPOLOGY KEYS URL RESOURCE_URL NUMBER SEED");
        }
        // Defaults but for the lease of locks that are renewed.
        Config config = new Config();
        config.setLockWatchdogTimeout(LEASE);
        connect(config, arguments[0], arguments[2]);
        RedissonClient client = Redisson.create(config);
        Config patient = new Config();
        // A command that is sent twice would be counted twice.
        patient.useSingleServer().setAddress(arguments[3]).setTimeout(60_000).setRetryAttempts(0)
                .setConnectionMinimumIdleSize(1).setSubscriptionConnectionMinimumIdleSize(1);
        RScript resource = Redisson.create(patient).getScript(StringCodec.INSTANCE);
        warmUp(client, "warm:" + arguments[4]);
        Thread listener = new Thread(Torture::listen);
        listener.setDaemon(true);
        listener.start();
        OUT.println("ready");
        List<Task> tasks = new ArrayList<>();
        for (String key : arguments[1].split(",")) {
            String name = "c" + arguments[4] + "." + tasks.size();
            tasks.add(new Task(client, resource, key, name, Long.parseLong(arguments[5]) + tasks.size()));
        }
        tasks.forEach(Thread::start);
        while (!stop) {
            Thread.sleep(STEP);
        }
        long deadline = System.nanoTime() + PATIENCE * 1_000_000;
        for (Task task : tasks) {
            task.join(Math.max(1, (deadline - System.nanoTime()) / 1_000_000));
            if (task.isAlive()) {
                say("none hangs\n");
            }
        }
        say("stopped\n");
        // Without the client's shutdown: it would wait for what hangs.
        Runtime.getRuntime().halt(0);
    }

    /** Loads classes and scripts first: an answer that waits for them would be late. */
    private static void warmUp(RedissonClient client, String name) throws InterruptedException {
        Task task = new Task(client, null, name, name, 0);
        for (int cycle = 0; cycle < WARM_UP; cycle++) {
            RLock lock = FENCED ? client.getFencedLock(name) : client.getLock(name);
            task.acquire(lock);
            Task.release(lock);
        }
    }

    private static void connect(Config config, String topology, String url) {
        if (topology.equals("single")) {
            config.useSingleServer().setAddress(url);
            return;
        }
        URI sentinel = URI.create(url);
        String[] user = sentinel.getUserInfo().split(":");
        config.setUsername(user[0]).setPassword(user[1]);
        config.useSentinelServers()
                .setMasterName(sentinel.getPath().substring(1))
                .addSentinelAddress("redis://" + sentinel.getHost() + ":" + sentinel.getPort())
                .setCheckSentinelsList(false);
    }

    private static synchronized void say(String lines) {
        OUT.print(lines);
        OUT.flush();
    }

    private static void listen() {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            for (String line = in.readLine(); line != null; line = in.readLine()) {
                stop = line.equals("stop");
            }
        } catch (IOException error) {
            // As if the input had ended.
        }
        Runtime.getRuntime().halt(3);
    }
}
