import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;

/** Offsets that members of the consumer protocol commit. */
public final class NewCommits {
    public static void main(String[] arguments) {
        NewGroups.begin(arguments[0]);
        Tier.test("consumer protocol: one group, default settings of the client", NewCommits::defaults);
        Tier.test("consumer protocol: commits in onPartitionsRevoked alone", NewCommits::revoked);
        Tier.test("consumer protocol: offsets read back, with metadata", NewCommits::committed);
        Tier.test("consumer protocol: a commit of a member that was removed fails", NewCommits::lost);
        System.exit(0);
    }

    static KafkaConsumer<String, String> consumer(String group, String... settings) {
        return Common.consumer(GroupMember.joined(GroupMember.joined(GroupMember.NEW, "group.id", group), settings));
    }

    /** With automatic commits: a second member begins where the first has ended. */
    static void defaults() throws Exception {
        String topic = Common.topic("new-group");
        List<TopicPartition> places = Common.partitions(topic);
        Reading reading = new Reading();
        for (int part = 0; part < 2; part++) {
            int all = (part + 1) * 30;
            Feed.send(places, part * 30, all);
            try (KafkaConsumer<String, String> consumer = consumer(topic, "enable.auto.commit", "true")) {
                consumer.subscribe(List.of(topic));
                Clients.await(() -> {
                    consumer.poll(Duration.ofMillis(200)).forEach(record -> reading.read(record.value()));
                    return reading.size() >= all;
                }, "all records");
            }
            reading.requireOnce(all);
        }
        NewGroups.requireAllCommitted(topic, places);
    }

    /** A member that commits nowhere but in onPartitionsRevoked. It is driven by the test's own thread. */
    static final class LateCommitter implements ConsumerRebalanceListener, AutoCloseable {
        final KafkaConsumer<String, String> consumer;
        final Reading reading;
        final Map<TopicPartition, OffsetAndMetadata> done = new HashMap<>();

        LateCommitter(Reading reading, String topic) {
            this.reading = reading;
            consumer = consumer(topic);
            consumer.subscribe(List.of(topic), this);
        }

        void poll() {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(50))) {
                TopicPartition place = new TopicPartition(record.topic(), record.partition());
                reading.read(this, place, record.value());
                done.put(place, new OffsetAndMetadata(record.offset() + 1));
            }
        }

        int size() {
            return consumer.assignment().size();
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> places) {
            reading.assigned(this, places);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> places) {
            Map<TopicPartition, OffsetAndMetadata> leaving = new HashMap<>(done);
            leaving.keySet().retainAll(places);
            consumer.commitSync(leaving);
            done.keySet().removeAll(places);
            reading.revoked(this, places);
        }

        @Override
        public void onPartitionsLost(Collection<TopicPartition> places) {
            throw new AssertionError("lost: " + places);
        }

        @Override
        public void close() {
            consumer.close();
        }
    }

    static void revoked() throws Exception {
        String topic = Common.topic("new-revoked", 6);
        List<TopicPartition> places = Common.partitions(topic, 6);
        Reading reading = new Reading();
        Feed.send(places, 0, 300);
        try (LateCommitter first = new LateCommitter(reading, topic)) {
            Clients.await(() -> {
                first.poll();
                return first.size() == 6 && reading.size() >= 300;
            }, "the first member reads all");
            Tier.require(first.consumer.committed(new HashSet<>(places)).values().stream().allMatch(each -> each == null),
                "something is committed before a rebalance");
            try (LateCommitter second = new LateCommitter(reading, topic)) {
                Clients.await(() -> {
                    first.poll();
                    second.poll();
                    return first.size() == 3 && second.size() == 3;
                }, "three partitions each");
                Feed.send(places, 300, 600);
                Clients.await(() -> {
                    first.poll();
                    second.poll();
                    return reading.size() >= 600;
                }, "both read the rest");
                Map<TopicPartition, OffsetAndMetadata> found = second.consumer.committed(new HashSet<>(places));
                for (TopicPartition place : places) {
                    boolean hasMoved = second.consumer.assignment().contains(place);
                    OffsetAndMetadata offset = found.get(place);
                    Tier.require(hasMoved ? offset != null && offset.offset() == 50 : offset == null, place + ": " + offset);
                }
            }
        }
        reading.requireOnce(600);
        NewGroups.requireAllCommitted(topic, places);
    }

    static void committed() throws Exception {
        String topic = Common.topic("new-committed");
        List<TopicPartition> places = Common.partitions(topic);
        Feed.send(places, 0, 30);
        try (KafkaConsumer<String, String> consumer = consumer(topic)) {
            consumer.subscribe(List.of(topic));
            Clients.await(() -> {
                consumer.poll(Duration.ofMillis(100));
                return consumer.assignment().size() == 3;
            }, "an assignment");
            OffsetAndMetadata first = new OffsetAndMetadata(4, "four");
            consumer.commitSync(Map.of(places.get(0), first));
            AtomicInteger done = new AtomicInteger();
            OffsetAndMetadata second = new OffsetAndMetadata(5, "five");
            consumer.commitAsync(Map.of(places.get(1), second), (offsets, error) -> done.set(error == null ? 1 : -1));
            Clients.await(() -> {
                consumer.poll(Duration.ofMillis(100));
                return done.get() != 0;
            }, "the answer to commitAsync");
            Tier.require(done.get() == 1, "commitAsync failed");
            Map<TopicPartition, OffsetAndMetadata> found = consumer.committed(new HashSet<>(places));
            Tier.require(first.equals(found.get(places.get(0))), found.toString());
            Tier.require(second.equals(found.get(places.get(1))), found.toString());
            Tier.require(found.get(places.get(2)) == null, found.toString());
        }
    }

    /** A member that does not poll within max.poll.interval.ms leaves. Its commit fails, and changes nothing. */
    static void lost() throws Exception {
        String topic = Common.topic("new-lost");
        List<TopicPartition> places = Common.partitions(topic);
        Feed.send(places, 0, 30);
        AtomicBoolean isLost = new AtomicBoolean();
        try (KafkaConsumer<String, String> late = consumer(topic, "max.poll.interval.ms", "5000")) {
            late.subscribe(List.of(topic), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> assigned) {}

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> given) {}

                @Override
                public void onPartitionsLost(Collection<TopicPartition> lost) {
                    isLost.set(Set.copyOf(lost).equals(Set.copyOf(places)));
                }
            });
            Clients.await(() -> {
                late.poll(Duration.ofMillis(100));
                return late.assignment().size() == 3;
            }, "an assignment");
            Reading reading = new Reading();
            GroupMember heir = GroupMember.of(reading, topic, topic);
            GroupMember.settled(List.of(heir), places, 3, 3);
            reading.requireOnce(30);
            Clients.await(() -> late.committed(Set.copyOf(places)).values().stream()
                .allMatch(each -> each != null && each.offset() == 10), "the commits of the heir");
            try {
                late.commitSync(Map.of(places.get(0), new OffsetAndMetadata(1)));
                throw new AssertionError("a member that was removed could commit");
            } catch (CommitFailedException expected) {
                System.err.println("refused: " + expected.getMessage());
            }
            NewGroups.requireAllCommitted(topic, places);
            Clients.await(() -> {
                late.poll(Duration.ofMillis(100));
                return isLost.get() && !late.assignment().isEmpty() && heir.owned().size() + late.assignment().size() == 3;
            }, "onPartitionsLost, and a share again");
            late.commitSync(Map.of(late.assignment().iterator().next(), new OffsetAndMetadata(10)));
            heir.leave();
        }
        NewGroups.requireAllCommitted(topic, places);
    }
}
