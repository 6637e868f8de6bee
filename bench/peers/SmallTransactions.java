import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Commit transactions of one record, one after another, and print how long each took, in milliseconds. */
public class SmallTransactions {
    public static void main(String[] arguments) {
        String topic = arguments[1];
        int partitions = Integer.parseInt(arguments[3]);
        int warmup = Integer.parseInt(arguments[4]);
        int measured = Integer.parseInt(arguments[5]);
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("transactional.id", arguments[2]);
        properties.put("linger.ms", "0");
        double[] taken = new double[measured];
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            byte[] value = new byte[100];
            for (int number = -warmup; number < measured; number++) {
                long began = System.nanoTime();
                producer.beginTransaction();
                producer.send(new ProducerRecord<>(topic, Math.floorMod(number, partitions), null, value));
                producer.commitTransaction();
                if (number >= 0) {
                    taken[number] = (System.nanoTime() - began) / 1e6;
                }
            }
        }
        Arrays.stream(taken).forEach(System.out::println);
    }
}
