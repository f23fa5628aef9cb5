import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.apache.kafka.common.TopicPartition;

/** What the members of a group have read and what they own: each value once, and each partition one owner at a time. */
final class Reading {
    private final Map<String, Integer> counts = new ConcurrentHashMap<>();
    private final Map<TopicPartition, Object> owners = new ConcurrentHashMap<>();
    private final Queue<String> faults = new ConcurrentLinkedQueue<>();

    void read(String value) {
        counts.merge(value, 1, Integer::sum);
    }

    void read(Object member, TopicPartition place, String value) {
        Object owner = owners.get(place);
        if (owner != member) {
            faults.add(member + " read " + value + " from " + place + ", which " + owner + " owns");
        }
        read(value);
    }

    void assigned(Object member, Collection<TopicPartition> places) {
        for (TopicPartition place : places) {
            Object before = owners.put(place, member);
            if (before != null) {
                faults.add(place + " went to " + member + " before " + before + " had given it up");
            }
        }
    }

    /** `member` owns these no more. */
    void revoked(Object member, Collection<TopicPartition> places) {
        places.forEach(place -> owners.remove(place, member));
    }

    /** How many different values were read. */
    int size() {
        return counts.size();
    }

    /** Waits until all `count` values of a feed were read; then each must have been read once, by the owner. */
    void requireOnce(int count) throws Exception {
        Clients.await(() -> counts.size() >= count, () -> counts.size() + " of " + count + " values are read");
        List<String> expected = new ArrayList<>();
        List<String> found = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            expected.add(Integer.toString(i));
            for (int n = 0; n < counts.getOrDefault(Integer.toString(i), 0); n++) {
                found.add(Integer.toString(i));
            }
        }
        counts.keySet().stream().filter(each -> Integer.parseInt(each) >= count).forEach(found::add);
        Tier.requireExact(expected, found, "read by the group");
        System.err.println(count + " values were read once; commits that were refused and made again: "
            + GroupMember.refused());
        Tier.require(faults.isEmpty(), faults.size() + " faults of ownership, first: " + faults.peek());
    }
}
