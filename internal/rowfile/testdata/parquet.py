#!/usr/bin/env python3
"""Writes the Parquet files of this folder that parquet/Write.java does not write, with pyarrow 26.0.1 from PyPI:

    python3 -m venv venv && venv/bin/pip install pyarrow && venv/bin/python parquet.py

Each has the rows of rows.jsonl, in another form of lists, encoding or compression.
"""
import base64, json
import pyarrow as pa
import pyarrow.parquet as pq


def data(o, name):
    return base64.b64decode(o[name + "_base64"]) if name + "_base64" in o else o[name].encode()


rows = []
for line in open("rows.jsonl", encoding="utf-8"):
    r = json.loads(line)
    cells = []
    for c in r["cells"]:
        family, _, qualifier = data(c, "column").partition(b":")
        cells.append({"family": family.decode(), "qualifier": qualifier, "timestamp": c["timestamp"], "value": data(c, "value")})
    rows.append({"key": data(r, "row"), "cells": cells})


def schema(nullable, timestamp):
    cell = pa.struct([pa.field("family", pa.string(), nullable), pa.field("qualifier", pa.binary(), nullable),
                      pa.field("timestamp", timestamp, nullable), pa.field("value", pa.binary(), nullable)])
    return pa.schema([pa.field("note", pa.list_(pa.list_(pa.int32()))), pa.field("cells", pa.list_(pa.field("element", cell, nullable)), nullable),
                      pa.field("key", pa.binary(), nullable)])


def write(name, nullable=True, timestamp=pa.int64(), **how):
    table = pa.Table.from_pylist([dict(r, note=[[1, 2], []]) for r in rows], schema(nullable, timestamp))
    pq.write_table(table, name, store_schema=False, **how)


write("arrow.parquet", row_group_size=7, write_page_checksum=True)
write("zstd.parquet", nullable=False, compression="zstd", use_compliant_nested_type=False, timestamp=pa.timestamp("us"))
write("delta.parquet", compression="none", use_dictionary=False, data_page_version="2.0", column_encoding={
    "key": "DELTA_BYTE_ARRAY", "cells.list.element.family": "DELTA_LENGTH_BYTE_ARRAY", "cells.list.element.qualifier": "PLAIN",
    "cells.list.element.timestamp": "DELTA_BINARY_PACKED", "cells.list.element.value": "DELTA_BYTE_ARRAY"})
write("millis.parquet", timestamp=pa.timestamp("ms"), row_group_size=30)
