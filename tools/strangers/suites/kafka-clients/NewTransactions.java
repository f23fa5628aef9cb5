import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;

/** Consume, transform, produce in transactions, with the offsets of members of the consumer protocol in them (KIP-447). */
public final class NewTransactions {
    static final int PARTITIONS = 6;

    public static void main(String[] arguments) throws Exception {
        if (arguments.length > 1) {
            Common.version = arguments[0];
            stall(arguments[1], arguments[2], arguments[3]);
            return;
        }
        NewGroups.begin(arguments[0]);
        Tier.test("consumer protocol: transactions of workers that join and leave", NewTransactions::joining);
        Tier.test("consumer protocol: a worker is killed amid a transaction", NewTransactions::killed);
        Tier.test("consumer protocol: a worker that was removed cannot commit its transaction", NewTransactions::removed);
        Tier.test("consumer protocol: transactions while the broker is killed", NewTransactions::brokerKilled);
        System.exit(0);
    }

    /** A worker in a thread of its own: a transaction for each poll with records. */
    static final class Worker {
        private static final AtomicInteger ABORTED = new AtomicInteger();
        private final String source;
        private final String target;
        private final String id;
        private final Thread thread;
        private volatile boolean isLeaving;
        private volatile Throwable failure;
        volatile int owned;

        Worker(String source, String target, String id) {
            this.source = source;
            this.target = target;
            this.id = id;
            thread = new Thread(this::work, id);
            thread.setDaemon(true);
            thread.start();
        }

        private void work() {
            try (KafkaConsumer<String, String> consumer = consumer(source)) {
                while (!isLeaving) {
                    try (KafkaProducer<String, String> producer = producer(id)) {
                        producer.initTransactions();
                        rewind(consumer);
                        run(consumer, producer);
                    } catch (ProducerFencedException fenced) {
                        throw fenced;
                    } catch (KafkaException lost) {
                        System.err.println(id + ": a new producer after " + lost);
                    }
                }
            } catch (Throwable error) {
                failure = error;
            }
        }

        private void run(KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer) {
            while (!isLeaving) {
                ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(100));
                owned = consumer.assignment().size();
                if (found.isEmpty()) {
                    continue;
                }
                try {
                    transform(found, consumer, producer, target);
                    producer.commitTransaction();
                } catch (ProducerFencedException fenced) {
                    throw fenced;
                } catch (KafkaException refused) {
                    System.err.println(id + " aborts after " + refused);
                    ABORTED.incrementAndGet();
                    producer.abortTransaction();
                    rewind(consumer);
                }
            }
        }

        void requireRunning() {
            if (failure != null) {
                throw new AssertionError(id + " failed: " + failure, failure);
            }
        }

        void leave() throws Exception {
            isLeaving = true;
            Clients.join(thread, id);
            requireRunning();
        }
    }

    static KafkaConsumer<String, String> consumer(String topic, String... settings) {
        String[] all = GroupMember.joined(GroupMember.NEW, "group.id", topic, "isolation.level", "read_committed",
            "max.poll.records", "20", "default.api.timeout.ms", "180000");
        KafkaConsumer<String, String> consumer = Common.consumer(GroupMember.joined(all, settings));
        consumer.subscribe(List.of(topic));
        return consumer;
    }

    static KafkaProducer<String, String> producer(String id) {
        return Common.producer("transactional.id", id, "transaction.timeout.ms", "10000", "delivery.timeout.ms", "60000");
    }

    /** Begins a transaction with an output for each record, and the offsets. */
    static void transform(ConsumerRecords<String, String> found, KafkaConsumer<String, String> consumer,
            KafkaProducer<String, String> producer, String target) {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        for (ConsumerRecord<String, String> record : found) {
            producer.send(new ProducerRecord<>(target, record.partition(), record.key(), record.value()));
            offsets.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
    }

    static void rewind(KafkaConsumer<String, String> consumer) {
        Set<TopicPartition> places = consumer.assignment();
        if (places.isEmpty()) {
            return;
        }
        consumer.committed(places, Duration.ofSeconds(120)).forEach((place, offset) ->
            consumer.seek(place, offset == null ? 0 : offset.offset()));
    }

    /** Waits until each of the workers has this many partitions. */
    static void settled(List<Worker> workers, int each) throws Exception {
        Clients.await(() -> {
            workers.forEach(Worker::requireRunning);
            return workers.stream().allMatch(worker -> worker.owned == each);
        }, () -> each + " partitions each: " + workers.stream().map(worker -> worker.owned).toList());
    }

    static Map<Integer, List<String>> outputs(String target) {
        Map<Integer, List<String>> found = new TreeMap<>();
        try (KafkaConsumer<String, String> reader = Common.consumer("isolation.level", "read_committed")) {
            List<TopicPartition> places = Common.partitions(target, PARTITIONS);
            reader.assign(places);
            reader.seekToBeginning(places);
            Map<TopicPartition, Long> ends = reader.endOffsets(places, Duration.ofSeconds(120));
            while (places.stream().anyMatch(place -> reader.position(place) < ends.get(place))) {
                reader.poll(Duration.ofMillis(200)).forEach(record ->
                    found.computeIfAbsent(record.partition(), p -> new ArrayList<>()).add(record.value()));
            }
        }
        return found;
    }

    /** Waits until `count` outputs are committed; each input must have one, in order. */
    static void requireOutputs(String target, int count, List<Worker> workers) throws Exception {
        Clients.await(() -> {
            workers.forEach(Worker::requireRunning);
            return outputs(target).values().stream().mapToInt(List::size).sum() >= count;
        }, () -> count + " outputs; there are " + outputs(target).values().stream().mapToInt(List::size).sum());
        for (Worker worker : workers) {
            worker.leave();
        }
        Map<Integer, List<String>> found = outputs(target);
        for (int p = 0; p < PARTITIONS; p++) {
            List<String> expected = new ArrayList<>();
            for (int i = p; i < count; i += PARTITIONS) {
                expected.add(Integer.toString(i));
            }
            Tier.requireExact(expected, found.getOrDefault(p, List.of()), target + "-" + p);
        }
        System.err.println(count + " outputs; transactions aborted: " + Worker.ABORTED.getAndSet(0));
    }

    static void joining() throws Exception {
        String source = Common.topic("new-source-joining", PARTITIONS);
        String target = Common.topic("new-target-joining", PARTITIONS);
        List<Worker> workers = new ArrayList<>();
        try (Feed feed = new Feed(Common.partitions(source, PARTITIONS))) {
            for (int i = 0; i < 2; i++) {
                workers.add(new Worker(source, target, source + "-" + i));
            }
            settled(workers, 3);
            workers.add(new Worker(source, target, source + "-2"));
            settled(workers, 2);
            workers.remove(0).leave();
            settled(workers, 3);
            requireOutputs(target, feed.stop(), workers);
        }
    }

    /** A process that works until it gets a line, and then stays within its next transaction until it is killed. */
    static void stall(String source, String target, String id) throws Exception {
        try (KafkaConsumer<String, String> consumer = consumer(source);
                KafkaProducer<String, String> producer = producer(id)) {
            producer.initTransactions();
            while (true) {
                ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(100));
                if (found.isEmpty()) {
                    continue;
                }
                transform(found, consumer, producer, target);
                producer.flush();
                if (System.in.available() > 0) {
                    System.out.println("amid a transaction of " + found.count());
                    new CountDownLatch(1).await();
                }
                producer.commitTransaction();
            }
        }
    }

    /** Its partitions come to others after its session, and its offsets are pending until its transaction ends. */
    static void killed() throws Exception {
        String source = Common.topic("new-source-killed", PARTITIONS);
        String target = Common.topic("new-target-killed", PARTITIONS);
        NewGroups.shortSession(source);
        List<Worker> workers = new ArrayList<>();
        try (Feed feed = new Feed(Common.partitions(source, PARTITIONS))) {
            Process child = GroupMember.Child.start("NewTransactions", Common.version, source, target, source + "-0");
            try (BufferedReader lines = new BufferedReader(new InputStreamReader(child.getInputStream()))) {
                workers.add(new Worker(source, target, source + "-1"));
                workers.add(new Worker(source, target, source + "-2"));
                settled(workers, 2);
                child.getOutputStream().write('\n');
                child.getOutputStream().flush();
                String line = lines.readLine();
                Tier.require(line != null && line.startsWith("amid"), "the worker wrote " + line);
            } finally {
                child.destroyForcibly();
                Tier.require(child.waitFor(60, TimeUnit.SECONDS), "the worker does not end");
            }
            settled(workers, 3);
            workers.add(new Worker(source, target, source + "-0"));
            settled(workers, 2);
            requireOutputs(target, feed.stop(), workers);
        }
    }

    /** A worker does not poll for longer than max.poll.interval.ms, and leaves. Then it sends its offsets. */
    static void removed() throws Exception {
        String source = Common.topic("new-source-removed", PARTITIONS);
        String target = Common.topic("new-target-removed", PARTITIONS);
        Feed.send(Common.partitions(source, PARTITIONS), 0, 120);
        try (KafkaConsumer<String, String> late = consumer(source, "max.poll.interval.ms", "5000");
                KafkaProducer<String, String> producer =
                    Common.producer("transactional.id", source + "-0", "transaction.timeout.ms", "120000")) {
            producer.initTransactions();
            List<ConsumerRecords<String, String>> found = new ArrayList<>();
            Clients.await(() -> {
                found.add(late.poll(Duration.ofMillis(100)));
                return !found.get(found.size() - 1).isEmpty();
            }, "records");
            Worker heir = new Worker(source, target, source + "-1");
            settled(List.of(heir), PARTITIONS);
            try {
                transform(found.get(found.size() - 1), late, producer, target);
                throw new AssertionError("a worker that was removed could send offsets");
            } catch (CommitFailedException expected) {
                System.err.println("refused: " + expected.getMessage());
            }
            producer.abortTransaction();
            requireOutputs(target, 120, List.of(heir));
        }
    }

    static void brokerKilled() throws Exception {
        String source = Common.topic("new-source-broker", PARTITIONS);
        String target = Common.topic("new-target-broker", PARTITIONS);
        List<Worker> workers = new ArrayList<>();
        try (Feed feed = new Feed(Common.partitions(source, PARTITIONS))) {
            for (int i = 0; i < 3; i++) {
                workers.add(new Worker(source, target, source + "-" + i));
            }
            settled(workers, 2);
            for (int kill = 0; kill < 2; kill++) {
                int before = outputs(target).values().stream().mapToInt(List::size).sum();
                Tier.killAndStart(NewKills.coordinatorOf(source));
                Clients.await(() -> outputs(target).values().stream().mapToInt(List::size).sum() > before, "more outputs");
            }
            settled(workers, 2);
            requireOutputs(target, feed.stop(), workers);
        }
    }
}
