"""Foreign-key join: a table of `orders` with the name of the customer, to `orders-with-customers`.

An order refers to a row of `customers` by its number. The result changes with both tables, and
deletions are passed on.

python examples/foreign_key_join.py [bootstrap]
"""

import sys

import ottla.streams as st


def build(app: st.App) -> None:
    orders = app.table("orders", value=st.Json("customer string, item string"))
    customers = app.table("customers", value=st.Json("name string"))
    whole = orders.join(
        customers, lambda o, c: {"item": o.item, "name": c.name}, on=lambda o: o.customer
    )
    whole.to("orders-with-customers")


if __name__ == "__main__":
    app = st.App("foreign-key-join", *sys.argv[1:])
    build(app)
    app.run()
