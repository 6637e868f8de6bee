// Records from one topic to another with Kafka Streams, to be held beside bench.realtime:
//     java -cp ... Latency BOOTSTRAP SOURCE TARGET STATE_DIR stateless|count|window GUARANTEE
// Runs until it is terminated. Every result is emitted and sent at once: without cache and linger.ms.

import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;

public class Latency {
    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "java-" + args[2]);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[3]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[5]);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.producerPrefix("linger.ms"), 0);
        settings.put("auto.offset.reset", "earliest");

        Serde<byte[]> bytes = Serdes.ByteArray();
        Serde<String> text = Serdes.String();
        StreamsBuilder builder = new StreamsBuilder();
        KStream<byte[], String> in = builder.stream(args[1], Consumed.with(bytes, text));
        if (args[4].equals("stateless")) {
            in.mapValues(value -> value.concat("")).to(args[2], Produced.with(bytes, text));
        } else {
            KGroupedStream<String, String> grouped = in.groupBy((key, value) -> value, Grouped.with(text, text));
            KStream<byte[], String> changes = args[4].equals("count")
                ? grouped.count().toStream().map((key, n) -> KeyValue.pair(null, key))
                : grouped.windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofSeconds(1), Duration.ofSeconds(10)))
                    .count().toStream().map((key, n) -> KeyValue.pair(null, key.key()));
            changes.to(args[2], Produced.with(bytes, text));
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
        streams.start();
    }
}
