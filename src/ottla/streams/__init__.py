"""Stream processing in the style of Kafka Streams, on Spark.

    import ottla.streams as st

    app = st.App("orders", bootstrap="localhost:9092")
    orders = app.stream("orders", value=st.Json("id string, item string, amount double"))
    (
        orders.filter(lambda o: o.amount > 10)
        .group_by(lambda o: o.item)
        .windowed(st.tumbling("1 minute", grace="10 seconds"))
        .aggregate(total=st.sum("amount"), n=st.count())
        .to("totals")
    )
    app.run()

Modules, each of which imports only those above it:

    plan         what all operators share: shapes, traced functions, text and picture of a plan
    state        stateful programs in Python, without Spark
    operators    the operators: nodes with their checks and texts, a family in each module;
                 `topology` has the sinks of an application while it is built
    dsl          the methods of streams and tables, which add operators
    application  description of an application, for what runs it
    compile      a rule for each operator that turns it into Spark's DataFrames
    run          running an application against a cluster; `testing` runs it without a broker
    app          the class that users create

Building and explaining a topology needs no Spark; running it needs the `spark` extra.
"""

from ottla.streams.aggregates import (
    Aggregate,
    collect_list,
    collect_set,
    count,
    max,
    mean,
    min,
    sum,
)
from ottla.streams.app import App, from_df
from ottla.streams.dsl import GlobalTable, Grouped, Stream, Table
from ottla.streams.errors import TopologyError
from ottla.streams.plan.expressions import coalesce, is_null
from ottla.streams.serdes import Bytes, DeadLetter, Json, Long, Serde, String
from ottla.streams.state.processors import Processor, Record, Timer
from ottla.streams.state.stores import ListStore, MapStore, ValueStore
from ottla.streams.windows import Window, hopping, session, sliding, tumbling

__all__ = [
    "App", "Stream", "Table", "GlobalTable", "Grouped", "from_df",
    "Serde", "DeadLetter", "Json", "String", "Bytes", "Long",
    "Window", "tumbling", "hopping", "sliding", "session",
    "Processor", "Record", "Timer", "ValueStore", "ListStore", "MapStore",
    "Aggregate", "count", "sum", "min", "max", "mean", "collect_list", "collect_set",
    "is_null", "coalesce",
    "TopologyError",
]  # fmt: skip
