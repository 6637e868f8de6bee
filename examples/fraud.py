"""Fraud detection over two streams with the card as key.

A payment in a country other than that of a sign-in within ten minutes is suspicious, and goes from
`payments` and `sign-ins` to `suspicious-payments`. A card with three suspicious payments within an
hour goes to `blocked-cards`, once.

python examples/fraud.py [bootstrap]
"""

import sys

import ottla.streams as st

ALLOWED = 2


class Blocker(st.Processor):
    suspicious = st.ListStore(ttl="1 hour")
    blocked = st.ValueStore()

    def process(self, record: st.Record) -> None:
        self.suspicious.append(record.value.amount)
        if len(self.suspicious) > ALLOWED and not self.blocked.get():
            self.blocked.set(True)
            self.forward({"payments": len(self.suspicious), "total": sum(self.suspicious)})


def build(app: st.App) -> None:
    payments = app.stream("payments", value=st.Json("country string, amount double"))
    sign_ins = app.stream("sign-ins", value=st.Json("country string"))
    together = payments.join(
        sign_ins,
        lambda p, s: {"paid_in": p.country, "signed_in": s.country, "amount": p.amount},
        within="10 minutes",
    )
    suspicious = together.filter(lambda p: p.paid_in != p.signed_in)
    suspicious.to("suspicious-payments")
    cards = app.stream(
        "suspicious-payments",
        value=st.Json("paid_in string, signed_in string, amount double"),
    )
    cards.process(Blocker, schema="payments int, total double").to("blocked-cards")


if __name__ == "__main__":
    app = st.App("fraud", *sys.argv[1:])
    build(app)
    app.run()
