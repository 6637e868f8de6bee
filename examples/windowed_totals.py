"""Windowed totals: sales per item and minute, for orders above 10, from `orders` to `totals`.

python examples/windowed_totals.py [bootstrap]
"""

import sys

import ottla.streams as st


def build(app: st.App) -> None:
    orders = app.stream("orders", value=st.Json("id string, item string, amount double"))
    (
        orders.filter(lambda o: o.amount > 10)
        .group_by(lambda o: o.item)
        .windowed(st.tumbling("1 minute", grace="10 seconds"))
        .aggregate(total=st.sum("amount"), n=st.count())
        .to("totals")
    )


if __name__ == "__main__":
    app = st.App("orders", *sys.argv[1:])
    build(app)
    app.run()
