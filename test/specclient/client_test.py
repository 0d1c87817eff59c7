"""A client of Stele that knows nothing but docs/rpc.md.

It has the msgpack package and a socket, and none of Stele's code. Run it by run.sh,
which starts a node, or against one that runs: STELE_ADDR=host:port client_test.py.
"""

import os
import socket
import struct
import time
import unittest
import uuid

import msgpack

# The error codes of docs/rpc.md that are provoked here.
BAD_REQUEST, UNKNOWN_METHOD = 2, 3
TABLE_NOT_FOUND, TABLE_EXISTS, FAMILY_NOT_FOUND, BAD_NAME = 100, 101, 102, 103
LIMIT_EXCEEDED, BAD_FILTER, CURSOR_EXPIRED, TABLE_REPLACED = 104, 105, 109, 137
NOT_A_NUMBER, BAD_TIMESTAMP, BAD_MUTATION, BAD_ROW_KEY, BAD_SCHEMA = 111, 112, 113, 116, 117

PATH_NOT_FOUND, BAD_PATH, GENERATION_DIFFERS, NO_SESSION = 200, 201, 205, 210
LOCK_HELD, LOCK_NOT_HELD, STALE_SEQUENCER = 211, 212, 213


class SteleError(Exception):
    def __init__(self, info):
        super().__init__(f"{info['code']} {info['name']}: {info['message']}")
        self.info = info


class Connection:
    """One connection in plain mode, within TLS if there is a context for that."""

    def __init__(self, address=None, tls=None):
        address = address or os.environ.get("STELE_ADDR", "127.0.0.1:7106")
        host, port = address.rsplit(":", 1)
        self.sock = socket.create_connection((host, int(port)), timeout=30)
        if tls:
            self.sock = tls.wrap_socket(self.sock, server_hostname=host)
        self.unpacker = msgpack.Unpacker(raw=False, max_buffer_size=1 << 29)
        self.msgid = 0
        self.responses = {}

    def close(self):
        self.sock.close()

    def send_bytes(self, data):
        self.sock.sendall(data)

    def notify(self, method, *params):
        self.send_bytes(msgpack.packb([2, method, list(params)]))

    def request(self, method, *params):
        """The bytes of a request, and its msgid."""
        self.msgid += 1
        return msgpack.packb([0, self.msgid, method, list(params)]), self.msgid

    def response(self, msgid):
        """The error and the result of a request, whatever comes before it."""
        while msgid not in self.responses:
            data = self.sock.recv(1 << 16)
            if not data:
                raise ConnectionError("the node closed the connection")
            self.unpacker.feed(data)
            for message in self.unpacker:
                kind, number, error, result = message
                assert kind == 1, message
                assert number not in self.responses, message
                self.responses[number] = (error, result)
        return self.responses.pop(msgid)

    def call(self, method, *params):
        data, msgid = self.request(method, *params)
        self.send_bytes(data)
        error, result = self.response(msgid)
        if error is not None:
            raise SteleError(error)
        return result


class SpecTest(unittest.TestCase):
    def setUp(self):
        self.db = Connection()
        self.addCleanup(self.db.close)
        self.table = "spec-" + uuid.uuid4().hex[:12]
        self.schema = self.db.call("create_table", self.table, {"families": [
            {"name": "contents", "gc": "versions=2", "group": "pages", "compression": "zstd", "block_bytes": 8192},
            {"name": "anchor"},
            {"name": "n"},
        ]})
        self.addCleanup(self.drop)

    def drop(self):
        db = Connection()
        db.call("drop_table", self.table)
        db.close()

    def fails(self, code, name, method, *params):
        """Calls, expects an error, and returns its map."""
        with self.assertRaises(SteleError) as caught:
            self.db.call(method, *params)
        info = caught.exception.info
        self.assertEqual((info["code"], info["name"]), (code, name), info)
        self.assertIsInstance(info["message"], str)
        self.assertIs(info["retryable"], False, info)
        return info

    def set(self, row, family, qualifier, value, timestamp=None):
        return self.db.call("mutate", self.table, row, [["set", family, qualifier, timestamp, value]])

    def read(self, row, **options):
        return self.db.call("read", self.table, row, options)

    def values(self, row, filter=None):
        """What a filter lets through of a row: column, timestamp and value."""
        found = self.read(row, filter=filter) if filter else self.read(row)
        return [] if found is None else [(f + ":" + q.decode(), t, v) for f, q, t, v in found[1]]

    # Connection

    def test_unknown_notification_first(self):
        db = Connection()
        self.addCleanup(db.close)
        db.notify("$/hello", {"client": "spec"})
        db.notify("no_such_method")
        self.assertEqual(db.call("ping")["server"], "stele")

    def test_ping_byte_by_byte(self):
        self.db.send_bytes(bytes.fromhex("940001a470696e6790"))
        error, pong = self.db.response(1)
        self.assertIsNone(error)
        self.assertEqual((pong["server"], pong["protocol"]), ("stele", 1))
        self.assertLessEqual({"version", "node", "cluster"}, set(pong))

    def test_request_in_single_bytes(self):
        for byte in self.db.request("ping")[0]:
            self.db.send_bytes(bytes([byte]))
        self.assertEqual(self.db.response(self.db.msgid)[1]["server"], "stele")

    def test_pipelining(self):
        """Many requests in one write; answers come in any order."""
        writes = [self.db.request("mutate", self.table, f"row{i:03}", [["set", "n", "q", 1000 + i, b"%d" % i]]) for i in range(300)]
        self.db.send_bytes(b"".join(data for data, _ in writes))
        for _, msgid in writes:
            self.assertEqual(self.db.response(msgid), (None, None))
        reads = [(i, *self.db.request("read", self.table, f"row{i:03}")) for i in range(300)]
        self.db.send_bytes(b"".join(data for _, data, _ in reads))
        for i, _, msgid in reversed(reads):
            self.assertEqual(self.db.response(msgid), (None, [b"row%03d" % i, [["n", b"q", 1000 + i, b"%d" % i]]]))

    def test_notification_is_executed(self):
        self.db.notify("mutate", self.table, "r", [["set", "n", "q", 7, "v"]])
        deadline = time.monotonic() + 10
        while (row := self.read("r")) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        self.assertEqual(row, [b"r", [["n", b"q", 7, b"v"]]])

    # Schemas

    def test_schema(self):
        self.assertEqual(self.schema["name"], self.table)
        self.assertEqual([f["name"] for f in self.schema["families"]], ["anchor", "contents", "n"])
        contents = self.schema["families"][1]
        self.assertEqual((contents["gc"], contents["group"]), ("versions=2", "pages"))
        pages = [g for g in self.schema["groups"] if g["name"] == "pages"][0]
        self.assertEqual((pages["compression"], pages["block_bytes"]), ("zstd", 8192))
        self.assertIn(self.table, [s["name"] for s in self.db.call("list_tables")])
        described = self.db.call("describe_table", self.table)
        self.assertEqual(described["schema"], self.schema)
        self.assertEqual((described["tablets"][0]["start"], described["tablets"][-1]["end"]), (b"", b""))

    def test_alter(self):
        schema = self.db.call("set_family", self.table, {"name": "language", "gc": "versions=1 or age=30d"})
        self.assertIn("language", [f["name"] for f in schema["families"]])
        self.set("r", "language", "", "en")
        schema = self.db.call("drop_family", self.table, "language")
        self.assertNotIn("language", [f["name"] for f in schema["families"]])
        self.assertIsNone(self.read("r"))

    def test_status_and_compaction(self):
        self.set("r", "n", "q", b"v", 1)
        self.assertIsNone(self.db.call("compact_table", self.table, {"major": True, "timeout_ms": 60000}))
        self.assertEqual(self.values("r"), [("n:q", 1, b"v")])
        groups = self.db.call("describe_table", self.table)["tablets"][0]["groups"]
        self.assertEqual([(g["name"], g["files"], g["entries"]) for g in groups if g["files"]], [("default", 1, 1)])
        status = self.db.call("status")
        self.assertIs(status["ready"], True)
        self.assertGreater(status["disks"][0]["total_bytes"], 0)

    # Data

    def test_write_and_read(self):
        before = time.time_ns() // 1000
        first = self.set("com.cnn.www", "anchor", "www.c-span.org", b"CNN")
        second = self.set(b"com.cnn.www", "anchor", b"www.c-span.org", "CNN again")
        self.assertGreater(second, first)
        self.assertLess(abs(first - before), 60_000_000)
        self.assertEqual(self.read("com.cnn.www"), [b"com.cnn.www", [
            ["anchor", b"www.c-span.org", second, b"CNN again"],
            ["anchor", b"www.c-span.org", first, b"CNN"],
        ]])
        self.assertIsNone(self.read("com.cnn"))
        self.assertIsNone(self.set("com.cnn.www", "n", "", b"\xff\x00", 5))  # no timestamp was given out
        self.assertEqual(self.values("com.cnn.www", ["family", "n"]), [("n:", 5, b"\xff\x00")])

    def test_mutations_apply_in_order(self):
        self.db.call("mutate", self.table, "r", [["set", "anchor", q, t, b"%d" % t] for q in "ab" for t in (1, 2, 3, 4)])
        self.db.call("mutate", self.table, "r", [
            ["del_column", "anchor", "a", 2, 4],
            ["del_column", "anchor", "b"],
            ["set", "anchor", "b", 2, "new"],
            ["set", "n", "gone", 9, "x"],
            ["del_family", "n"],
        ])
        self.assertEqual(self.values("r"), [("anchor:a", 4, b"4"), ("anchor:a", 1, b"1"), ("anchor:b", 2, b"new")])
        self.db.call("mutate", self.table, "r", [["del_column", "anchor", "a", 4, None], ["del_column", "anchor", "b", None, 2]])
        self.assertEqual(self.values("r"), [("anchor:a", 1, b"1"), ("anchor:b", 2, b"new")])
        self.db.call("mutate", self.table, "r", [["del_row"]])
        self.assertIsNone(self.read("r"))
        self.set("r", "anchor", "a", b"after", 1)  # a delete hides nothing that is written later
        self.assertEqual(self.values("r"), [("anchor:a", 1, b"after")])

    def test_versions_are_collected(self):
        for t in (1, 2, 3):
            self.set("r", "contents", "", b"%d" % t, t)
        self.assertEqual(self.values("r"), [("contents:", 3, b"3"), ("contents:", 2, b"2")])

    def test_many_rows(self):
        results = self.db.call("mutate_rows", self.table, [
            ["a", [["set", "n", "q", 1, "A"]]],
            ["b", [["set", "nosuch", "q", 1, "B"]]],
            ["c", [["set", "n", "q", None, "C"]]],
        ])
        self.assertIsNone(results[0])
        self.assertEqual((results[1]["code"], results[1]["family"]), (FAMILY_NOT_FOUND, "nosuch"))
        self.assertGreater(results[2], 1)
        rows = self.db.call("read_rows", self.table, ["c", "b", "a"], {"filter": ["strip"]})
        self.assertEqual(rows, [[b"c", [["n", b"q", results[2], b""]]], None, [b"a", [["n", b"q", 1, b""]]]])

    # Scans

    def fill(self, count):
        self.db.call("mutate_rows", self.table, [[f"row{i:04}", [["set", "n", "q", 1, str(i)]]] for i in range(count)])

    def scan(self, **options):
        """The batches of a scan."""
        batch = self.db.call("scan_open", self.table, options)
        batches = [batch["rows"]]
        while batch["cursor"] is not None:
            self.assertIsNotNone(batch["next"])
            batch = self.db.call("scan_next", batch["cursor"])
            batches.append(batch["rows"])
        return batches

    def keys(self, **options):
        return [row[0].decode() for rows in self.scan(**options) for row in rows]

    def test_table_id(self):
        """A request that names the id of a dropped table is not executed in the next table of the name."""
        first = self.schema["id"]
        write = ["r", [["set", "n", "q", 1, b"v"]]]
        self.db.call("mutate", self.table, *write, {"table_id": first})
        scan = self.db.call("scan_open", self.table, {"limit": 2, "batch_rows": 1})
        self.db.call("drop_table", self.table)
        self.fails(TABLE_NOT_FOUND, "table_not_found", "mutate", self.table, *write, {"table_id": first})
        second = self.db.call("create_table", self.table, {"families": [{"name": "n"}]})["id"]
        self.assertEqual(self.db.call("root", self.table)["table"], second)
        self.assertIsNotNone(scan["cursor"])
        for method, params in (("mutate", [self.table, *write, {"table_id": first}]), ("scan_next", [scan["cursor"]])):
            with self.assertRaises(SteleError) as caught:
                self.db.call(method, *params)
            info = caught.exception.info
            self.assertEqual((info["code"], info["name"], info["retryable"]), (TABLE_REPLACED, "table_replaced", True), info)
            self.assertEqual((info["table"], info["table_id"]), (self.table, second), info)
        self.assertIsNone(self.read("r"))
        self.assertIsNone(self.db.call("mutate", self.table, *write, {"table_id": second}))
        self.fails(BAD_REQUEST, "bad_request", "read", self.table, "r", {"table_id": 0})

    def test_scan_over_batches(self):
        self.fill(1000)
        batches = self.scan(batch_rows=64)
        self.assertGreaterEqual(len(batches), 1000 // 64)
        self.assertLessEqual(max(map(len, batches)), 64)
        rows = [row for rows in batches for row in rows]
        self.assertEqual(rows, [[b"row%04d" % i, [["n", b"q", 1, b"%d" % i]]] for i in range(1000)])

    def test_scan_ranges(self):
        self.fill(120)
        every = [f"row{i:04}" for i in range(120)]
        self.assertEqual(self.keys(batch_bytes=500), every)
        self.assertEqual(self.keys(start="row0010", end=b"row0020"), every[10:20])
        self.assertEqual(self.keys(prefix="row001"), every[10:20])
        self.assertEqual(self.keys(prefix="row001", start="row0015"), every[15:20])
        self.assertEqual(self.keys(limit=7, batch_rows=3), every[:7])
        self.assertEqual(self.keys(filter=["value", "1.."], limit=5), every[100:105])
        self.assertEqual(self.keys(start="x"), [])

    def test_scan_goes_on(self):
        """On another connection, after a cursor was lost, and not after it was closed."""
        self.fill(30)
        batch = self.db.call("scan_open", self.table, {"batch_rows": 10})
        other = Connection()
        self.addCleanup(other.close)
        second = other.call("scan_next", batch["cursor"])
        self.assertEqual(second["rows"][0][0], b"row0010")
        again = self.keys(start=second["next"])
        self.assertEqual(again, [f"row{i:04}" for i in range(20, 30)])
        self.assertIsNone(self.db.call("scan_close", second["cursor"]))
        self.assertIsNone(self.db.call("scan_close", second["cursor"]))
        self.fails(CURSOR_EXPIRED, "cursor_expired", "scan_next", second["cursor"])

    def test_sample_row_keys(self):
        self.fill(10)
        samples = self.db.call("sample_row_keys", self.table)
        self.assertEqual(samples[-1][0], b"")
        self.assertIsInstance(samples[-1][1], int)

    # Read-modify-write

    def test_increment_and_append(self):
        rules = [["increment", "n", "hits", 41], ["append", "n", "log", "a"]]
        self.db.call("read_modify_write", self.table, "r", rules)
        key, cells = self.db.call("read_modify_write", self.table, "r", [["increment", "n", "hits", -42], ["append", "n", "log", "b"]])
        self.assertEqual(key, b"r")
        self.assertEqual([(f, q, v) for f, q, t, v in cells], [("n", b"hits", struct.pack(">q", -1)), ("n", b"log", b"ab")])
        self.set("r", "n", "text", "no number")
        self.fails(NOT_A_NUMBER, "not_a_number", "read_modify_write", self.table, "r", [["increment", "n", "text", 1]])

    def test_concurrent_increments(self):
        connections = [Connection() for _ in range(4)]
        sent = []
        for c in connections:
            self.addCleanup(c.close)
            for _ in range(25):
                data, msgid = c.request("read_modify_write", self.table, "r", [["increment", "n", "hits", 1]])
                c.send_bytes(data)
                sent.append((c, msgid))
        seen = set()
        for c, msgid in sent:
            error, row = c.response(msgid)
            self.assertIsNone(error)
            seen.add(struct.unpack(">q", row[1][0][3])[0])
        self.assertEqual(seen, set(range(1, 101)))

    def test_check_and_mutate(self):
        lock = ["columns", "n", {"start_closed": "lock", "end_closed": "lock"}]
        take = lambda who: self.db.call("check_and_mutate", self.table, "r", lock, [], [["set", "n", "lock", None, who]])
        self.assertIs(take("me"), False)
        self.assertIs(take("you"), True)
        self.assertEqual(self.values("r", ["versions", 1])[0][2], b"me")
        release = ["chain", lock, ["versions", 1], ["value", "me"]]
        self.assertIs(self.db.call("check_and_mutate", self.table, "r", release, [["del_column", "n", "lock"]], []), True)
        self.assertIs(self.db.call("check_and_mutate", self.table, "r", None, [["set", "n", "x", 1, "x"]], []), False)
        self.assertIsNone(self.read("r"))

    # Filters

    def test_filters(self):
        self.db.call("mutate", self.table, "r", [
            ["set", "anchor", "a", 10, "alpha"], ["set", "anchor", "a", 20, "beta"],
            ["set", "anchor", "b", 10, "gamma"], ["set", "n", "c", 30, "delta\nline"],
        ])
        a20, a10, b10, c30 = ("anchor:a", 20, b"beta"), ("anchor:a", 10, b"alpha"), ("anchor:b", 10, b"gamma"), ("n:c", 30, b"delta\nline")
        for filter, want in [
            (["pass"], [a20, a10, b10, c30]),
            (["block"], []),
            (["row", "r"], [a20, a10, b10, c30]),
            (["row", "rr"], []),
            (["family", "anch.*"], [a20, a10, b10]),
            (["qualifier", "[bc]"], [b10, c30]),
            (["value", "delta"], []),
            (["value", ".*a"], [a20, a10, b10]),
            (["value", "delta.*"], []),
            (["value", r"delta\C*"], [c30]),
            (["columns", "anchor", {"start_open": "a"}], [b10]),
            (["columns", "anchor", {"end_open": "b"}], [a20, a10]),
            (["values", {"start_closed": "beta", "end_open": "delta\nline"}], [a20]),
            (["values", {}], [a20, a10, b10, c30]),
            (["timestamps", 20, None], [a20, c30]),
            (["timestamps", None, 20], [a10, b10]),
            (["versions", 1], [a20, b10, c30]),
            (["cells_limit", 2], [a20, a10]),
            (["cells_offset", 2], [b10, c30]),
            (["chain", ["versions", 1], ["cells_limit", 2]], [a20, b10]),
            (["interleave", ["family", "n"], ["qualifier", "[ac]"]], [a20, a10, c30, c30]),
            (["condition", ["family", "n"], ["family", "anchor"], None], [a20, a10, b10]),
            (["condition", ["family", "contents"], ["pass"], ["cells_limit", 1]], [a20]),
            (["chain", ["interleave", ["sink"], ["block"]], ["block"]], [a20, a10, b10, c30]),
        ]:
            with self.subTest(filter=filter):
                self.assertEqual(self.values("r", filter), want)
        labelled = self.read("r", filter=["chain", ["cells_limit", 1], ["label", "first"]])
        self.assertEqual(labelled[1], [["anchor", b"a", 20, b"beta", ["first"]]])

    # Errors

    def test_errors_of_tables(self):
        self.fails(TABLE_NOT_FOUND, "table_not_found", "read", "no-such-table", "r")
        self.fails(TABLE_EXISTS, "table_exists", "create_table", self.table, {"families": []})
        info = self.fails(BAD_NAME, "bad_name", "create_table", "no spaces", {})
        self.assertEqual(info["value"], "no spaces")
        self.assertLessEqual({"what", "reason"}, set(info))
        info = self.fails(BAD_SCHEMA, "bad_schema", "set_family", self.table, {"name": "f", "gc": "versions=many"})
        self.assertEqual(info["cause"], "gc_policy")

    def test_errors_of_mutations(self):
        write = lambda row, *mutations: (self.table, row, list(mutations))
        info = self.fails(FAMILY_NOT_FOUND, "family_not_found", "mutate", *write("r", ["set", "n", "q", 1, "v"], ["set", "nosuch", "q", 1, "v"]))
        self.assertEqual((info["table"], info["family"], info["index"]), (self.table, "nosuch", 1))
        self.assertIsNone(self.read("r"))  # all of a row or nothing
        self.fails(BAD_ROW_KEY, "bad_row_key", "mutate", *write("", ["del_row"]))
        info = self.fails(BAD_TIMESTAMP, "bad_timestamp", "mutate", *write("r", ["set", "n", "q", -5, "v"]))
        self.assertEqual(info["got"], -5)
        info = self.fails(BAD_MUTATION, "bad_mutation", "mutate", *write("r"))
        self.assertEqual(info["cause"], "no_mutations")
        self.fails(BAD_MUTATION, "bad_mutation", "mutate", *write("r", ["frobnicate"]))
        info = self.fails(LIMIT_EXCEEDED, "limit_exceeded", "mutate", *write("k" * 65537, ["del_row"]))
        self.assertEqual((info["limit"], info["got"]), (65536, 65537))
        self.assertIsInstance(info["what"], str)

    def test_errors_of_filters(self):
        info = self.fails(BAD_FILTER, "bad_filter", "read", self.table, "r", {"filter": ["chain", ["pass"], ["pass"], ["pass"], ["value", "("]]})
        self.assertEqual(info["path"], "chain[3]")
        self.assertIn("reason", info)
        deep = ["pass"]
        for _ in range(25):
            deep = ["chain", deep]
        info = self.fails(BAD_FILTER, "bad_filter", "scan_open", self.table, {"filter": deep})
        self.assertEqual(info["limit"], 20)

    def test_errors_of_requests(self):
        self.fails(UNKNOWN_METHOD, "unknown_method", "no_such_method")
        self.fails(BAD_REQUEST, "bad_request", "read", self.table)
        self.fails(BAD_REQUEST, "bad_request", "read", self.table, "r", {"fliter": ["pass"]})
        self.fails(BAD_REQUEST, "bad_request", "mutate", self.table, "r", [["set", "n", "q", 1.5, "v"]])
        self.assertIsNone(self.read("r", x_mine="ignored", trace_id=b"\x01\x02", timeout_ms=10000))
        self.assertEqual(self.db.call("ping", None)["server"], "stele")
        self.assertEqual(self.db.call("ping", {})["server"], "stele")

    def test_bytes_that_are_no_message(self):
        db = Connection()
        self.addCleanup(db.close)
        db.send_bytes(msgpack.packb([0, 77, 5, "neither a method nor parameters"]))
        error, _ = db.response(77)
        self.assertEqual((error["code"], error["name"]), (BAD_REQUEST, "bad_request"))
        self.assertEqual(db.sock.recv(1), b"")  # and the connection ends


class LockTest(unittest.TestCase):
    """The lock service."""

    def setUp(self):
        self.db = Connection()
        self.addCleanup(self.db.close)
        self.dir = "/spec-" + uuid.uuid4().hex[:12]

    fails = SpecTest.fails

    def call(self, method, *params):
        return self.db.call("meta." + method, *params)

    def session(self):
        """A session and the term, as after the first keep-alive."""
        session = self.call("open_session", "spec", {"lease_ms": 10000})
        self.assertEqual(session["lease_ms"], 10000)
        self.addCleanup(self.call, "close_session", session["session"])
        answer = self.call("keep_alive", session["session"], 0, 0)
        self.assertGreater(answer["term"], 0)
        self.assertGreaterEqual(answer["lease_ms"], 10000)
        return session["session"], answer["term"]

    def events(self, session, term, acked):
        """The next events, and the number of the last."""
        answer = self.call("keep_alive", session, term, acked, {"hang_ms": 4000})
        self.assertEqual(answer["term"], term)
        new = answer["events"][acked + 1 - answer["first"]:]
        return new, answer["first"] + len(answer["events"]) - 1

    def test_files(self):
        path = self.dir + "/f"
        made = self.call("set", path, b"one", 0)
        info = self.fails(GENERATION_DIFFERS, "generation_differs", "meta.set", path, b"two", 0)
        self.assertEqual((info["want"], info["got"], info["path"]), (0, made, path))
        again = self.call("set", path, b"two", made)
        self.assertGreater(again, made)
        file = self.call("get", path)
        self.assertEqual((file["data"], file["generation"], file["bytes"], file["path"]), (b"two", again, 3, path))
        self.assertEqual(self.call("get", path, {"stale": True})["data"], b"two")
        stat = self.call("stat", self.dir)
        self.assertEqual((stat["dir"], stat["children"]), (True, 1))
        self.assertEqual([s["path"] for s in self.call("list", self.dir)], [path])
        self.assertIsNone(self.call("delete", path, again))
        self.fails(PATH_NOT_FOUND, "path_not_found", "meta.get", path)
        self.assertEqual(self.fails(BAD_PATH, "bad_path", "meta.get", "no/slash")["path"], "no/slash")
        self.fails(BAD_REQUEST, "bad_request", "meta.get", path, {"stael": True})

    def test_locks(self):
        path = self.dir + "/lock"
        mine, _ = self.session()
        other, _ = self.session()
        lock = self.call("acquire", mine, path, "exclusive", {"delay_ms": 1000})
        self.assertEqual(lock["sequencer"].split(":")[0], "exclusive")
        self.assertEqual(lock["sequencer"].split(":", 3)[3], path)
        self.assertEqual(self.call("acquire", mine, path, "exclusive")["hold"], lock["hold"])
        info = self.fails(LOCK_HELD, "lock_held", "meta.acquire", other, path, "shared", {"wait_ms": 50})
        self.assertEqual((info["mode"], info["holder"], info["holder_name"], info["path"]), ("exclusive", mine, "spec", path))
        stat = self.call("stat", path)
        self.assertEqual((stat["lock"], stat["holders"]), ("exclusive", [mine]))
        self.assertIsNone(self.call("check_sequencer", lock["sequencer"]))
        self.call("set", self.dir + "/guarded", b"", None, {"guard": lock["sequencer"]})
        self.fails(LOCK_NOT_HELD, "lock_not_held", "meta.release", mine, path, {"hold": lock["hold"] + 1000000})
        self.assertIsNone(self.call("release", mine, path, {"hold": lock["hold"]}))
        self.fails(STALE_SEQUENCER, "stale_sequencer", "meta.check_sequencer", lock["sequencer"])
        self.fails(STALE_SEQUENCER, "stale_sequencer", "meta.set", self.dir + "/guarded", b"", None, {"guard": lock["sequencer"]})
        shared = [self.call("acquire", s, path, "shared")["hold"] for s in (mine, other)]
        self.assertEqual(len(set(shared)), 2)

    def test_session_end(self):
        path = self.dir + "/mine"
        session, _ = self.session()
        self.call("set", path, b"", 0, {"session": session, "ephemeral": True})
        self.assertEqual(self.call("stat", path)["ephemeral"], session)
        self.call("close_session", session)
        self.call("close_session", session)
        self.fails(PATH_NOT_FOUND, "path_not_found", "meta.stat", path)
        self.fails(NO_SESSION, "no_session", "meta.keep_alive", session, 0, 0)

    def test_events(self):
        session, term = self.session()
        watch = self.call("watch", session, self.dir, 2)
        file = self.call("set", self.dir + "/f", b"1", 0)
        events, acked = self.events(session, term, 0)
        self.assertEqual([e[:3] for e in events], [[2, self.dir, "f"]])
        self.assertEqual(events[0][3], file)
        self.call("unwatch", session, self.dir, watch)
        # A write waits until the copy that the session may cache is gone.
        got = self.call("get", self.dir + "/f", {"session": session})
        self.assertEqual(got["leave"], [term, acked])
        writer = Connection()
        self.addCleanup(writer.close)
        data, msgid = writer.request("meta.set", self.dir + "/f", b"2", file)
        writer.send_bytes(data)
        events, acked = self.events(session, term, acked)
        self.assertEqual([e[:2] for e in events], [[64, self.dir + "/f"]])
        self.assertEqual(self.call("get", self.dir + "/f")["data"], b"1")
        data, hanging = self.db.request("meta.keep_alive", session, term, acked, {"hang_ms": 200})
        self.db.send_bytes(data)
        error, made = writer.response(msgid)
        self.assertIsNone(error)
        self.assertEqual(self.call("get", self.dir + "/f")["generation"], made)
        self.assertIsNone(self.db.response(hanging)[0])


if __name__ == "__main__":
    unittest.main(verbosity=2)
