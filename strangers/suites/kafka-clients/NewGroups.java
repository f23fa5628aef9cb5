import java.time.Duration;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;

/** The group protocol of KIP-848, which kafka-clients have from 4.0 on. */
public final class NewGroups {
    public static void main(String[] arguments) {
        Common.version = arguments[0];
        Tier.prefix = arguments[0] + ": ";
        Tier.test("a group with group.protocol=consumer", NewGroups::consumer);
        System.exit(0);
    }

    static void consumer() throws Exception {
        String topic = Common.topic("new-group");
        try (KafkaProducer<String, String> producer = Common.producer();
                KafkaConsumer<String, String> consumer =
                    Common.consumer("group.id", topic, "group.protocol", "consumer")) {
            Clients.send(producer, topic, 0, 30);
            producer.flush();
            consumer.subscribe(List.of(topic));
            Set<String> seen = new HashSet<>();
            Clients.await(() -> {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> seen.add(record.value()));
                return seen.size() == 30;
            }, "all records");
        }
    }
}
