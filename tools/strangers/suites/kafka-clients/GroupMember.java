import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;

/** A member of a group: a consumer in a thread of its own, which commits the records of each poll before the next poll. */
final class GroupMember implements ConsumerRebalanceListener {
    static final String[] NEW = {"group.protocol", "consumer"};
    private static final AtomicInteger COUNT = new AtomicInteger();
    private static final AtomicInteger REFUSED = new AtomicInteger();

    interface Subscription {
        void begin(KafkaConsumer<String, String> consumer, ConsumerRebalanceListener listener);
    }

    final AtomicInteger rebalances = new AtomicInteger();
    private final Reading reading;
    private final Subscription subscription;
    private final String[] settings;
    private final String name;
    private final AtomicBoolean isLeaving = new AtomicBoolean();
    private final Map<TopicPartition, OffsetAndMetadata> pending = new HashMap<>();
    private final Thread thread;
    private KafkaConsumer<String, String> consumer;
    private volatile Set<TopicPartition> owned = Set.of();
    private volatile Throwable failure;

    /** Starts. `settings`: of the consumer, name after name and value. */
    GroupMember(Reading reading, Subscription subscription, String... settings) {
        this.reading = reading;
        this.subscription = subscription;
        this.settings = settings;
        name = "member-" + COUNT.incrementAndGet();
        thread = new Thread(this::work, name);
        thread.setDaemon(true);
        thread.start();
    }

    /** A member of the consumer protocol that reads one topic. */
    static GroupMember of(Reading reading, String topic, String group, String... settings) {
        return of(reading, List.of(topic), group, settings);
    }

    static GroupMember of(Reading reading, List<String> topics, String group, String... settings) {
        String[] all = joined(joined(NEW, "group.id", group), settings);
        return new GroupMember(reading, (consumer, listener) -> consumer.subscribe(topics, listener), all);
    }

    static String[] joined(String[] first, String... second) {
        String[] all = Arrays.copyOf(first, first.length + second.length);
        System.arraycopy(second, 0, all, first.length, second.length);
        return all;
    }

    /** Waits until each of these partitions has one owner among the members, and each member `min` to `max` of them. */
    static void settled(Collection<GroupMember> members, Collection<TopicPartition> places, int min, int max)
            throws Exception {
        Clients.await(() -> {
            members.forEach(GroupMember::requireRunning);
            return isSettled(members.stream().map(GroupMember::owned).toList(), places, min, max);
        }, () -> "each of " + min + " to " + max + " of " + places.size() + " partitions; they own "
            + members.stream().map(each -> each.owned().size()).toList());
    }

    static boolean isSettled(List<Set<TopicPartition>> shares, Collection<TopicPartition> places, int min, int max) {
        Set<TopicPartition> all = new HashSet<>();
        shares.forEach(all::addAll);
        int sum = shares.stream().mapToInt(Set::size).sum();
        return sum == places.size() && all.equals(new HashSet<>(places))
            && shares.stream().allMatch(each -> each.size() >= min && each.size() <= max);
    }

    static void leave(Collection<GroupMember> members) throws Exception {
        members.forEach(each -> each.isLeaving.set(true));
        for (GroupMember each : members) {
            each.leave();
        }
    }

    private void work() {
        try (KafkaConsumer<String, String> opened =
                Common.consumer(joined(settings, "default.api.timeout.ms", "180000"))) {
            consumer = opened;
            subscription.begin(consumer, this);
            while (!isLeaving.get()) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(100))) {
                    TopicPartition place = new TopicPartition(record.topic(), record.partition());
                    reading.read(this, place, record.value());
                    pending.put(place, new OffsetAndMetadata(record.offset() + 1));
                }
                commit();
            }
        } catch (Throwable error) {
            failure = error;
        } finally {
            reading.revoked(this, owned);
            owned = Set.of();
        }
    }

    /**
     * A member of the consumer protocol may be behind the group by an epoch, and one of the classic protocol may have to
     * join again. It keeps its partitions until it gives them up itself, and commits again with its next records or then.
     */
    private void commit() {
        if (pending.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(pending);
            pending.clear();
        } catch (CommitFailedException | RebalanceInProgressException again) {
            REFUSED.incrementAndGet();
        }
    }

    /** How many commits were refused since the last call. */
    static int refused() {
        return REFUSED.getAndSet(0);
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> places) {
        reading.assigned(this, places);
        Set<TopicPartition> now = new HashSet<>(owned);
        now.addAll(places);
        owned = now;
        rebalances.incrementAndGet();
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> places) {
        commit();
        onPartitionsLost(places);
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> places) {
        pending.keySet().removeAll(places);
        reading.revoked(this, places);
        Set<TopicPartition> now = new HashSet<>(owned);
        now.removeAll(places);
        owned = now;
        rebalances.incrementAndGet();
    }

    Set<TopicPartition> owned() {
        return owned;
    }

    void requireRunning() {
        if (failure != null) {
            throw new AssertionError(name + " failed: " + failure, failure);
        }
    }

    /** The exception that ends this member. */
    Throwable failed() throws Exception {
        Clients.join(thread, name);
        Tier.require(failure != null, name + " ended without an exception");
        return failure;
    }

    void leave() throws Exception {
        isLeaving.set(true);
        Clients.join(thread, name);
        requireRunning();
    }

    @Override
    public String toString() {
        return name;
    }

    /** A member in a process of its own, which can be killed. What it reads goes into `reading`. */
    static final class Child implements AutoCloseable {
        private final Process process;
        private final Thread reader;
        private volatile Set<TopicPartition> owned = Set.of();

        Child(Reading reading, String topic, String group) throws IOException {
            process = start("GroupMember", topic, group);
            reader = new Thread(() -> follow(reading, topic), "child");
            reader.setDaemon(true);
            reader.start();
        }

        static Process start(String main, String... arguments) throws IOException {
            List<String> command = new ArrayList<>(List.of(System.getProperty("java.home") + "/bin/java", "-Xmx128m",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=error", "-cp", System.getProperty("java.class.path"), main));
            command.addAll(List.of(arguments));
            return new ProcessBuilder(command).redirectError(ProcessBuilder.Redirect.INHERIT).start();
        }

        private void follow(Reading reading, String topic) {
            try (BufferedReader lines = new BufferedReader(new InputStreamReader(process.getInputStream()))) {
                for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                    String[] words = line.split(" ");
                    if (words[0].equals("read")) {
                        reading.read(words[1]);
                    } else if (words[0].equals("owns")) {
                        Set<TopicPartition> now = new HashSet<>();
                        Arrays.stream(words).skip(1).forEach(each ->
                            now.add(new TopicPartition(topic, Integer.parseInt(each))));
                        owned = now;
                    }
                }
            } catch (IOException killed) {
                System.err.println("the child's output ends: " + killed);
            }
        }

        Set<TopicPartition> owned() {
            return owned;
        }

        /** SIGKILL; returns when all that it wrote is in `reading`. */
        void kill() throws Exception {
            process.destroyForcibly();
            Tier.require(process.waitFor(60, TimeUnit.SECONDS), "the child does not end");
            Clients.join(reader, "the child's output");
        }

        @Override
        public void close() {
            process.destroyForcibly();
        }
    }

    /** The program of a child: it writes what it owns, and each value after its offset is committed. */
    public static void main(String[] arguments) {
        String topic = arguments[0];
        try (KafkaConsumer<String, String> consumer = Common.consumer(joined(NEW, "group.id", arguments[1]))) {
            consumer.subscribe(List.of(topic));
            Set<TopicPartition> before = Set.of();
            while (true) {
                List<String> values = new ArrayList<>();
                consumer.poll(Duration.ofMillis(100)).forEach(record -> values.add(record.value()));
                if (!values.isEmpty()) {
                    consumer.commitSync();
                    values.forEach(each -> System.out.println("read " + each));
                }
                if (!consumer.assignment().equals(before)) {
                    before = Set.copyOf(consumer.assignment());
                    StringBuilder line = new StringBuilder("owns");
                    before.forEach(each -> line.append(' ').append(each.partition()));
                    System.out.println(line);
                }
            }
        }
    }
}
