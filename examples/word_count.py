"""Word count: the number of occurrences of each word in the topic `lines`, written to `counts`.

python examples/word_count.py [bootstrap]
"""

import sys

import ottla.streams as st


def build(app: st.App) -> None:
    lines = app.stream("lines", value=st.String)
    words = lines.flat_map_values(lambda line: line.lower().split(" "))
    words.filter(lambda word: word != "").group_by(lambda word: word).count().to("counts")


if __name__ == "__main__":
    app = st.App("word-count", *sys.argv[1:])
    build(app)
    app.run()
