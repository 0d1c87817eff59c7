#!/usr/bin/env python3
"""Writes Avro and Parquet files of ROWS rows, with one value of 1,000 bytes each, to the working directory, for docs/performance.md:

    venv/bin/python large.py ROWS
"""
import random, sys
import fastavro, pyarrow as pa, pyarrow.parquet as pq

SCHEMA = {"name": "BigtableRow", "type": "record", "fields": [
    {"name": "key", "type": "bytes"},
    {"name": "cells", "type": {"type": "array", "items": {"name": "BigtableCell", "type": "record", "fields": [
        {"name": "family", "type": "string"}, {"name": "qualifier", "type": "bytes"}, {"name": "timestamp", "type": "long"}, {"name": "value", "type": "bytes"}]}}}]}
CELL = pa.struct([("family", pa.string()), ("qualifier", pa.binary()), ("timestamp", pa.int64()), ("value", pa.binary())])

r = random.Random(1)
words = [r.randbytes(8).hex().encode() for _ in range(5000)]
rows = [{"key": b"row%09d" % i, "cells": [{"family": "f", "qualifier": b"q", "timestamp": 1_700_000_000_000_000 + i * 1000,
                                           "value": b" ".join(r.choices(words, k=60))[:1000]}]} for i in range(int(sys.argv[1]))]
for codec in "snappy", "deflate":
    with open("large." + codec + ".avro", "wb") as out:
        fastavro.writer(out, SCHEMA, rows, codec=codec, sync_interval=64000)
pq.write_table(pa.Table.from_pylist(rows, pa.schema([("key", pa.binary()), ("cells", pa.list_(CELL))])), "large.parquet")
