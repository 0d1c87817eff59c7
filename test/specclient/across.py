"""Uses a table whose rows are on several nodes, by the complete client of docs/rpc.md. See cluster_test.py."""

import os
import struct

from stele import Stele

table = os.environ["TABLE"]
db = Stele()
rows = [b"row%03d" % i for i in range(200)]
for i, row in enumerate(rows):
    db.mutate(table, row, [["set", "f", "q", 1000.0 + i, b"%d" % i]])
assert list(db.scan(table, batch_rows=7)) == [[row, [["f", b"q", 1000 + i, b"%d" % i]]] for i, row in enumerate(rows)]
seen = []
for key, cells in db.scan(table, start="row050", limit=101, batch_rows=7):
    assert db.read(table, key) == [key, cells]  # perhaps of another node, between two batches
    seen.append(key)
assert seen == rows[50:151], seen
for row in rows[::20]:
    db.read_modify_write(table, row, [["increment", "f", "n", 41.0]])
    key, cells = db.read_modify_write(table, row, [["increment", "f", "n", -42]])
    assert struct.unpack(">q", cells[0][3]) == (-1,), cells
print(len(db.nodes), "nodes")
