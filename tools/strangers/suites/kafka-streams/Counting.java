import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/** Counts records by their value: over a repartition topic, in a state store with a changelog, exactly once. */
public final class Counting {
    public static void main(String[] arguments) throws Exception {
        String name = arguments[0];
        Properties settings = new Properties();
        settings.put("bootstrap.servers", Tier.BOOTSTRAP);
        settings.put("application.id", name);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("state.dir", arguments[1]);
        settings.put("replication.factor", Integer.toString(Tier.BROKERS));
        settings.put("num.standby.replicas", "1");
        settings.put("num.stream.threads", "1");
        settings.put("commit.interval.ms", "200");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("consumer.session.timeout.ms", "10000");
        settings.put("consumer.auto.offset.reset", "earliest");
        settings.put("producer.transaction.timeout.ms", "20000");
        settings.put("default.key.serde", Serdes.StringSerde.class.getName());
        settings.put("default.value.serde", Serdes.StringSerde.class.getName());
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(name + "-source", Consumed.with(Serdes.String(), Serdes.String()))
            .groupBy((key, value) -> value, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .map((key, count) -> new org.apache.kafka.streams.KeyValue<>(key, key + "=" + count))
            .to(name + "-target", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        CountDownLatch end = new CountDownLatch(1);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            streams.close(java.time.Duration.ofSeconds(30));
            end.countDown();
        }));
        streams.start();
        end.await();
    }
}
