"""`ottla demo`: an end-to-end pipeline on this machine, with a check of every record.

lines.txt ─ file source ─► lines ─ Streams on Spark ─┬► word-counts ─ sink ─► counts.txt
                                                     └► word-windows ─ sink ─► windows.txt

narrative     the steps of the demo
pipeline      the processes and files
verification  the counts that verify the result
screen        the terminal output
application   the Streams application
spark_program the process that runs the application and the connectors, on one Spark
failover      the kill of a partition leader"""
