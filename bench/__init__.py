"""Benchmarks of the broker against its budgets: `make bench`, or `python -m bench NAME…`.

The load is made by a client that nobody here wrote (librdkafka, through confluent-kafka), in
processes of its own. What is judged is what the broker spends: CPU time and memory of its process,
as the kernel counts them, not how fast the load generator is. Machines differ and neighbours are
noisy, so each run also measures a floor on the same machine, in the same minute."""
