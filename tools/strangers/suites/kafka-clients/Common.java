import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.common.TopicPartition;

/** Clients as the tests use them, with settings that bear a slow machine. */
final class Common {
    static final int PARTITIONS = 3;
    static String version;

    private Common() {}

    static Properties settings(String... pairs) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", Tier.BOOTSTRAP);
        for (int i = 0; i < pairs.length; i += 2) {
            properties.put(pairs[i], pairs[i + 1]);
        }
        return properties;
    }

    static KafkaProducer<String, String> producer(String... pairs) {
        Properties properties = settings(pairs);
        String serializer = "org.apache.kafka.common.serialization.StringSerializer";
        properties.put("key.serializer", serializer);
        properties.put("value.serializer", serializer);
        properties.putIfAbsent("enable.idempotence", "true");
        properties.putIfAbsent("max.block.ms", "120000");
        return new KafkaProducer<>(properties);
    }

    static KafkaConsumer<String, String> consumer(String... pairs) {
        Properties properties = settings(pairs);
        String deserializer = "org.apache.kafka.common.serialization.StringDeserializer";
        properties.put("key.deserializer", deserializer);
        properties.put("value.deserializer", deserializer);
        properties.putIfAbsent("enable.auto.commit", "false");
        properties.putIfAbsent("auto.offset.reset", "earliest");
        return new KafkaConsumer<>(properties);
    }

    static Admin admin() {
        return Admin.create(settings("default.api.timeout.ms", "120000"));
    }

    /** A topic of this name and version, which is returned; its partitions have leaders that serve. */
    static String topic(String name) throws Exception {
        return topic(name, PARTITIONS);
    }

    static String topic(String name, int partitions) throws Exception {
        String topic = name + "-" + version;
        try (Admin admin = admin()) {
            admin.createTopics(List.of(new NewTopic(topic, partitions, Tier.REPLICAS))).all().get(60, TimeUnit.SECONDS);
        }
        try (KafkaConsumer<String, String> consumer = consumer()) {
            consumer.endOffsets(partitions(topic, partitions), Duration.ofSeconds(120));
        }
        return topic;
    }

    static List<TopicPartition> partitions(String topic) {
        return partitions(topic, PARTITIONS);
    }

    static List<TopicPartition> partitions(String topic, int count) {
        List<TopicPartition> found = new ArrayList<>();
        for (int p = 0; p < count; p++) {
            found.add(new TopicPartition(topic, p));
        }
        return found;
    }

    /** All values from the first offset to the ends at this moment, by partition. */
    static Map<Integer, List<String>> read(String topic, String isolation) {
        Map<Integer, List<String>> found = new TreeMap<>();
        for (ConsumerRecord<String, String> record : records(topic, isolation)) {
            found.computeIfAbsent(record.partition(), p -> new ArrayList<>()).add(record.value());
        }
        return found;
    }

    static List<ConsumerRecord<String, String>> records(String topic, String isolation) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer("isolation.level", isolation)) {
            Collection<TopicPartition> places = partitions(topic);
            consumer.assign(places);
            consumer.seekToBeginning(places);
            Map<TopicPartition, Long> ends = consumer.endOffsets(places, Duration.ofSeconds(120));
            while (places.stream().anyMatch(place -> consumer.position(place) < ends.get(place))) {
                consumer.poll(Duration.ofMillis(200)).forEach(found::add);
            }
        }
        return found;
    }

    /** Values 0, 1, 2, ... of a partition when `count` of them went round robin over all. */
    static List<String> values(int partition, int count) {
        List<String> found = new ArrayList<>();
        for (int i = partition; i < count; i += PARTITIONS) {
            found.add(Integer.toString(i));
        }
        return found;
    }

    /** Each of `count` values once, in order, in each partition. */
    static void requireAll(String topic, String isolation, int count) {
        Map<Integer, List<String>> found = read(topic, isolation);
        for (int p = 0; p < PARTITIONS; p++) {
            Tier.requireExact(values(p, count), found.getOrDefault(p, List.of()), topic + "-" + p);
        }
    }
}
