"""Visits of a site: the pages that a user looked at, with no pause longer than 30 minutes, from
`clicks` to `visits`. A visit is given out while it lasts: one that grew replaces the one before it,
which is deleted.

python examples/sessions.py [bootstrap]"""

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
