# Google's Python client with its classic interface: see package clients.
import datetime
import sys
import time

from google.cloud import bigtable
from google.cloud.bigtable.column_family import MaxVersionsGCRule

BATCH = 20
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


def key(i):
    return f"{i % 10}-{i:07d}"


table = bigtable.Client(project="p", admin=True).instance("i").table(sys.argv[1])
table.create(initial_split_keys=["2", "4", "6", "8"], column_families={"f": MaxVersionsGCRule(1)})


def row(i):
    r = table.direct_row(key(i))
    r.set_cell("f", "q", key(i), timestamp=NOW)
    return r


rows, end = 0, time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    status = row(rows).commit()
    assert status.code == 0, status
    rows += 1
    if rows == 1:
        print("begun", flush=True)
    for status in table.mutate_rows([row(rows + i) for i in range(BATCH)]):
        assert status.code == 0, status
    rows += BATCH
    got = table.read_row(key(rows // 2))
    assert got.cells["f"][b"q"][0].value.decode() == key(rows // 2), got
seen = 0
for got in table.read_rows():
    assert got.cells["f"][b"q"][0].value == got.row_key, got
    seen += 1
assert seen == rows, (seen, rows)
print("rows", rows, flush=True)
