import java.util.ArrayList;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.common.GroupType;
import org.apache.kafka.common.TopicPartition;

/** Groups that change from the classic protocol to the consumer protocol and back, member by member, while they read. */
public final class Migrations {
    public static void main(String[] arguments) {
        NewGroups.begin(arguments[0]);
        for (String assignor : List.of("Range", "CooperativeSticky")) {
            Tier.test("consumer protocol: migration and back, classic members with " + assignor, () -> migration(assignor));
        }
        System.exit(0);
    }

    static GroupMember classic(Reading reading, String topic, String assignor) {
        return new GroupMember(reading, (consumer, listener) -> consumer.subscribe(List.of(topic), listener),
            "group.id", topic, "session.timeout.ms", "45000", "heartbeat.interval.ms", "300",
            "partition.assignment.strategy", "org.apache.kafka.clients.consumer." + assignor + "Assignor");
    }

    static void migration(String assignor) throws Exception {
        String topic = Common.topic("migration-" + assignor, 6);
        List<TopicPartition> places = Common.partitions(topic, 6);
        Reading reading = new Reading();
        List<GroupMember> members = new ArrayList<>();
        try (Admin admin = Common.admin(); Feed feed = new Feed(places)) {
            for (int i = 0; i < 3; i++) {
                members.add(classic(reading, topic, assignor));
            }
            GroupMember.settled(members, places, 2, 2);
            requireType(admin, topic, GroupType.CLASSIC, 0);
            for (int i = 0; i < 3; i++) {
                members.get(i).leave();
                members.set(i, GroupMember.of(reading, topic, topic));
                GroupMember.settled(members, places, 2, 2);
                requireType(admin, topic, GroupType.CONSUMER, i + 1);
                requireProgress(reading);
            }
            for (int i = 0; i < 3; i++) {
                members.get(i).leave();
                members.set(i, classic(reading, topic, assignor));
                GroupMember.settled(members, places, 2, 2);
                requireType(admin, topic, i == 2 ? GroupType.CLASSIC : GroupType.CONSUMER, 2 - i);
                requireProgress(reading);
            }
            reading.requireOnce(feed.stop());
        }
        GroupMember.leave(members);
        NewGroups.requireAllCommitted(topic, places);
    }

    static void requireProgress(Reading reading) throws Exception {
        int before = reading.size();
        Clients.await(() -> reading.size() >= before + 30, "the group reads on");
    }

    /** The type as the Admin lists and describes it, and how many of three members are of the consumer protocol. */
    static void requireType(Admin admin, String group, GroupType type, int upgraded) throws Exception {
        Optional<GroupListing> listed = admin.listGroups().all().get(60, TimeUnit.SECONDS).stream()
            .filter(each -> each.groupId().equals(group)).findFirst();
        Tier.require(listed.isPresent() && listed.get().type().equals(Optional.of(type)), listed + ", not " + type);
        ConsumerGroupDescription found = NewGroups.described(admin, group);
        Tier.require(found.type() == type, "described as " + found.type() + ", not " + type);
        Tier.require(found.members().size() == 3, "three members, described are " + found.members());
        if (type == GroupType.CONSUMER) {
            long count = found.members().stream().filter(each -> each.upgraded().equals(Optional.of(true))).count();
            Tier.require(count == upgraded, count + " upgraded members, not " + upgraded + ": " + found.members());
        }
    }
}
