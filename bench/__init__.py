"""Benchmarks of the broker against its budgets: `make bench`, or `python -m bench NAME…`.

The load comes from an independent client (librdkafka, through confluent-kafka), in separate
processes. Budgets apply to what the broker spends: the CPU time and memory of its process, as the
kernel counts them, not the speed of the load generator. Machines differ and neighbours are noisy,
so each run also measures a floor on the same machine, in the same minute.
"""
