"""Deduplication: pass on each event of `events` once to `events-once`, even if a sender repeats it
within an hour.

python examples/dedup.py [bootstrap]
"""

import sys

import ottla.streams as st


def build(app: st.App) -> None:
    events = app.stream("events", value=st.Json("id string, what string"))
    events.deduplicate(lambda e: e.id, within="1 hour").to("events-once")


if __name__ == "__main__":
    app = st.App("dedup", *sys.argv[1:])
    build(app)
    app.run()
