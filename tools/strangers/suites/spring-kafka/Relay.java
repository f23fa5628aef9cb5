import java.util.HashMap;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.BatchMessageListener;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.kafka.listener.ContainerProperties;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.listener.MessageListener;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.util.backoff.FixedBackOff;

/**
 * A listener container that answers each record in a transaction: record by record, in batches, or with dead letters.
 *
 * Every 100th record fails once and is delivered again; as "dead" every 100th fails always and goes to a topic of its own.
 */
public final class Relay {
    public static void main(String[] arguments) throws Exception {
        String name = arguments[0];
        String mode = arguments[1];
        int number = Integer.parseInt(arguments[2]);
        DefaultKafkaProducerFactory<String, String> producers = new DefaultKafkaProducerFactory<>(producerSettings());
        producers.setTransactionIdPrefix(name + "-" + number + "-");
        KafkaTemplate<String, String> template = new KafkaTemplate<>(producers);
        ContainerProperties properties = new ContainerProperties(name + "-source");
        properties.setGroupId(name);
        properties.setKafkaAwareTransactionManager(new KafkaTransactionManager<>(producers));
        Set<String> failed = ConcurrentHashMap.newKeySet();
        if (mode.equals("batch")) {
            properties.setMessageListener((BatchMessageListener<String, String>) records -> {
                for (ConsumerRecord<String, String> record : records) {
                    template.send(name + "-target", record.partition(), record.key(), record.value());
                }
                records.forEach(record -> failOnce(failed, record.value()));
            });
        } else {
            properties.setMessageListener((MessageListener<String, String>) record -> {
                template.send(name + "-target", record.partition(), record.key(), record.value());
                if (mode.equals("dead") && isBad(record.value())) {
                    throw new IllegalStateException("record " + record.value() + " never works");
                }
                failOnce(failed, record.value());
            });
        }
        ConcurrentMessageListenerContainer<String, String> container =
            new ConcurrentMessageListenerContainer<>(new DefaultKafkaConsumerFactory<>(consumerSettings()), properties);
        container.setConcurrency(1);
        if (mode.equals("dead")) {
            container.setAfterRollbackProcessor(new DefaultAfterRollbackProcessor<>(
                new DeadLetterPublishingRecoverer(template, (record, error) ->
                    new org.apache.kafka.common.TopicPartition(name + "-dead", record.partition())),
                new FixedBackOff(50L, 1L), template, true));
        } else {
            container.setAfterRollbackProcessor(new DefaultAfterRollbackProcessor<>(new FixedBackOff(50L, Long.MAX_VALUE)));
        }
        container.start();
        Runtime.getRuntime().addShutdownHook(new Thread(container::stop));
        Thread.currentThread().join();
    }

    static boolean isBad(String value) {
        return Integer.parseInt(value) % 100 == 99;
    }

    static void failOnce(Set<String> failed, String value) {
        if (isBad(value) && failed.add(value)) {
            throw new IllegalStateException("record " + value + " fails once");
        }
    }

    static Map<String, Object> producerSettings() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", Tier.BOOTSTRAP);
        settings.put("key.serializer", StringSerializer.class);
        settings.put("value.serializer", StringSerializer.class);
        settings.put("transaction.timeout.ms", 20000);
        return settings;
    }

    static Map<String, Object> consumerSettings() {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", Tier.BOOTSTRAP);
        settings.put("key.deserializer", StringDeserializer.class);
        settings.put("value.deserializer", StringDeserializer.class);
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        settings.put("enable.auto.commit", false);
        settings.put("max.poll.records", 50);
        settings.put("session.timeout.ms", 10000);
        return settings;
    }
}
