"""Reminders for orders that are not paid within a day, from `order-events` to `reminders`.

The key is the order. A custom processor uses a store and a timer.

python examples/reminder.py [bootstrap]
"""

import sys

import ottla.streams as st

DAY_MS = 24 * 60 * 60 * 1000


class Reminder(st.Processor):
    ordered = st.ValueStore(ttl="2 days")

    def process(self, record: st.Record) -> None:
        if record.value.what == "ordered":
            self.ordered.set(record.value.customer)
            self.schedule(record.timestamp_ms + DAY_MS)
        elif record.value.what == "paid":
            self.ordered.clear()

    def on_timer(self, timer: st.Timer) -> None:
        customer = self.ordered.get()
        if customer is not None:
            self.forward({"order": timer.key, "customer": customer})


def build(app: st.App) -> None:
    events = app.stream("order-events", value=st.Json("what string, customer string"))
    events.process(Reminder, schema="order string, customer string").to("reminders")


if __name__ == "__main__":
    app = st.App("reminder", *sys.argv[1:])
    build(app)
    app.run()
