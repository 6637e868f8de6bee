"""Visits to a site: the pages that a user viewed without a pause of more than 30 minutes, from
`clicks` to `visits`.

A visit is emitted while it is open. When it grows, it replaces its earlier version, which is
deleted.

python examples/sessions.py [bootstrap]
"""

import sys

import ottla.streams as st


def build(app: st.App) -> None:
    clicks = app.stream("clicks", value=st.Json("page string"))
    visits = clicks.group_by_key().windowed(st.session("30 minutes"))
    visits.aggregate(pages=st.collect_list("page"), n=st.count()).to("visits")


if __name__ == "__main__":
    app = st.App("sessions", *sys.argv[1:])
    build(app)
    app.run()
