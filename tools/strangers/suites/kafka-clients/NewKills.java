import java.util.ArrayList;
import java.util.List;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;

/** Groups of the consumer protocol whose brokers get SIGKILL while they read, and start again. */
public final class NewKills {
    public static void main(String[] arguments) {
        NewGroups.begin(arguments[0]);
        Tier.test("consumer protocol: the group's coordinator is killed twice", NewKills::coordinator);
        Tier.test("consumer protocol: a leader of a partition is killed twice", NewKills::leader);
        Tier.test("consumer protocol: members join and leave while the coordinator is killed", NewKills::joining);
        System.exit(0);
    }

    /** The index of a broker for Tier.broker. */
    static int index(Node node) {
        List<String> all = List.of(Tier.BOOTSTRAP.split(","));
        int found = all.indexOf(node.host() + ":" + node.port());
        Tier.require(found >= 0, node + " is none of " + all);
        return found;
    }

    static int coordinatorOf(String group) throws Exception {
        try (Admin admin = Common.admin()) {
            return index(NewGroups.described(admin, group).coordinator());
        }
    }

    static int leaderOf(TopicPartition place) throws Exception {
        try (Admin admin = Common.admin()) {
            return index(Clients.described(admin, place.topic()).partitions().get(place.partition()).leader());
        }
    }

    interface Choice {
        int index() throws Exception;
    }

    static void coordinator() throws Exception {
        String topic = Common.topic("kill-coordinator", 6);
        killed(topic, () -> coordinatorOf(topic));
    }

    static void leader() throws Exception {
        String topic = Common.topic("kill-leader", 6);
        killed(topic, () -> leaderOf(new TopicPartition(topic, 0)));
    }

    static void killed(String topic, Choice choice) throws Exception {
        List<TopicPartition> places = Common.partitions(topic, 6);
        Reading reading = new Reading();
        List<GroupMember> members = new ArrayList<>();
        try (Feed feed = new Feed(places)) {
            for (int i = 0; i < 3; i++) {
                members.add(GroupMember.of(reading, topic, topic));
            }
            GroupMember.settled(members, places, 2, 2);
            for (int kill = 0; kill < 2; kill++) {
                Migrations.requireProgress(reading);
                Tier.killAndStart(choice.index());
                Migrations.requireProgress(reading);
                GroupMember.settled(members, places, 2, 2);
            }
            reading.requireOnce(feed.stop());
        }
        GroupMember.leave(members);
        NewGroups.requireAllCommitted(topic, places);
    }

    /** A member that leaves before it has found the coordinator again does not say so, and is missed after its session. */
    static void joining() throws Exception {
        String topic = Common.topic("kill-joining", 6);
        NewGroups.set(topic, "consumer.session.timeout.ms", "15000");
        List<TopicPartition> places = Common.partitions(topic, 6);
        Reading reading = new Reading();
        List<GroupMember> members = new ArrayList<>();
        try (Feed feed = new Feed(places)) {
            for (int i = 0; i < 3; i++) {
                members.add(GroupMember.of(reading, topic, topic));
            }
            GroupMember.settled(members, places, 2, 2);
            for (int kill = 0; kill < 2; kill++) {
                int coordinator = coordinatorOf(topic);
                members.add(GroupMember.of(reading, topic, topic));
                Tier.killAndStart(coordinator);
                GroupMember leaving = members.remove(0);
                leaving.leave();
                GroupMember.settled(members, places, 2, 2);
                Migrations.requireProgress(reading);
            }
            reading.requireOnce(feed.stop());
        }
        GroupMember.leave(members);
        NewGroups.requireAllCommitted(topic, places);
    }
}
