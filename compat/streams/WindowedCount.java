// Records by key and minute with Kafka Streams, exactly once, to be held beside bench.streams:
//     java -cp ... WindowedCount BOOTSTRAP SOURCE TARGET RECORDS STATE_DIR THREADS
// Prints rows/s from the first record that was processed until all are processed and committed.

import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.WindowedSerdes;

public class WindowedCount {
    public static void main(String[] args) throws Exception {
        long records = Long.parseLong(args[3]);
        Properties settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, "java-" + args[2]);
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[4]);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, args[5]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put("auto.offset.reset", "earliest");

        AtomicLong seen = new AtomicLong();
        AtomicLong began = new AtomicLong();
        CountDownLatch all = new CountDownLatch(1);
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(args[1], Consumed.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .peek((key, value) -> {
                long number = seen.incrementAndGet();
                if (number == 1) {
                    began.set(System.nanoTime());
                }
                if (number == records) {
                    all.countDown();
                }
            })
            .groupByKey(Grouped.with(Serdes.ByteArray(), Serdes.ByteArray()))
            .windowedBy(TimeWindows.ofSizeAndGrace(Duration.ofMinutes(1), Duration.ofHours(1)))
            .count()
            .toStream()
            .to(args[2], Produced.with(
                WindowedSerdes.timeWindowedSerdeFrom(byte[].class, 60_000), Serdes.Long()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        all.await();
        streams.close(Duration.ofMinutes(2));  // commits
        double seconds = (System.nanoTime() - began.get()) / 1e9;
        System.out.printf("%.0f%n", records / seconds);
    }
}
