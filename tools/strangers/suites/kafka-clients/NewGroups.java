import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.UnreleasedInstanceIdException;

/** Groups of the consumer protocol (KIP-848), which kafka-clients have from 4.0 on: members that come, go and die. */
public final class NewGroups {
    static final int MANY = 50;

    public static void main(String[] arguments) {
        begin(arguments[0]);
        Tier.test("consumer protocol: members join, leave and die", NewGroups::shared);
        Tier.test("consumer protocol: fifty members at once, ten of them restarted", NewGroups::fifty);
        Tier.test("consumer protocol: fifty members, one by one", NewGroups::oneByOne);
        Tier.test("consumer protocol: static members come back to their partitions", NewGroups::staticMembers);
        Tier.test("consumer protocol: an instance id that is in use is refused", NewGroups::usedInstanceId);
        System.exit(0);
    }

    /** To be called first by each program of the consumer protocol. */
    static void begin(String version) {
        Common.version = version;
        Tier.prefix = version + ": ";
        Tier.timeoutS = 400;
    }

    /** Gives a group a session that is shorter than the broker's. */
    static void shortSession(String group) throws Exception {
        set(group, "consumer.session.timeout.ms", "6000");
    }

    static void set(String group, String name, String value) throws Exception {
        ConfigResource resource = new ConfigResource(ConfigResource.Type.GROUP, group);
        AlterConfigOp op = new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET);
        try (Admin admin = Common.admin()) {
            admin.incrementalAlterConfigs(Map.of(resource, List.of(op))).all().get(60, TimeUnit.SECONDS);
        }
    }

    static ConsumerGroupDescription described(Admin admin, String group) throws Exception {
        return admin.describeConsumerGroups(List.of(group)).all().get(60, TimeUnit.SECONDS).get(group);
    }

    /** The committed offset of each partition must be its end. */
    static void requireAllCommitted(String group, List<TopicPartition> places) throws Exception {
        try (KafkaConsumer<String, String> reader = Common.consumer("group.id", group)) {
            Map<TopicPartition, Long> ends = reader.endOffsets(places);
            Map<TopicPartition, OffsetAndMetadata> committed = reader.committed(new HashSet<>(places));
            for (TopicPartition place : places) {
                OffsetAndMetadata found = committed.get(place);
                Tier.require(found != null && found.offset() == ends.get(place),
                    place + ": committed is " + found + " of " + ends.get(place));
            }
        }
    }

    static void shared() throws Exception {
        String topic = Common.topic("new-shared", 12);
        List<TopicPartition> places = Common.partitions(topic, 12);
        shortSession(topic);
        Reading reading = new Reading();
        List<GroupMember> members = new ArrayList<>();
        try (Feed feed = new Feed(places)) {
            for (int i = 0; i < 3; i++) {
                members.add(GroupMember.of(reading, topic, topic));
            }
            GroupMember.settled(members, places, 4, 4);
            members.add(GroupMember.of(reading, topic, topic));
            GroupMember.settled(members, places, 3, 3);
            members.remove(0).leave();
            GroupMember.settled(members, places, 4, 4);
            try (GroupMember.Child child = new GroupMember.Child(reading, topic, topic)) {
                Clients.await(() -> {
                    List<Set<TopicPartition>> shares = new ArrayList<>(List.of(child.owned()));
                    members.forEach(each -> shares.add(each.owned()));
                    return GroupMember.isSettled(shares, places, 3, 3);
                }, "three partitions each, one member in another process");
                feed.pause(true);
                Clients.await(() -> reading.size() == feed.sent(), "the child reads its share");
                child.kill();
            }
            feed.pause(false);
            GroupMember.settled(members, places, 4, 4);
            reading.requireOnce(feed.stop());
        }
        GroupMember.leave(members);
        requireAllCommitted(topic, places);
    }

    static void fifty() throws Exception {
        String topic = Common.topic("new-fifty", 60);
        List<TopicPartition> places = Common.partitions(topic, 60);
        Reading reading = new Reading();
        List<GroupMember> members = new ArrayList<>();
        try (Feed feed = new Feed(places)) {
            for (int i = 0; i < MANY; i++) {
                members.add(GroupMember.of(reading, topic, topic));
            }
            GroupMember.settled(members, places, 1, 2);
            for (int i = 0; i < 10; i++) {
                members.get(i).leave();
                GroupMember next = GroupMember.of(reading, topic, topic);
                members.set(i, next);
                Clients.await(() -> !next.owned().isEmpty(), "a partition for a member that is new");
            }
            GroupMember.settled(members, places, 1, 2);
            reading.requireOnce(feed.stop());
        }
        leaveAll(topic, members, places);
    }

    static void oneByOne() throws Exception {
        String topic = Common.topic("new-one-by-one", 60);
        List<TopicPartition> places = Common.partitions(topic, 60);
        Reading reading = new Reading();
        List<GroupMember> members = new ArrayList<>();
        try (Feed feed = new Feed(places)) {
            for (int i = 0; i < MANY; i++) {
                GroupMember next = GroupMember.of(reading, topic, topic);
                members.add(next);
                Clients.await(() -> !next.owned().isEmpty(), "a partition for member " + i);
            }
            GroupMember.settled(members, places, 1, 2);
            reading.requireOnce(feed.stop());
        }
        leaveAll(topic, members, places);
    }

    static void leaveAll(String group, List<GroupMember> members, List<TopicPartition> places) throws Exception {
        GroupMember.leave(members);
        requireAllCommitted(group, places);
        try (Admin admin = Common.admin()) {
            Clients.await(() -> described(admin, group).groupState() == GroupState.EMPTY, "an empty group");
        }
    }

    static void staticMembers() throws Exception {
        String topic = Common.topic("new-static", 6);
        List<TopicPartition> places = Common.partitions(topic, 6);
        Reading reading = new Reading();
        List<GroupMember> members = new ArrayList<>();
        try (Feed feed = new Feed(places)) {
            for (int i = 0; i < 3; i++) {
                members.add(GroupMember.of(reading, topic, topic, "group.instance.id", "static-" + i));
            }
            GroupMember.settled(members, places, 2, 2);
            for (int i = 0; i < 3; i++) {
                Set<TopicPartition> before = members.get(i).owned();
                List<Integer> rebalances = members.stream().map(each -> each.rebalances.get()).toList();
                members.get(i).leave();
                int unread = reading.size();
                members.set(i, GroupMember.of(reading, topic, topic, "group.instance.id", "static-" + i));
                GroupMember.settled(members, places, 2, 2);
                Clients.await(() -> reading.size() > unread, "more values");
                Tier.require(members.get(i).owned().equals(before), before + " became " + members.get(i).owned());
                for (int k = 0; k < 3; k++) {
                    Tier.require(k == i || members.get(k).rebalances.get() == rebalances.get(k), "others rebalanced");
                }
            }
            reading.requireOnce(feed.stop());
        }
        GroupMember.leave(members);
        requireAllCommitted(topic, places);
    }

    static void usedInstanceId() throws Exception {
        String topic = Common.topic("new-used", 6);
        List<TopicPartition> places = Common.partitions(topic, 6);
        Reading reading = new Reading();
        try (Feed feed = new Feed(places)) {
            GroupMember first = GroupMember.of(reading, topic, topic, "group.instance.id", "one");
            GroupMember.settled(List.of(first), places, 6, 6);
            GroupMember second = GroupMember.of(reading, topic, topic, "group.instance.id", "one");
            Throwable refused = second.failed();
            Tier.require(refused instanceof UnreleasedInstanceIdException, String.valueOf(refused));
            Tier.require(first.owned().size() == 6, "the first member owns " + first.owned());
            int sent = feed.stop();
            reading.requireOnce(sent);
            first.leave();
        }
    }
}
