import com.amazonaws.services.schemaregistry.deserializers.GlueSchemaRegistryKafkaDeserializer;
import com.amazonaws.services.schemaregistry.serializers.json.JsonDataWithSchema;
import com.google.protobuf.InvalidProtocolBufferException;
import com.google.protobuf.Message;
import com.google.protobuf.util.JsonFormat;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;

/**
 * Reads topics with Amazon's deserializer: for each line of standard input, which is the name of a topic, prints one
 * line of JSON per committed record, then an empty line. Arguments: Kafka's bootstrap servers, Glue's endpoint, region.
 */
public class GlueReader {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> config = Map.of(
            "bootstrap.servers", arguments[0],
            "endpoint", arguments[1],
            "region", arguments[2],
            "key.deserializer", GlueSchemaRegistryKafkaDeserializer.class,
            "value.deserializer", GlueSchemaRegistryKafkaDeserializer.class,
            "avroRecordType", "GENERIC_RECORD",
            "protobufMessageType", "DYNAMIC_MESSAGE",
            "isolation.level", "read_committed",
            "enable.auto.commit", "false");
        BufferedReader topics = new BufferedReader(new InputStreamReader(System.in));
        try (KafkaConsumer<Object, Object> consumer = new KafkaConsumer<>(config)) {
            for (String topic = topics.readLine(); topic != null; topic = topics.readLine()) {
                read(consumer, topic);
                System.out.println();
            }
        }
    }

    private static void read(KafkaConsumer<Object, Object> consumer, String topic) throws Exception {
        List<TopicPartition> partitions = consumer.partitionsFor(topic).stream()
            .map(each -> new TopicPartition(topic, each.partition())).collect(Collectors.toList());
        consumer.assign(partitions);
        consumer.seekToBeginning(partitions);
        Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
        while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
            for (ConsumerRecord<Object, Object> record : consumer.poll(Duration.ofMillis(100))) {
                System.out.printf("{\"partition\": %d, \"key\": %s, \"value\": %s}%n",
                    record.partition(), json(record.key()), json(record.value()));
            }
        }
    }

    private static String json(Object value) throws InvalidProtocolBufferException {
        if (value instanceof JsonDataWithSchema) {
            return ((JsonDataWithSchema) value).getPayload();
        }
        if (value instanceof Message) {
            return JsonFormat.printer().omittingInsignificantWhitespace().print((Message) value);
        }
        return String.valueOf(value); // an Avro record's text is JSON
    }
}
