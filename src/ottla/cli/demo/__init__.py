"""`ottla demo`: a whole pipeline, live, on this machine, checked to the last word.

    lines.txt ─ file source ─► lines ─ Streams on Spark ─┬► word-counts ─ sink ─► counts.txt
                                                         └► word-windows ─ sink ─► windows.txt

`narrative` is what happens, `pipeline` what runs, `ledger` the arithmetic that proves the outcome,
`screen` what is seen of it, `application` the Streams application, in a process of its own."""
