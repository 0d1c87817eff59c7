"""The client of client_test.py against a node with certificates.

It has Python's ssl, and what docs/rpc.md says of users and rights. Run it by run.sh, or against
a node that runs: STELE_ADDR=host:port STELE_CREDENTIAL=admin.pem secure_test.py.
"""

import os
import socket
import ssl
import time
import unittest
import uuid

import documented
from client_test import TABLE_NOT_FOUND, FAMILY_NOT_FOUND, Connection, SteleError

UNAUTHENTICATED, PERMISSION_DENIED = 8, 9
QUOTA_EXCEEDED, QUOTA_NOT_FOUND = 140, 141


def address():
    host, port = os.environ["STELE_ADDR"].rsplit(":", 1)
    return host, int(port)


def context(credential=True):
    """What trusts the cluster's authority, and shows a certificate or none."""
    file = os.environ["STELE_CREDENTIAL"]
    tls = ssl.create_default_context(cafile=file)
    if credential:
        tls.load_cert_chain(file)
    return tls


class SecureTest(unittest.TestCase):
    def setUp(self):
        self.admin = self.connect()
        self.table = "spec-" + uuid.uuid4().hex[:12]
        self.user = "user-" + uuid.uuid4().hex[:12]
        self.admin.call("create_table", self.table, {"families": [{"name": "shown"}, {"name": "hidden"}]})
        self.addCleanup(lambda: self.admin.call("drop_table", self.table))
        self.admin.call("mutate", self.table, b"row", [["set", "shown", b"q", None, b"1"], ["set", "hidden", b"q", None, b"2"]])

    def connect(self, **how):
        db = Connection(tls=context(**how))
        self.addCleanup(db.close)
        return db

    def token(self):
        """A token of the test's user."""
        made = self.admin.call("add_user", self.user)
        self.addCleanup(self.forget)
        self.assertTrue(made["token"].startswith("stele-access-"), made["token"][:16])
        return made["token"]

    def forget(self):
        try:
            self.admin.call("remove_user", self.user)
        except SteleError as err:
            self.assertEqual(err.info["name"], "user_not_found")

    def fails(self, code, name, db, method, *params):
        """Calls, expects an error, and returns its map."""
        with self.assertRaises(SteleError) as caught:
            db.call(method, *params)
        info = caught.exception.info
        self.assertEqual((info["code"], info["name"]), (code, name), info)
        return info

    def test_certificate(self):
        me = self.admin.call("whoami")
        self.assertEqual((me["kind"], me["name"], me["shown"]), ("principal", "admin", "certificate"))
        self.assertIn({"principal": "admin", "table": "", "family": "", "rights": "admin", "view": ""}, me["grants"])
        self.assertEqual(self.admin.sock.version(), "TLSv1.3")
        row = self.admin.call("read", self.table, b"row")
        self.assertEqual([cell[0] for cell in row[1]], ["hidden", "shown"])

    def test_strangers(self):
        db = self.connect(credential=False)
        self.assertEqual(db.call("ping")["server"], "stele")
        info = self.fails(UNAUTHENTICATED, "unauthenticated", db, "list_tables")
        self.assertEqual(info["reason"], "no_credential")
        info = self.fails(UNAUTHENTICATED, "unauthenticated", db, "auth", "stele-access-" + "0" * 60)
        self.assertEqual(info["reason"], "bad_token")
        self.fails(UNAUTHENTICATED, "unauthenticated", db, "read", self.table, b"row")

    def test_transport(self):
        plain = Connection()
        self.addCleanup(plain.close)
        info = self.fails(UNAUTHENTICATED, "unauthenticated", plain, "ping")
        self.assertEqual(info["reason"], "no_tls")
        with self.assertRaises(ConnectionError):
            plain.call("ping")  # the connection is closed
        old = context()
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with socket.create_connection(address(), timeout=30) as sock, self.assertRaises((ssl.SSLError, ConnectionError)):
            old.wrap_socket(sock, server_hostname=address()[0])
        others = ssl.create_default_context()  # which trusts the authorities of the world
        with socket.create_connection(address(), timeout=30) as sock, self.assertRaises(ssl.SSLCertVerificationError):
            others.wrap_socket(sock, server_hostname=address()[0])
        with socket.create_connection(address(), timeout=30) as sock, self.assertRaises(ssl.SSLCertVerificationError):
            context().wrap_socket(sock, server_hostname="another.example")

    def test_names(self):
        """The certificate is good for whatever a client on this host calls the node."""
        for name in ("localhost", "127.0.0.1", "::1", socket.gethostname()):
            with socket.create_connection(address(), timeout=30) as sock:
                context().wrap_socket(sock, server_hostname=name).close()

    def test_documented_clients(self):
        """What the clients that docs/rpc.md shows print: they find the administrator's certificate good."""
        folder = documented.Folder()
        self.addCleanup(folder.close)
        for language, what in ("python", "tls.load_cert_chain"), ("javascript", "tls.connect"):
            with self.subTest(language=language):
                out, errors = folder.run(language, documented.program(language, what), STELE_ADDR=f"localhost:{address()[1]}")
                self.assertEqual((out, errors), ("admin\n", ""))

    def test_rights(self):
        db = self.connect(credential=False)
        self.assertIsNone(db.call("auth", self.token()))
        me = db.call("whoami")
        self.assertEqual((me["kind"], me["name"], me["shown"], me["grants"]), ("principal", self.user, "token", []))
        # As if it were not there.
        seen = self.fails(TABLE_NOT_FOUND, "table_not_found", db, "read", self.table, b"row")
        absent = self.fails(TABLE_NOT_FOUND, "table_not_found", db, "read", self.table + "x", b"row")
        self.assertEqual(seen["message"], absent["message"].replace(self.table + "x", self.table))
        self.assertIsNone(self.admin.call("grant", self.user, "read", {"table": self.table, "family": "shown"}))
        row = db.call("read", self.table, b"row")
        self.assertEqual([(cell[0], cell[3]) for cell in row[1]], [("shown", b"1")])
        info = self.fails(PERMISSION_DENIED, "permission_denied", db, "mutate", self.table, b"row", [["set", "shown", b"q", None, b"3"]])
        self.assertEqual((info["right"], info["table"], info["family"]), ("write", self.table, "shown"))
        self.fails(FAMILY_NOT_FOUND, "family_not_found", db, "mutate", self.table, b"row", [["set", "hidden", b"q", None, b"3"]])
        self.fails(PERMISSION_DENIED, "permission_denied", db, "create_table", "another", {"families": [{"name": "f"}]})
        # A revocation is in force when it is answered.
        self.assertIsNone(self.admin.call("revoke", self.user, "read", {"table": self.table, "family": "shown"}))
        self.fails(TABLE_NOT_FOUND, "table_not_found", db, "read", self.table, b"row")

    def test_credentials_end(self):
        db = self.connect(credential=False)
        db.call("auth", self.token())
        self.assertIsNone(self.admin.call("disable_user", self.user))
        info = self.fails(UNAUTHENTICATED, "unauthenticated", db, "list_tables")
        self.assertEqual(info["reason"], "disabled")
        self.assertIsNone(self.admin.call("enable_user", self.user))
        db.call("list_tables")
        self.assertIsNone(self.admin.call("revoke_user", self.user))
        with self.assertRaises((SteleError, ConnectionError)) as caught:
            db.call("list_tables")
        if isinstance(caught.exception, SteleError):
            self.assertEqual(caught.exception.info["name"], "unauthenticated")

    def test_quotas(self):
        self.assertIsNone(self.admin.call("set_quota", "table", self.table, {"write_ops": 1, "burst_ms": 1000}))
        self.assertEqual([q["bounds"][0]["kind"] for q in self.admin.call("list_quotas")["quotas"] if q["name"] == self.table], ["write_ops"])
        deadline = time.monotonic() + 20
        while True:  # nodes go by it within a second
            try:
                for i in range(5):
                    self.admin.call("mutate", self.table, b"row", [["set", "shown", b"q", None, b"%d" % i]])
            except SteleError as err:
                info = err.info
                break
            self.assertLess(time.monotonic(), deadline, "nothing is refused")
            time.sleep(0.05)
        self.assertEqual((info["code"], info["name"], info["limit"]), (QUOTA_EXCEEDED, "quota_exceeded", 1))
        self.assertEqual(info["quota"], f'table "{self.table}" write_ops')
        self.assertIs(info["retryable"], True)
        time.sleep(info["retry_after_ms"] / 1000)
        self.admin.call("mutate", self.table, b"row", [["set", "shown", b"q", None, b"in"]])
        self.assertIsNone(self.admin.call("remove_quota", "table", self.table))
        self.fails(QUOTA_NOT_FOUND, "quota_not_found", self.admin, "remove_quota", "table", self.table)
        used = self.admin.call("usage", self.table)
        self.assertEqual([f["name"] for f in used["tables"][0]["families"]], ["hidden", "shown"])
        self.assertEqual(used["tables"][0]["owner"], "admin")


if __name__ == "__main__":
    unittest.main(verbosity=2)
