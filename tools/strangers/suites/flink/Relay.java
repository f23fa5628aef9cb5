import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Comparator;
import java.util.Optional;
import java.util.Properties;
import java.util.stream.Stream;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * Copies numbers from one topic to another on a cluster inside this process, from its newest checkpoint on.
 *
 * Every 500th record fails once in the life of the process, so that the job restarts from a checkpoint.
 */
public final class Relay {
    static final java.util.Set<String> FAILED = java.util.concurrent.ConcurrentHashMap.newKeySet();

    public static void main(String[] arguments) throws Exception {
        String source = arguments[0];
        String target = arguments[1];
        Path checkpoints = Path.of(arguments[2]);
        int partitions = Integer.parseInt(arguments[3]);
        Files.createDirectories(checkpoints);
        Configuration settings = new Configuration();
        settings.setString("execution.checkpointing.interval", "500ms");
        settings.setString("execution.checkpointing.mode", "EXACTLY_ONCE");
        settings.setString("execution.checkpointing.dir", checkpoints.toUri().toString());
        settings.setString("state.checkpoints.dir", checkpoints.toUri().toString());
        settings.setString("execution.checkpointing.num-retained", "3");
        settings.setString("state.checkpoints.num-retained", "3");
        settings.setString("execution.checkpointing.externalized-checkpoint-retention", "RETAIN_ON_CANCELLATION");
        settings.setString("execution.checkpointing.tolerable-failed-checkpoints", "100");
        settings.setString("restart-strategy.type", "fixed-delay");
        settings.setString("restart-strategy.fixed-delay.attempts", "1000");
        settings.setString("restart-strategy.fixed-delay.delay", "500ms");
        newest(checkpoints).ifPresent(path -> settings.setString("execution.state-recovery.path", path));
        StreamExecutionEnvironment environment = StreamExecutionEnvironment.createLocalEnvironment(2, settings);
        Properties producer = new Properties();
        producer.put("transaction.timeout.ms", "60000");
        KafkaSource<String> from = KafkaSource.<String>builder()
            .setBootstrapServers(Tier.BOOTSTRAP)
            .setTopics(source)
            .setGroupId(target)
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setProperty("isolation.level", "read_committed")
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
        KafkaSink<String> to = KafkaSink.<String>builder()
            .setBootstrapServers(Tier.BOOTSTRAP)
            .setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
            .setTransactionalIdPrefix(target)
            .setKafkaProducerConfig(producer)
            .setRecordSerializer(serializer(target, partitions))
            .build();
        environment.fromSource(from, WatermarkStrategy.noWatermarks(), "source")
            .uid("source")
            .map(Relay::failOnce)
            .uid("map")
            .sinkTo(to)
            .uid("sink");
        environment.execute(target);
    }

    static KafkaRecordSerializationSchema<String> serializer(String target, int partitions) {
        return (value, context, timestamp) -> new ProducerRecord<>(
            target, Integer.parseInt(value) % partitions, null, value.getBytes(StandardCharsets.UTF_8));
    }

    static String failOnce(String value) throws InterruptedException {
        Thread.sleep(5);
        if (Integer.parseInt(value) % 500 == 499 && FAILED.add(value)) {
            throw new IllegalStateException("record " + value + " fails once");
        }
        return value;
    }

    /** The newest checkpoint that was completed. */
    static Optional<String> newest(Path checkpoints) throws java.io.IOException {
        try (Stream<Path> files = Files.walk(checkpoints)) {
            return files.filter(path -> path.getFileName().toString().equals("_metadata"))
                .max(Comparator.comparing(path -> path.toFile().lastModified()))
                .map(path -> path.getParent().toUri().toString());
        }
    }
}
