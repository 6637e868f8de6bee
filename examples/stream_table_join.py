"""Join of a stream with a table: `orders` with the customer's current name from `customers`, to
`named-orders`.

python examples/stream_table_join.py [bootstrap]
"""

import sys

import ottla.streams as st


def build(app: st.App) -> None:
    orders = app.stream("orders", value=st.Json("customer string, item string"))
    customers = app.table("customers", value=st.Json("name string, city string"))
    by_customer = orders.select_key(lambda o: o.customer)
    named = by_customer.join(
        customers, lambda o, c: {"item": o.item, "name": st.coalesce(c.name, "?")}, how="left"
    )
    named.to("named-orders")


if __name__ == "__main__":
    app = st.App("stream-table-join", *sys.argv[1:])
    build(app)
    app.run()
