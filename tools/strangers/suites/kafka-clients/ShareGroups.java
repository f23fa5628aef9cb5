import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.errors.UnsupportedVersionException;

/** Share groups (KIP-932), which kafka-clients have from 4.0 on. A broker without them refuses them at once. */
public final class ShareGroups {
    public static void main(String[] arguments) {
        Common.version = arguments[0];
        Tier.prefix = arguments[0] + ": ";
        Tier.test("share groups are refused by name", ShareGroups::refused);
        System.exit(0);
    }

    static void refused() throws Exception {
        String topic = Common.topic("share");
        Properties settings = Common.settings("group.id", topic);
        String deserializer = "org.apache.kafka.common.serialization.StringDeserializer";
        settings.put("key.deserializer", deserializer);
        settings.put("value.deserializer", deserializer);
        try (KafkaShareConsumer<String, String> consumer = new KafkaShareConsumer<>(settings)) {
            consumer.subscribe(List.of(topic));
            long end = System.nanoTime() + Duration.ofSeconds(30).toNanos();
            try {
                while (System.nanoTime() < end) {
                    consumer.poll(Duration.ofSeconds(1));
                }
            } catch (UnsupportedVersionException expected) {
                return;
            }
        }
        throw new AssertionError("no UnsupportedVersionException within 30 s");
    }
}
