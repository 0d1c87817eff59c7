#!/usr/bin/env python3
"""Writes the Avro files of this folder, with fastavro 1.13.1 and cramjam 2.14.0 from PyPI:

    python3 -m venv venv && venv/bin/pip install fastavro cramjam backports.zstd && venv/bin/python avro.py

They have the schema of the Dataflow template Cloud Bigtable to Cloud Storage Avro. Each has the rows of rows.jsonl, which this writes, too.
"""
import base64, copy, json
import fastavro

SCHEMA = {"name": "BigtableRow", "type": "record", "namespace": "com.google.cloud.teleport.bigtable", "fields": [
    {"name": "key", "type": "bytes"},
    {"name": "cells", "type": {"type": "array", "items": {"name": "BigtableCell", "type": "record", "fields": [
        {"name": "family", "type": "string"},
        {"name": "qualifier", "type": "bytes"},
        {"name": "timestamp", "type": "long", "logicalType": "timestamp-micros"},
        {"name": "value", "type": "bytes"}]}}}]}


def cell(family, qualifier, timestamp, value):
    return {"family": family, "qualifier": qualifier, "timestamp": timestamp, "value": value}


ROWS = [{"key": b"r%02d" % i, "cells": [cell("f", b"q%d" % j, 1_700_000_000_000_000 + 1000 * i, b"value %d of row %d" % (j, i)) for j in range(3)]}
        for i in range(20)]
ROWS.append({"key": b"s\x00\xff", "cells": [cell("f", b"", 0, b""), cell("g", b"\xfe:", 3000, b"\xfd"), cell("g", b"\xfe:", 2000, b"old")]})


def write(name, schema, rows, **how):
    with open(name, "wb") as out:
        fastavro.writer(out, fastavro.parse_schema(copy.deepcopy(schema)), rows, sync_marker=b"0123456789abcdef", **how)


for codec in "null", "deflate", "snappy", "zstandard":
    write(codec + ".avro", SCHEMA, ROWS, codec=codec, sync_interval=500)

# What other programs make of it: fields in another order, nullable fields, further fields, and a recursive one.
other = {"name": "Row", "type": "record", "fields": [
    {"name": "extra", "type": {"name": "Tree", "type": "record", "fields": [
        {"name": "children", "type": {"type": "array", "items": "Tree"}},
        {"name": "any", "type": ["null", "boolean", "float", "double", {"type": "map", "values": "int"},
                                 {"type": "fixed", "name": "F", "size": 3}, {"type": "enum", "name": "E", "symbols": ["A", "B"]}]}]}},
    {"name": "cells", "type": ["null", {"type": "array", "items": {"name": "Cell", "type": "record", "fields": [
        {"name": "value", "type": ["null", "bytes"]},
        {"name": "note", "type": "string"},
        {"name": "timestamp", "type": "long"},
        {"name": "qualifier", "type": ["bytes", "null"]},
        {"name": "family", "type": ["null", "string"]}]}}]},
    {"name": "key", "type": "bytes"}]}
ANY = [None, True, 1.5, {"a": 1, "b": 2}, ("F", b"abc"), ("E", "B")]


def tree(i):
    return {"children": [{"children": [], "any": ANY[(i + 1) % len(ANY)]}], "any": ANY[i % len(ANY)]}


write("other.avro", other, [dict(r, extra=tree(i), cells=[dict(c, note="x", value=c["value"] or None, qualifier=c["qualifier"] or None)
                                                        for c in r["cells"]]) for i, r in enumerate(ROWS)], codec="null")


def field(name, v):
    try:
        return {name: v.decode()}
    except UnicodeDecodeError:
        return {name + "_base64": base64.b64encode(v).decode()}


with open("rows.jsonl", "w") as out:
    for r in ROWS:
        cells = [field("column", c["family"].encode() + b":" + c["qualifier"]) | {"timestamp": c["timestamp"]} | field("value", c["value"]) for c in r["cells"]]
        out.write(json.dumps(field("row", r["key"]) | {"cells": cells}, separators=(",", ":"), ensure_ascii=False) + "\n")
