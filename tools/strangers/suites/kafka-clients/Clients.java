import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.function.Supplier;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;

/** Producing, groups, transactions and administration, with API that all versions from 2.8 on have. */
public final class Clients {
    static final int KILLS = 2;

    public static void main(String[] arguments) throws Exception {
        Common.version = arguments[0];
        Tier.prefix = arguments[0] + ": ";
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            Tier.test("produce and read back, " + codec, () -> codec(codec));
        }
        for (String acks : List.of("0", "1")) {
            Tier.test("produce without idempotence, acks=" + acks, () -> plain(acks));
        }
        Tier.test("a record too large for the topic is refused, others are not", Clients::tooLarge);
        Tier.test("produce while the broker is killed", Clients::killed);
        for (String name : List.of("Range", "RoundRobin", "Sticky", "CooperativeSticky")) {
            Tier.test("a group with one leaving and one joining, " + name, () -> group(name, false));
        }
        Tier.test("a group with static members", () -> group("Range", true));
        Tier.test("offsets outlive a clean restart and a kill", Clients::offsets);
        Tier.test("transactions: every third is aborted", () -> transactions("calm", 300, 3, false));
        Tier.test("transactions: the broker is killed", () -> transactions("killed", 900, 5, true));
        Tier.test("transactions: a reader of committed records sees no others", Clients::isolation);
        Tier.test("transactions: a zombie is fenced, nothing of it is read", Clients::zombie);
        Tier.test("transactions: one left open is aborted at its timeout", Clients::timeout);
        Tier.test("transactions: offsets alone, and nothing at all", Clients::offsetsAlone);
        Tier.test("admin: topics and partitions", Clients::topics);
        Tier.test("admin: settings of topics and brokers", Clients::settings);
        Tier.test("admin: offsets by time, deleted records", Clients::listedOffsets);
        Tier.test("admin: groups and their offsets", Clients::groups);
        Tier.test("admin: reassignments", Clients::reassignments);
        Tier.test("admin: log directories", Clients::logDirectories);
        System.exit(0);
    }

    static void codec(String codec) throws Exception {
        String topic = Common.topic("codec-" + codec);
        try (KafkaProducer<String, String> producer = Common.producer("compression.type", codec, "linger.ms", "5")) {
            send(producer, topic, 0, 900);
            producer.flush();
        }
        Common.requireAll(topic, "read_uncommitted", 900);
        for (ConsumerRecord<String, String> record : Common.records(topic, "read_uncommitted")) {
            Tier.require(record.key().equals("k" + record.value()), "key " + record.key());
            Tier.require(new String(record.headers().lastHeader("h").value()).equals(record.value()), "header");
        }
    }

    static List<Future<RecordMetadata>> send(KafkaProducer<String, String> producer, String topic, int from, int to) {
        List<Future<RecordMetadata>> futures = new ArrayList<>();
        for (int i = from; i < to; i++) {
            String value = Integer.toString(i);
            ProducerRecord<String, String> record =
                new ProducerRecord<>(topic, i % Common.PARTITIONS, "k" + value, value);
            record.headers().add("h", value.getBytes());
            futures.add(producer.send(record));
        }
        return futures;
    }

    static void plain(String acks) throws Exception {
        String topic = Common.topic("acks-" + acks);
        try (KafkaProducer<String, String> producer = Common.producer("acks", acks, "enable.idempotence", "false")) {
            send(producer, topic, 0, 100);
            producer.flush();
        }
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(30);
        while (Common.records(topic, "read_uncommitted").size() < 100 && System.nanoTime() < deadline) {
            Thread.sleep(100);
        }
        Common.requireAll(topic, "read_uncommitted", 100);
    }

    static void tooLarge() throws Exception {
        String topic = Common.topic("too-large");
        try (Admin admin = Common.admin();
                KafkaProducer<String, String> producer = Common.producer("max.request.size", "4000000")) {
            alter(admin, topic, "max.message.bytes", "100000");
            send(producer, topic, 0, 30);
            Future<RecordMetadata> refused = producer.send(new ProducerRecord<>(topic, 0, "", "x".repeat(1_000_000)));
            try {
                refused.get(60, TimeUnit.SECONDS);
                throw new AssertionError("a record of 1 MB was taken");
            } catch (ExecutionException error) {
                Tier.require(error.getCause() instanceof RecordTooLargeException, String.valueOf(error.getCause()));
            }
            send(producer, topic, 30, 60);
            producer.flush();
        }
        Common.requireAll(topic, "read_uncommitted", 60);
    }

    static void alter(Admin admin, String topic, String key, String value) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        AlterConfigOp op = new AlterConfigOp(new ConfigEntry(key, value), AlterConfigOp.OpType.SET);
        admin.incrementalAlterConfigs(Map.of(resource, List.of(op))).all().get(60, TimeUnit.SECONDS);
    }

    static void killed() throws Exception {
        String topic = Common.topic("killed");
        int count = 9000;
        try (KafkaProducer<String, String> producer =
                Common.producer("linger.ms", "2", "batch.size", "2000", "delivery.timeout.ms", "180000")) {
            // Leaders must know the producer before they move: otherwise the new one may store a later batch first, and
            // then refuses the first ones until they expire (docs/compatibility.md, Clients; Kafka's brokers do, too).
            List<Future<RecordMetadata>> futures = new ArrayList<>(send(producer, topic, 0, 100));
            producer.flush();
            for (int from = 100; from < count; from += 100) {
                futures.addAll(send(producer, topic, from, from + 100));
                if (from == count / 3 || from == count * 2 / 3) {
                    Tier.killAndStart(from == count / 3 ? 0 : 1);
                }
            }
            for (Future<RecordMetadata> future : futures) {
                future.get(180, TimeUnit.SECONDS);
            }
        }
        Common.requireAll(topic, "read_uncommitted", count);
    }

    // Groups

    static void group(String assignor, boolean isStatic) throws Exception {
        String topic = Common.topic("group-" + assignor + isStatic);
        String group = topic;
        int count = 600;
        Set<String> seen = ConcurrentHashMap.newKeySet();
        List<Member> members = new ArrayList<>();
        for (int i = 0; i < 3; i++) {
            members.add(new Member(topic, group, assignor, isStatic ? "static-" + i : null, seen));
        }
        try (KafkaProducer<String, String> producer = Common.producer()) {
            for (int part = 0; part < 3; part++) {
                send(producer, topic, part * count / 3, (part + 1) * count / 3);
                producer.flush();
                int all = (part + 1) * count / 3;
                await(() -> seen.size() == all, "all of part " + part + " delivered");
                if (part == 0) {
                    await(() -> members.stream().allMatch(each -> each.partitions.get() == 1), "a partition each");
                    members.get(2).leave();
                    Member joining = new Member(topic, group, assignor, isStatic ? "static-2" : null, seen);
                    members.set(2, joining);
                    await(() -> members.stream().allMatch(each -> each.partitions.get() == 1), "a partition each again");
                }
            }
        }
        for (Member member : members) {
            member.leave();
        }
        try (KafkaConsumer<String, String> reader = Common.consumer("group.id", group)) {
            Map<TopicPartition, OffsetAndMetadata> committed = reader.committed(new HashSet<>(Common.partitions(topic)));
            for (TopicPartition place : Common.partitions(topic)) {
                Tier.require(committed.get(place) != null, place + ": nothing is committed");
                Tier.require(committed.get(place).offset() == count / 3, place + ": " + committed.get(place));
            }
        }
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void await(Condition condition, String what) throws Exception {
        await(condition, () -> what);
    }

    static void await(Condition condition, Supplier<String> what) throws Exception {
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(90);
        while (!condition.holds()) {
            Tier.require(System.nanoTime() < deadline, "not within 90 s: " + what.get());
            Thread.sleep(50);
        }
    }

    static void join(Thread thread, String what) throws Exception {
        thread.join(200_000);
        Tier.require(!thread.isAlive(), what + " does not end");
    }

    static final class Member {
        final AtomicInteger partitions = new AtomicInteger();
        final AtomicBoolean isLeaving = new AtomicBoolean();
        final Thread thread;
        volatile Throwable failure;

        Member(String topic, String group, String assignor, String instance, Set<String> seen) {
            thread = new Thread(() -> work(topic, group, assignor, instance, seen));
            thread.setDaemon(true);
            thread.start();
        }

        void work(String topic, String group, String assignor, String instance, Set<String> seen) {
            List<String> pairs = new ArrayList<>(List.of("group.id", group, "session.timeout.ms", "20000",
                "heartbeat.interval.ms", "300", "partition.assignment.strategy",
                "org.apache.kafka.clients.consumer." + assignor + "Assignor"));
            if (instance != null) {
                pairs.addAll(List.of("group.instance.id", instance));
            }
            try (KafkaConsumer<String, String> consumer = Common.consumer(pairs.toArray(new String[0]))) {
                consumer.subscribe(List.of(topic));
                while (!isLeaving.get()) {
                    ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(100));
                    partitions.set(consumer.assignment().size());
                    found.forEach(record -> seen.add(record.value()));
                    if (!found.isEmpty()) {
                        try {
                            consumer.commitSync();
                        } catch (org.apache.kafka.clients.consumer.CommitFailedException
                                | org.apache.kafka.common.errors.RebalanceInProgressException rebalancing) {
                            continue; // the records may come again
                        }
                    }
                }
            } catch (Throwable error) {
                failure = error;
            }
        }

        void leave() throws Exception {
            isLeaving.set(true);
            thread.join(60_000);
            Tier.require(failure == null, "a member failed: " + failure);
            partitions.set(0);
        }
    }

    static void offsets() throws Exception {
        String topic = Common.topic("offsets");
        TopicPartition place = new TopicPartition(topic, 0);
        try (KafkaConsumer<String, String> consumer = Common.consumer("group.id", topic)) {
            consumer.assign(List.of(place));
            int number = 0;
            for (String how : List.of("restart", "kill")) {
                OffsetAndMetadata offset = new OffsetAndMetadata(++number, "after " + how);
                consumer.commitSync(Map.of(place, offset), Duration.ofSeconds(60));
                for (int index = 0; index < Tier.BROKERS; index++) {
                    Tier.broker(how, index);
                    if (how.equals("kill")) {
                        Tier.broker("start", index);
                    }
                }
                try (KafkaConsumer<String, String> other = Common.consumer("group.id", topic)) {
                    OffsetAndMetadata found = other.committed(Set.of(place), Duration.ofSeconds(90)).get(place);
                    Tier.require(offset.equals(found), how + ": committed " + offset + ", found " + found);
                }
            }
        }
    }

    // Transactions

    /** Reads, writes an answer to each record into the same partition, and sends offsets with them; some are aborted. */
    static void transactions(String name, int count, int abortEvery, boolean isKilled) throws Exception {
        String source = Common.topic("source-" + name);
        String target = Common.topic("target-" + name);
        try (KafkaProducer<String, String> producer = Common.producer()) {
            send(producer, source, 0, count);
            producer.flush();
        }
        AtomicInteger kills = new AtomicInteger();
        AtomicBoolean isDone = new AtomicBoolean();
        Thread killer = new Thread(() -> {
            try {
                while (isKilled && !isDone.get() && kills.get() < KILLS) {
                    Thread.sleep(1500);
                    Tier.killAndStart(kills.getAndIncrement());
                }
            } catch (Exception error) {
                error.printStackTrace();
            }
        });
        killer.start();
        Map<TopicPartition, Long> positions = new HashMap<>();
        int number = 0;
        long pause = isKilled ? 120 : 0;
        while (positions.values().stream().mapToLong(Long::longValue).sum() < count || (isKilled && killer.isAlive())) {
            try {
                number = work(name, source, target, number, abortEvery, count, pause, positions, killer);
            } catch (KafkaException fatal) {
                System.err.println("a new producer after " + fatal);
            }
        }
        isDone.set(true);
        killer.join();
        Tier.require(!isKilled || kills.get() == KILLS, "killed only " + kills.get() + " times");
        Common.requireAll(target, "read_committed", count);
    }

    /** A producer and a consumer until all input is answered, or the producer is lost. */
    static int work(String name, String source, String target, int number, int abortEvery, int count, long pause,
            Map<TopicPartition, Long> positions, Thread killer) throws Exception {
        try (KafkaProducer<String, String> producer =
                    Common.producer("transactional.id", name + Common.version, "transaction.timeout.ms", "60000");
                KafkaConsumer<String, String> consumer = Common.consumer(
                    "group.id", source, "isolation.level", "read_committed", "max.poll.records", "25")) {
            producer.initTransactions();
            consumer.assign(Common.partitions(source));
            rewind(consumer, source, positions);
            while (positions.values().stream().mapToLong(Long::longValue).sum() < count || killer.isAlive()) {
                ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(200));
                if (found.isEmpty()) {
                    if (positions.values().stream().mapToLong(Long::longValue).sum() >= count) {
                        return number;
                    }
                    continue;
                }
                number++;
                try {
                    producer.beginTransaction();
                    Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                    for (ConsumerRecord<String, String> record : found) {
                        producer.send(new ProducerRecord<>(target, record.partition(), record.key(), record.value()));
                        TopicPartition place = new TopicPartition(source, record.partition());
                        offsets.put(place, new OffsetAndMetadata(record.offset() + 1));
                    }
                    producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                    Thread.sleep(pause);
                    if (number % abortEvery == 0) {
                        producer.flush();
                        producer.abortTransaction();
                        rewind(consumer, source, positions);
                    } else {
                        producer.commitTransaction();
                        offsets.forEach((place, offset) -> positions.put(place, offset.offset()));
                    }
                } catch (ProducerFencedException fenced) {
                    throw fenced;
                } catch (KafkaException error) {
                    System.err.println("aborted after " + error);
                    producer.abortTransaction();
                    rewind(consumer, source, positions);
                }
            }
        }
        return number;
    }

    /** To what is committed, which is asked of the broker: the client is not trusted with it. */
    static void rewind(KafkaConsumer<String, String> consumer, String source, Map<TopicPartition, Long> positions) {
        Map<TopicPartition, OffsetAndMetadata> committed =
            consumer.committed(new HashSet<>(Common.partitions(source)), Duration.ofSeconds(120));
        for (TopicPartition place : Common.partitions(source)) {
            OffsetAndMetadata offset = committed.get(place);
            long position = offset == null ? 0 : offset.offset();
            consumer.seek(place, position);
            positions.put(place, position);
        }
    }

    static void isolation() throws Exception {
        String topic = Common.topic("isolation");
        try (KafkaProducer<String, String> one = Common.producer("transactional.id", topic + "-1");
                KafkaProducer<String, String> two = Common.producer("transactional.id", topic + "-2")) {
            one.initTransactions();
            two.initTransactions();
            one.beginTransaction();
            send(one, topic, 0, 3);
            one.flush();
            two.beginTransaction();
            send(two, topic, 1000, 1030);
            two.flush();
            Tier.require(Common.records(topic, "read_committed").isEmpty(), "an open transaction is read");
            two.abortTransaction();
            one.commitTransaction();
            one.beginTransaction();
            send(one, topic, 3, 6);
            one.commitTransaction();
        }
        Common.requireAll(topic, "read_committed", 6);
        int all = Common.records(topic, "read_uncommitted").size();
        Tier.require(all == 36, "uncommitted readers see " + all + " of 36");
    }

    static void zombie() throws Exception {
        String topic = Common.topic("zombie");
        String id = topic + "-id";
        try (KafkaProducer<String, String> zombie = Common.producer("transactional.id", id);
                KafkaProducer<String, String> heir = Common.producer("transactional.id", id)) {
            zombie.initTransactions();
            zombie.beginTransaction();
            send(zombie, topic, 1000, 1003);
            zombie.flush();
            heir.initTransactions();
            heir.beginTransaction();
            send(heir, topic, 0, 3);
            heir.commitTransaction();
            try {
                zombie.commitTransaction();
                throw new AssertionError("the zombie could commit");
            } catch (ProducerFencedException | InvalidProducerEpochException told) {
                System.err.println("the zombie was told: " + told);
            }
            heir.beginTransaction();
            send(heir, topic, 3, 6);
            heir.commitTransaction();
        }
        Common.requireAll(topic, "read_committed", 6);
    }

    static void timeout() throws Exception {
        String topic = Common.topic("timeout");
        try (KafkaProducer<String, String> late =
                    Common.producer("transactional.id", topic + "-late", "transaction.timeout.ms", "3000");
                KafkaProducer<String, String> other = Common.producer("transactional.id", topic + "-other")) {
            late.initTransactions();
            late.beginTransaction();
            send(late, topic, 1000, 1003);
            late.flush();
            other.initTransactions();
            other.beginTransaction();
            send(other, topic, 0, 3);
            other.commitTransaction();
            await(() -> Common.records(topic, "read_committed").size() == 3, "committed records behind an abandoned one");
            try {
                late.commitTransaction();
                throw new AssertionError("a transaction past its timeout was committed");
            } catch (KafkaException told) {
                System.err.println("the late one was told: " + told);
            }
        }
        Common.requireAll(topic, "read_committed", 3);
    }

    static void offsetsAlone() throws Exception {
        String topic = Common.topic("alone");
        TopicPartition place = new TopicPartition(topic, 1);
        try (KafkaProducer<String, String> producer = Common.producer("transactional.id", topic);
                KafkaConsumer<String, String> consumer = Common.consumer("group.id", topic)) {
            producer.initTransactions();
            producer.beginTransaction();
            producer.commitTransaction();
            producer.beginTransaction();
            producer.abortTransaction();
            consumer.assign(List.of(place));
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(7)), consumer.groupMetadata());
            producer.abortTransaction();
            Tier.require(consumer.committed(Set.of(place)).get(place) == null, "an aborted offset is committed");
            producer.beginTransaction();
            producer.sendOffsetsToTransaction(Map.of(place, new OffsetAndMetadata(8)), consumer.groupMetadata());
            producer.commitTransaction();
            long found = consumer.committed(Set.of(place)).get(place).offset();
            Tier.require(found == 8, "committed is " + found);
        }
    }

    // Administration

    static void topics() throws Exception {
        String topic = Common.topic("admin");
        try (Admin admin = Common.admin()) {
            try {
                Common.topic("admin");
                throw new AssertionError("a topic could be created twice");
            } catch (ExecutionException error) {
                Tier.require(error.getCause() instanceof TopicExistsException, String.valueOf(error.getCause()));
            }
            Tier.require(admin.listTopics().names().get().contains(topic), "not listed");
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(5))).all().get(60, TimeUnit.SECONDS);
            await(() -> described(admin, topic).partitions().size() == 5, "five partitions");
            TopicDescription description = described(admin, topic);
            description.partitions().forEach(each ->
                Tier.require(each.replicas().size() == Tier.REPLICAS && each.leader() != null, each.toString()));
            Tier.require(admin.describeCluster().nodes().get().size() == Tier.BROKERS, "not all brokers are described");
            Tier.require(!admin.describeCluster().clusterId().get().isEmpty(), "no cluster id");
            admin.deleteTopics(List.of(topic)).all().get(60, TimeUnit.SECONDS);
            await(() -> !admin.listTopics().names().get().contains(topic), "deleted");
        }
    }

    static TopicDescription described(Admin admin, String topic) throws Exception {
        org.apache.kafka.common.KafkaFuture<Map<String, TopicDescription>> all =
            Tier.call(admin.describeTopics(List.of(topic)), "allTopicNames", "all");
        return all.get(60, TimeUnit.SECONDS).get(topic);
    }

    static void settings() throws Exception {
        String topic = Common.topic("settings");
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        try (Admin admin = Common.admin()) {
            alter(admin, topic, "retention.ms", "3600000");
            await(() -> "3600000".equals(config(admin, resource).get("retention.ms").value()), "the setting");
            ConfigEntry entry = config(admin, resource).get("retention.ms");
            Tier.require(entry.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, "source " + entry.source());
            AlterConfigOp op = new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE);
            admin.incrementalAlterConfigs(Map.of(resource, List.of(op))).all().get(60, TimeUnit.SECONDS);
            await(() -> config(admin, resource).get("retention.ms").source() != ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG,
                "the default");
            try {
                alter(admin, topic, "retention.ms", "soon");
                throw new AssertionError("retention.ms=soon was taken");
            } catch (ExecutionException error) {
                System.err.println("refused: " + error.getCause());
            }
            int id = admin.describeCluster().nodes().get().iterator().next().id();
            ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, Integer.toString(id));
            Tier.require(config(admin, broker).get("log.retention.hours") != null, "the broker is not described");
        }
    }

    static Config config(Admin admin, ConfigResource resource) throws Exception {
        return admin.describeConfigs(List.of(resource)).all().get(60, TimeUnit.SECONDS).get(resource);
    }

    static void listedOffsets() throws Exception {
        String topic = Common.topic("listed");
        TopicPartition place = new TopicPartition(topic, 0);
        try (Admin admin = Common.admin(); KafkaProducer<String, String> producer = Common.producer()) {
            for (long i = 0; i < 10; i++) {
                producer.send(new ProducerRecord<>(topic, 0, 1_700_000_000_000L + i * 1000, "", "")).get();
            }
            Tier.require(offset(admin, place, OffsetSpec.earliest()) == 0, "earliest");
            Tier.require(offset(admin, place, OffsetSpec.latest()) == 10, "latest");
            Tier.require(offset(admin, place, OffsetSpec.forTimestamp(1_700_000_004_500L)) == 5, "by time");
            Tier.require(offset(admin, place, OffsetSpec.forTimestamp(1_800_000_000_000L)) == -1, "after all");
            admin.deleteRecords(Map.of(place, RecordsToDelete.beforeOffset(4))).all().get(60, TimeUnit.SECONDS);
            Tier.require(offset(admin, place, OffsetSpec.earliest()) == 4, "earliest after deletion");
        }
        Tier.require(Common.records(topic, "read_uncommitted").size() == 6, "six are left");
    }

    static long offset(Admin admin, TopicPartition place, OffsetSpec spec) throws Exception {
        ListOffsetsResult result = admin.listOffsets(Map.of(place, spec));
        return result.partitionResult(place).get(60, TimeUnit.SECONDS).offset();
    }

    static void groups() throws Exception {
        String topic = Common.topic("groups");
        TopicPartition place = new TopicPartition(topic, 0);
        try (Admin admin = Common.admin(); KafkaConsumer<String, String> consumer = Common.consumer("group.id", topic)) {
            consumer.subscribe(List.of(topic));
            await(() -> {
                consumer.poll(Duration.ofMillis(100));
                return consumer.assignment().size() == Common.PARTITIONS;
            }, "an assignment");
            consumer.commitSync(Map.of(place, new OffsetAndMetadata(0)));
            ConsumerGroupDescription description =
                admin.describeConsumerGroups(List.of(topic)).all().get(60, TimeUnit.SECONDS).get(topic);
            Tier.require(description.members().size() == 1, description.toString());
            Tier.require(description.members().iterator().next().assignment().topicPartitions().size() == 3, "assignment");
            boolean isListed = admin.listConsumerGroups().all().get().stream().anyMatch(g -> g.groupId().equals(topic));
            Tier.require(isListed, "not listed");
            consumer.close();
            admin.alterConsumerGroupOffsets(topic, Map.of(place, new OffsetAndMetadata(3))).all().get(60, TimeUnit.SECONDS);
            Map<TopicPartition, OffsetAndMetadata> offsets =
                admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get();
            Tier.require(offsets.get(place).offset() == 3, offsets.toString());
            admin.deleteConsumerGroupOffsets(topic, Set.of(place)).all().get(60, TimeUnit.SECONDS);
            offsets = admin.listConsumerGroupOffsets(topic).partitionsToOffsetAndMetadata().get();
            Tier.require(offsets.get(place) == null, offsets.toString());
            admin.alterConsumerGroupOffsets(topic, Map.of(place, new OffsetAndMetadata(2))).all().get(60, TimeUnit.SECONDS);
            admin.deleteConsumerGroups(List.of(topic)).all().get(60, TimeUnit.SECONDS);
            isListed = admin.listConsumerGroups().all().get().stream().anyMatch(g -> g.groupId().equals(topic));
            Tier.require(!isListed, "still listed");
        }
    }

    static void reassignments() throws Exception {
        String topic = Common.topic("moved");
        TopicPartition place = new TopicPartition(topic, 0);
        try (Admin admin = Common.admin(); KafkaProducer<String, String> producer = Common.producer()) {
            send(producer, topic, 0, 30);
            producer.flush();
            List<Integer> ids = new ArrayList<>();
            described(admin, topic).partitions().get(0).replicas().forEach(node -> ids.add(node.id()));
            Collections.reverse(ids);
            NewPartitionReassignment wish = new NewPartitionReassignment(ids);
            admin.alterPartitionReassignments(Map.of(place, java.util.Optional.of(wish))).all().get(60, TimeUnit.SECONDS);
            await(() -> admin.listPartitionReassignments(Set.of(place)).reassignments().get().isEmpty(), "moved");
            List<Integer> now = new ArrayList<>();
            described(admin, topic).partitions().get(0).replicas().forEach(node -> now.add(node.id()));
            Tier.require(now.equals(ids), now + ", not " + ids);
        }
        Common.requireAll(topic, "read_uncommitted", 30);
    }

    static void logDirectories() throws Exception {
        try (Admin admin = Common.admin()) {
            int id = admin.describeCluster().nodes().get().iterator().next().id();
            org.apache.kafka.common.KafkaFuture<Map<Integer, ?>> all =
                Tier.call(admin.describeLogDirs(List.of(id)), "allDescriptions", "all");
            Tier.require(all.get(60, TimeUnit.SECONDS).containsKey(id), "not described");
        }
    }
}
