"""Side by side: `make bench-peers`, or `python -m bench.peers [PART…] [--quick]`.

A real Apache Kafka (Maven Central's jars, KRaft, Kafka's own defaults and JVM flags) and our broker
on the same machine; the same client programs load both, in turn, for several rounds. Which of the
two comes first changes from round to round, and a first round that does not count warms both up:
Java compiles as it runs. Our client stands beside other Python clients, our Spark source and sink
beside Spark's own, all of them on Apache Kafka's broker.

A ratio is always such that above 1 is better for us. The figure of a row is the median of its
rounds; the rounds are kept in docs/benchmarks.json."""
