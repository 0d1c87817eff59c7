# Google's Python client with asyncio: see package clients.
import asyncio
import sys
import time

from google.cloud import bigtable
from google.cloud.bigtable.column_family import MaxVersionsGCRule
from google.cloud.bigtable.data import BigtableDataClientAsync, ReadRowsQuery, RowMutationEntry, SetCell

BATCH = 20


def key(i):
    return f"{i % 10}-{i:07d}".encode()


def cell(i):
    return SetCell("f", b"q", key(i), timestamp_micros=1000)


async def main(name, seconds):
    bigtable.Client(project="p", admin=True).instance("i").table(name).create(
        initial_split_keys=["2", "4", "6", "8"], column_families={"f": MaxVersionsGCRule(1)})
    async with BigtableDataClientAsync(project="p") as client, client.get_table("i", name) as table:
        rows, end = 0, time.monotonic() + seconds
        while time.monotonic() < end:
            await table.mutate_row(key(rows), cell(rows))
            rows += 1
            if rows == 1:
                print("begun", flush=True)
            await table.bulk_mutate_rows([RowMutationEntry(key(rows + i), cell(rows + i)) for i in range(BATCH)])
            rows += BATCH
            got = await table.read_row(key(rows // 2))
            assert got.cells[0].value == key(rows // 2), got
        seen = 0
        async for got in await table.read_rows_stream(ReadRowsQuery()):
            assert got.cells[0].value == got.row_key, got
            seen += 1
        assert seen == rows, (seen, rows)
        print("rows", rows, flush=True)


asyncio.run(main(sys.argv[1], float(sys.argv[2])))
