"""The complete clients of docs/rpc.md against a cluster of three nodes, without certificates.

Run it by run.sh, or against nodes that run:
SPECCLIENT_ADDRS=host:port,… SPECCLIENT_MODULES=folder cluster_test.py.
"""

import os
import unittest
import uuid

import documented
from client_test import Connection

ADDRS = os.environ["SPECCLIENT_ADDRS"].split(",")


class ClusterTest(unittest.TestCase):
    def setUp(self):
        self.folder = documented.Folder()
        self.addCleanup(self.folder.close)

    def test_python(self):
        self.shown("python", "db = Stele()", [
            "b'com.cnn.www'",
            "b'com.cnn.www' [('anchor', b'www.c-span.org', b'CNN')]",
            "visits: 1",
            '102 family_not_found: mutation 0: table "pages" has no column family "nosuch"',
        ])

    def test_javascript(self):
        self.shown("javascript", "new Stele()", [
            "com.cnn.www",
            "com.cnn.www [ [ 'anchor', 'www.c-span.org', 'CNN' ] ]",
            "visits: 1n",
            '102 family_not_found: mutation 0: table "pages" has no column family "nosuch"',
        ])

    def shown(self, language, what, lines):
        """The use that the page shows works, whichever node is asked first."""
        program = documented.program(language, what)
        for addr in ADDRS:
            with self.subTest(addr=addr):
                out, errors = self.folder.run(language, program, STELE_ADDR=addr)
                self.assertEqual((out.splitlines(), errors), (lines, ""))

    def test_python_across_nodes(self):
        self.across("python", "across.py")

    def test_javascript_across_nodes(self):
        self.across("javascript", "across.mjs")

    def across(self, language, name):
        """Reads, writes and scans reach all rows of a table of which each node has a tablet."""
        db = Connection(ADDRS[0])
        self.addCleanup(db.close)
        table = "spec-" + uuid.uuid4().hex[:12]
        db.call("create_table", table, {"families": [{"name": "f"}], "split_at": ["row066", "row133"]})
        self.addCleanup(lambda: db.call("drop_table", table))
        for row, node in zip((b"row000", b"row100", b"row200"), db.call("list_nodes")):
            db.call("move_tablet", table, row, node["id"], {"timeout_ms": 60000})
        out, errors = self.folder.run(language, (documented.HERE / name).read_text(), TABLE=table, STELE_ADDR=ADDRS[0])
        self.assertEqual((out, errors), ("3 nodes\n", ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
