"""Comparison with peers: `make bench-peers`, or `python -m bench.peers [PART…] [--quick]`.

A real Apache Kafka (jars from Maven Central, KRaft, Kafka's own defaults and JVM flags) and our
broker run on the same machine. The same client programs load both, in turn, for several rounds. The
order alternates between rounds, and a first round that does not count warms both up, since Java
compiles as it runs. Our client is compared to other Python clients, and our Spark source and sink
to Spark's own, all of them on Apache Kafka's broker.

A ratio above 1 always means that Ottla is better. The figure of a row is the median of its rounds;
docs/benchmarks.json keeps every round.
"""
