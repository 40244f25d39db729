package interop;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.ClusterServersConfig;
import org.redisson.config.Config;
import org.redisson.config.ShardedSubscriptionMode;

/**
 * A Redisson client that is driven line by line.
 *
 * <p>{@code java interop.Worker PORT [WATCHDOG_MILLIS]}, or with the nodes of a cluster and whether its subscriptions are
 * sharded, {@code ON:PORT,PORT} or {@code OFF:PORT,PORT}, in the place of the port, says {@code ready CLIENT_ID}, then answers each line
 * {@code ID COMMAND ARGUMENT...} with {@code ID VALUE...}, or {@code ID ! ERROR}, in the order in which the
 * commands end. What a command is called and takes is said where it is added: {@link Locks}, {@link Semaphores},
 * {@link Latches}. Ends with its input.
 */
public final class Worker {
    /** One command; what it returns is sent as it is. */
    interface Command {
        Object run(Arguments arguments) throws Exception;
    }

    /** How long a server may take to answer, in ms. A busy machine stands still for longer than Redisson's default of 3 s. */
    private static final int PATIENCE = 60_000;

    private static final PrintStream OUT = new PrintStream(System.out, true, StandardCharsets.UTF_8);

    private final Map<String, Command> commands = new TreeMap<>();
    private final LogicalThreads threads = new LogicalThreads();

    public static void main(String[] args) throws IOException {
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        if (args.length > 1) {
            config.setLockWatchdogTimeout(Long.parseLong(args[1]));
        }
        connect(config, args[0].split(":"));
        RedissonClient client = Redisson.create(config);
        Worker worker = new Worker();
        // sleeps NAME -> true | false: whether the thread NAME waits for a message
        worker.commands.put("sleeps", a -> LogicalThreads.sleeps(a.text(0)));
        new Locks(client).addTo(worker.commands);
        new Semaphores(client).addTo(worker.commands);
        new Latches(client).addTo(worker.commands);
        OUT.println("ready " + client.getId());
        worker.serve();
        // Without the client's shutdown: it would wait for what is still waiting.
        Runtime.getRuntime().halt(0);
    }

    private static void connect(Config config, String[] server) {
        if (server.length == 1) {
            config.useSingleServer()
                    .setAddress("redis://127.0.0.1:" + server[0])
                    .setClientName("java")
                    .setTimeout(PATIENCE)
                    .setSubscriptionTimeout(PATIENCE)
                    .setConnectionMinimumIdleSize(1)
                    .setSubscriptionConnectionMinimumIdleSize(1);
            return;
        }
        ClusterServersConfig cluster = config.useClusterServers();
        for (String port : server[1].split(",")) {
            cluster.addNodeAddress("redis://127.0.0.1:" + port);
        }
        cluster.setShardedSubscriptionMode(ShardedSubscriptionMode.valueOf(server[0]))
                .setTimeout(PATIENCE)
                .setSubscriptionTimeout(PATIENCE)
                .setMasterConnectionMinimumIdleSize(1)
                .setSubscriptionConnectionMinimumIdleSize(1);
    }

    private void serve() throws IOException {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            Arguments arguments = new Arguments(Arrays.copyOfRange(words, 2, words.length));
            threads.run(arguments.thread(), () -> OUT.println(words[0] + " " + answer(words[1], arguments)));
        }
    }

    private String answer(String name, Arguments arguments) {
        try {
            Command command = commands.get(name);
            if (command == null) {
                return "! no such command: " + name + "; there are " + commands.keySet();
            }
            return String.valueOf(command.run(arguments));
        } catch (Exception error) {
            return "! " + error.toString().replace('\n', ' ');
        }
    }
}
