import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;

/** Sends the values 0, 1, 2, ... to partitions in turn, about a hundred a second, until it is stopped. */
final class Feed implements AutoCloseable {
    private final List<TopicPartition> places;
    private final Thread thread;
    private volatile boolean isStopping;
    private volatile Throwable failure;
    private volatile boolean isPaused;
    private volatile int sent;

    Feed(List<TopicPartition> places) {
        this.places = places;
        thread = new Thread(this::work, "feed");
        thread.setDaemon(true);
        thread.start();
    }

    /** Sends the values from `from` up to `to`, and waits until the broker has them. */
    static void send(List<TopicPartition> places, int from, int to) throws Exception {
        try (KafkaProducer<String, String> producer = Common.producer()) {
            List<Future<RecordMetadata>> futures = new ArrayList<>();
            for (int i = from; i < to; i++) {
                futures.add(producer.send(record(places, i)));
            }
            for (Future<RecordMetadata> future : futures) {
                future.get(120, TimeUnit.SECONDS);
            }
        }
    }

    static ProducerRecord<String, String> record(List<TopicPartition> places, int number) {
        TopicPartition place = places.get(number % places.size());
        String value = Integer.toString(number);
        return new ProducerRecord<>(place.topic(), place.partition(), "k" + value, value);
    }

    private void work() {
        try (KafkaProducer<String, String> producer = Common.producer("delivery.timeout.ms", "180000")) {
            List<Future<RecordMetadata>> futures = new ArrayList<>();
            while (!isStopping) {
                synchronized (this) {
                    if (!isPaused) {
                        futures.add(producer.send(record(places, sent)));
                        sent++;
                    }
                }
                Thread.sleep(10);
            }
            for (Future<RecordMetadata> future : futures) {
                future.get(180, TimeUnit.SECONDS);
            }
        } catch (Throwable error) {
            failure = error;
        }
    }

    /** Ends or begins a pause. Within a pause, `sent` does not change. */
    synchronized void pause(boolean isPaused) {
        this.isPaused = isPaused;
    }

    int sent() {
        return sent;
    }

    /** Ends the feed; returns how many values the brokers have acknowledged. */
    int stop() throws Exception {
        isStopping = true;
        Clients.join(thread, "the feed");
        Tier.require(failure == null, "the feed failed: " + failure);
        return sent;
    }

    @Override
    public void close() {
        isStopping = true;
    }
}
