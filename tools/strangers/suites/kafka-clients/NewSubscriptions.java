import java.time.Duration;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.MemberDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidRegularExpression;
import org.apache.kafka.common.errors.UnsupportedAssignorException;

/** Groups of the consumer protocol: regular expressions, assignors, settings of a group, and what Admin shows. */
public final class NewSubscriptions {
    public static void main(String[] arguments) {
        NewGroups.begin(arguments[0]);
        Tier.test("consumer protocol: a regular expression that the broker resolves", NewSubscriptions::pattern);
        Tier.test("consumer protocol: an invalid regular expression is refused", NewSubscriptions::invalidPattern);
        Tier.test("consumer protocol: assignor range", () -> assignor("range"));
        Tier.test("consumer protocol: assignor uniform", () -> assignor("uniform"));
        Tier.test("consumer protocol: an unknown assignor is refused", NewSubscriptions::unknownAssignor);
        Tier.test("consumer protocol: admin: settings of a group", NewSubscriptions::settings);
        Tier.test("consumer protocol: admin: a heartbeat interval takes effect", NewSubscriptions::heartbeats);
        Tier.test("consumer protocol: admin: a group and its members described", NewSubscriptions::described);
        System.exit(0);
    }

    static GroupMember member(Reading reading, String pattern, String group) {
        return new GroupMember(reading,
            (consumer, listener) -> consumer.subscribe(new SubscriptionPattern(pattern), listener),
            GroupMember.joined(GroupMember.NEW, "group.id", group, "group.remote.assignor", "range"));
    }

    /**
     * Range gives both members partitions of each topic. Once a topic is deleted, a member of 4.1.2 or 4.4.0 may never
     * again learn the name of a topic that is new to it, because its request for metadata by topic id fails; of Kafka
     * too. It loses what arrives together with that answer: it never fetches again from a broker whose answer was lost.
     * So other members read on.
     */
    static void pattern() throws Exception {
        String one = Common.topic("pattern-one", 4);
        String two = Common.topic("pattern-two", 4);
        Common.topic("no-pattern-one", 4);
        String group = "pattern-" + Common.version;
        List<TopicPartition> places = new ArrayList<>(Common.partitions(one, 4));
        places.addAll(Common.partitions(two, 4));
        Reading reading = new Reading();
        List<GroupMember> members = twoMembers(reading, group);
        GroupMember.settled(members, places, 4, 4);
        Feed.send(places, 0, 80);
        reading.requireOnce(80);
        String late = Common.topic("pattern-late", 4);
        places.addAll(Common.partitions(late, 4));
        GroupMember.settled(members, places, 6, 6);
        Feed.send(places, 80, 200);
        reading.requireOnce(200);
        try (Admin admin = Common.admin()) {
            Clients.await(() -> committed(admin, group) == 200, "commits of all values");
            int before = epoch(admin, group);
            admin.deleteTopics(List.of(one)).all().get(60, TimeUnit.SECONDS);
            Clients.await(() -> epoch(admin, group) > before, "a new epoch without the deleted topic");
        }
        GroupMember.leave(members);
        places.removeAll(Common.partitions(one, 4));
        List<GroupMember> others = twoMembers(reading, group);
        GroupMember.settled(others, places, 4, 4);
        Feed.send(places, 200, 280);
        reading.requireOnce(280);
        GroupMember.leave(others);
    }

    private static List<GroupMember> twoMembers(Reading reading, String group) {
        String pattern = "pattern-.*-" + Common.version;
        return List.of(member(reading, pattern, group), member(reading, pattern, group));
    }

    /** The sum of the group's committed offsets. */
    private static long committed(Admin admin, String group) throws Exception {
        return admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get(60, TimeUnit.SECONDS)
            .values().stream().mapToLong(OffsetAndMetadata::offset).sum();
    }

    private static int epoch(Admin admin, String group) throws Exception {
        return NewGroups.described(admin, group).groupEpoch().orElseThrow();
    }

    static void invalidPattern() throws Exception {
        GroupMember member = member(new Reading(), "pattern-[", "invalid-pattern-" + Common.version);
        Throwable refused = member.failed();
        Tier.require(refused instanceof InvalidRegularExpression, String.valueOf(refused));
    }

    /** Four members, two topics of three partitions. Range: the same partition of both topics to three of them. */
    static void assignor(String name) throws Exception {
        String one = Common.topic("assignor-one-" + name);
        String two = Common.topic("assignor-two-" + name);
        List<TopicPartition> places = new ArrayList<>(Common.partitions(one));
        places.addAll(Common.partitions(two));
        boolean isRange = name.equals("range");
        Reading reading = new Reading();
        List<GroupMember> members = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            members.add(GroupMember.of(reading, List.of(one, two), one, "group.remote.assignor", name));
        }
        Clients.await(() -> {
            members.forEach(GroupMember::requireRunning);
            List<Set<TopicPartition>> shares = members.stream().map(GroupMember::owned).toList();
            List<Integer> sizes = shares.stream().map(Set::size).sorted(Comparator.reverseOrder()).toList();
            List<Integer> expected = isRange ? List.of(2, 2, 2, 0) : List.of(2, 2, 1, 1);
            return GroupMember.isSettled(shares, places, 0, 2) && sizes.equals(expected);
        }, () -> "the shares of " + name + ": " + members.stream().map(GroupMember::owned).toList());
        for (GroupMember member : members) {
            Set<Integer> numbers = member.owned().stream().map(TopicPartition::partition).collect(Collectors.toSet());
            Tier.require(!isRange || numbers.size() <= 1, "not the same partition of both topics: " + member.owned());
        }
        try (Admin admin = Common.admin()) {
            ConsumerGroupDescription found = NewGroups.described(admin, one);
            Tier.require(found.partitionAssignor().equals(name), found.toString());
        }
        Feed.send(places, 0, 60);
        reading.requireOnce(60);
        GroupMember.leave(members);
    }

    static void unknownAssignor() throws Exception {
        String topic = Common.topic("assignor-unknown");
        GroupMember member = GroupMember.of(new Reading(), topic, topic, "group.remote.assignor", "nearest");
        Throwable refused = member.failed();
        Tier.require(refused instanceof UnsupportedAssignorException, String.valueOf(refused));
    }

    static ConfigEntry setting(Admin admin, String group, String name) throws Exception {
        Config found = Clients.config(admin, new ConfigResource(ConfigResource.Type.GROUP, group));
        return found.get(name);
    }

    static void settings() throws Exception {
        String group = "settings-of-a-group-" + Common.version;
        Map<String, String> given = Map.of("consumer.session.timeout.ms", "7000", "consumer.heartbeat.interval.ms", "700");
        try (Admin admin = Common.admin()) {
            for (Map.Entry<String, String> each : given.entrySet()) {
                ConfigEntry before = setting(admin, group, each.getKey());
                Tier.require(before.source() != ConfigEntry.ConfigSource.DYNAMIC_GROUP_CONFIG, "given before: " + before);
                NewGroups.set(group, each.getKey(), each.getValue());
                Clients.await(() -> each.getValue().equals(setting(admin, group, each.getKey()).value()), each.getKey());
                ConfigEntry found = setting(admin, group, each.getKey());
                Tier.require(found.source() == ConfigEntry.ConfigSource.DYNAMIC_GROUP_CONFIG, "source " + found.source());
            }
            refused(group, "consumer.session.timeout.ms", "10");
            refused(group, "consumer.session.timeout.ms", "3600000");
            refused(group, "consumer.heartbeat.interval.ms", "10");
            refused(group, "consumer.patience.ms", "10");
            boolean isListed = admin
                .listConfigResources(Set.of(ConfigResource.Type.GROUP), new ListConfigResourcesOptions())
                .all().get(60, TimeUnit.SECONDS).stream().anyMatch(each -> each.name().equals(group));
            Tier.require(isListed, "the group is not listed among those with settings");
        }
    }

    static void refused(String group, String name, String value) throws Exception {
        try {
            NewGroups.set(group, name, value);
            throw new AssertionError(name + "=" + value + " was taken");
        } catch (java.util.concurrent.ExecutionException error) {
            Tier.require(error.getCause() instanceof InvalidConfigurationException, name + ": " + error.getCause());
        }
    }

    static double heartbeat(KafkaConsumer<String, String> consumer, String name) {
        for (Metric metric : consumer.metrics().values()) {
            if (metric.metricName().name().equals(name) && metric.metricName().group().contains("coordinator")) {
                return (Double) metric.metricValue();
            }
        }
        throw new AssertionError("no metric " + name);
    }

    /** The interval of the broker is 500 ms: only one of 10 s lets the last heartbeat become 4 s old. */
    static void heartbeats() throws Exception {
        String topic = Common.topic("heartbeats");
        NewGroups.set(topic, "consumer.heartbeat.interval.ms", "10000");
        try (KafkaConsumer<String, String> consumer =
                Common.consumer(GroupMember.joined(GroupMember.NEW, "group.id", topic))) {
            consumer.subscribe(List.of(topic));
            Clients.await(() -> {
                consumer.poll(Duration.ofMillis(100));
                return consumer.assignment().size() == 3 && heartbeat(consumer, "last-heartbeat-seconds-ago") >= 4;
            }, "a heartbeat 4 s ago");
            NewGroups.set(topic, "consumer.heartbeat.interval.ms", "300");
            double before = heartbeat(consumer, "heartbeat-total");
            long start = System.nanoTime();
            Clients.await(() -> {
                consumer.poll(Duration.ofMillis(100));
                return heartbeat(consumer, "heartbeat-total") >= before + 20;
            }, "20 heartbeats, which would take 200 s with the interval before");
            System.err.println("20 heartbeats within " + (System.nanoTime() - start) / 1_000_000 + " ms");
        }
    }

    static void described() throws Exception {
        String topic = Common.topic("new-described", 6);
        List<TopicPartition> places = Common.partitions(topic, 6);
        Reading reading = new Reading();
        try (Admin admin = Common.admin()) {
            GroupMember one = GroupMember.of(reading, topic, topic, "client.id", "client-one");
            GroupMember.settled(List.of(one), places, 6, 6);
            requireStable(admin, topic, Map.of("client-one", one.owned()));
            int before = NewGroups.described(admin, topic).groupEpoch().get();
            GroupMember two = GroupMember.of(reading, topic, topic, "client.id", "client-two");
            GroupMember.settled(List.of(one, two), places, 3, 3);
            requireStable(admin, topic, Map.of("client-one", one.owned(), "client-two", two.owned()));
            int after = NewGroups.described(admin, topic).groupEpoch().get();
            Tier.require(after > before, "the epoch of the group went from " + before + " to " + after);
            boolean isListed = admin.listGroups().all().get(60, TimeUnit.SECONDS).stream().anyMatch(each ->
                each.groupId().equals(topic) && each.type().equals(Optional.of(GroupType.CONSUMER))
                    && each.protocol().equals("consumer"));
            Tier.require(isListed, "not listed as of type consumer");
            GroupMember.leave(List.of(one, two));
            Clients.await(() -> NewGroups.described(admin, topic).groupState() == GroupState.EMPTY, "an empty group");
            Tier.require(NewGroups.described(admin, topic).members().isEmpty(), "members of an empty group");
            admin.deleteConsumerGroups(List.of(topic)).all().get(60, TimeUnit.SECONDS);
            Tier.require(admin.listGroups().all().get().stream().noneMatch(g -> g.groupId().equals(topic)), "still listed");
        }
    }

    /** Waits until the group is stable; then the Admin must show these members, by client id, at the group's epoch. */
    static void requireStable(Admin admin, String group, Map<String, Set<TopicPartition>> owned) throws Exception {
        Clients.await(() -> NewGroups.described(admin, group).groupState() == GroupState.STABLE, "a stable group");
        ConsumerGroupDescription found = NewGroups.described(admin, group);
        Tier.require(found.type() == GroupType.CONSUMER, "type " + found.type());
        Tier.require(found.groupEpoch().equals(found.targetAssignmentEpoch()), found.toString());
        Tier.require(found.coordinator() != null && found.coordinator().port() > 0, "coordinator " + found.coordinator());
        Set<String> clients = new HashSet<>();
        for (MemberDescription member : found.members()) {
            Set<TopicPartition> expected = owned.get(member.clientId());
            clients.add(member.clientId());
            Tier.require(member.memberEpoch().equals(found.groupEpoch()), "member epoch " + member.memberEpoch());
            Tier.require(member.assignment().topicPartitions().equals(expected), member + ", not " + expected);
            Tier.require(member.targetAssignment().get().topicPartitions().equals(expected), member + ": target");
            Tier.require(member.upgraded().equals(Optional.of(true)), "upgraded " + member.upgraded());
        }
        Tier.require(clients.equals(owned.keySet()), "members " + clients);
    }
}
