import java.util.Collection;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.TransactionDescription;
import org.apache.kafka.clients.admin.TransactionListing;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.acl.AclBindingFilter;

/** What Admin says and does about transactions, with API that came with 3.0; and other calls that came late. */
public final class TransactionCalls {
    public static void main(String[] arguments) {
        Common.version = arguments[0];
        Tier.prefix = arguments[0] + ": ";
        Tier.test("admin: transactions listed and described", TransactionCalls::described);
        Tier.test("admin: fenceProducers ends a transaction", TransactionCalls::fenced);
        Tier.test("admin: abortTransaction of one that is open", TransactionCalls::aborted);
        Tier.test("admin: the offset of the largest timestamp", TransactionCalls::maxTimestamp);
        Tier.test("admin: ACLs", TransactionCalls::acls);
        System.exit(0);
    }

    static KafkaProducer<String, String> open(String topic) throws Exception {
        KafkaProducer<String, String> producer = Common.producer("transactional.id", topic);
        producer.initTransactions();
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(topic, 0, "", "0")).get(60, TimeUnit.SECONDS);
        return producer;
    }

    static void described() throws Exception {
        String topic = Common.topic("described");
        TopicPartition place = new TopicPartition(topic, 0);
        try (Admin admin = Common.admin(); KafkaProducer<String, String> producer = open(topic)) {
            Collection<TransactionListing> listed = admin.listTransactions().all().get(60, TimeUnit.SECONDS);
            Tier.require(listed.stream().anyMatch(each -> each.transactionalId().equals(topic)), "not listed");
            TransactionDescription found =
                admin.describeTransactions(List.of(topic)).description(topic).get(60, TimeUnit.SECONDS);
            Tier.require(found.state().toString().equals("Ongoing"), found.toString());
            Tier.require(found.topicPartitions().contains(place), found.toString());
            List<ProducerState> active =
                admin.describeProducers(List.of(place)).partitionResult(place).get(60, TimeUnit.SECONDS).activeProducers();
            Tier.require(active.size() == 1 && active.get(0).producerId() == found.producerId(), active.toString());
            producer.commitTransaction();
            do { // Kafka answers EndTxn before the markers are written
                found = admin.describeTransactions(List.of(topic)).description(topic).get(60, TimeUnit.SECONDS);
            } while (found.state().toString().equals("PrepareCommit"));
            Tier.require(found.state().toString().equals("CompleteCommit"), found.toString());
        }
    }

    static void fenced() throws Exception {
        String topic = Common.topic("fenced");
        try (Admin admin = Common.admin(); KafkaProducer<String, String> producer = open(topic)) {
            admin.fenceProducers(List.of(topic)).all().get(60, TimeUnit.SECONDS);
            try {
                producer.commitTransaction();
                throw new AssertionError("a fenced producer could commit");
            } catch (KafkaException told) {
                System.err.println("told: " + told);
            }
        }
        Tier.require(Common.records(topic, "read_committed").isEmpty(), "read");
    }

    static void aborted() throws Exception {
        String topic = Common.topic("aborted");
        TopicPartition place = new TopicPartition(topic, 0);
        try (Admin admin = Common.admin(); KafkaProducer<String, String> producer = open(topic)) {
            ProducerState state = admin.describeProducers(List.of(place)).partitionResult(place)
                .get(60, TimeUnit.SECONDS).activeProducers().get(0);
            AbortTransactionSpec spec = new AbortTransactionSpec(
                place, state.producerId(), (short) state.producerEpoch(), state.coordinatorEpoch().orElse(0));
            admin.abortTransaction(spec).all().get(60, TimeUnit.SECONDS);
        }
    }

    static void maxTimestamp() throws Exception {
        String topic = Common.topic("max");
        TopicPartition place = new TopicPartition(topic, 0);
        try (Admin admin = Common.admin(); KafkaProducer<String, String> producer = Common.producer()) {
            for (long time : new long[] {5000, 9000, 7000}) {
                producer.send(new ProducerRecord<>(topic, 0, 1_700_000_000_000L + time, "", "")).get();
            }
            long found = Clients.offset(admin, place, OffsetSpec.maxTimestamp());
            Tier.require(found == 1, "offset " + found);
        }
    }

    static void acls() throws Exception {
        try (Admin admin = Common.admin()) {
            admin.describeAcls(AclBindingFilter.ANY).values().get(60, TimeUnit.SECONDS);
            throw new AssertionError("there is no authorizer, but ACLs are described");
        } catch (java.util.concurrent.ExecutionException error) {
            Throwable cause = error.getCause();
            Tier.require(cause instanceof org.apache.kafka.common.errors.SecurityDisabledException, String.valueOf(cause));
        }
    }
}
