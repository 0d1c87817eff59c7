# Copyright 2026 The Stele authors. Licensed under the Apache License 2.0.
"""What the modules of this collection share: the stele program, asked for JSON."""

from __future__ import annotations

import json
import os
import tempfile
import time

COMMON = {
    "stele": {"type": "path", "default": "/usr/bin/stele"},
    "addr": {"type": "str", "default": "127.0.0.1:7106"},
    "credential": {"type": "str", "no_log": True},
    "timeout": {"type": "int", "default": 300},
}

# A call may take as long as a status that waits for all nodes of the cluster, and some.
CALL = "15s"


class Unanswered(Exception):
    """The cluster did not answer, or refused."""


class Stele:
    """Runs commands of the program against the nodes at an address."""

    def __init__(self, module):
        self.module = module
        self.credential = None
        if module.params.get("credential"):
            fd, self.credential = tempfile.mkstemp(prefix="stele-", dir=module.tmpdir)  # mode 0600
            with os.fdopen(fd, "w") as f:
                f.write(module.params["credential"])
            module.add_cleanup_file(self.credential)

    def call(self, *args, accept=(0,)):
        """Returns what a command printed as JSON: a list if it printed several lines."""
        env = {"STELE_ADDR": self.module.params["addr"], "NO_COLOR": "1"}
        if self.credential:
            env["STELE_CREDENTIAL"] = self.credential
        argv = [self.module.params["stele"], *args, "--json"]
        if "--timeout" not in args:
            argv += ["--timeout", CALL]
        rc, out, err = self.module.run_command(argv, environ_update=env)
        if rc not in accept:
            err = err[max(err.rfind("error: "), 0) :]  # what goes before tells how it went on
            raise Unanswered(f"stele {' '.join(args)}: {(err or out).strip() or 'exit code ' + str(rc)}")
        lines = [json.loads(line) for line in out.splitlines() if line.strip()]
        return lines[0] if len(lines) == 1 else lines

    def nodes(self):
        found = self.call("node", "list")
        return found if isinstance(found, list) else [found]

    def node(self, name):
        """Returns the node of a name, or None. A name that several nodes have is refused: they are told apart by id."""
        found = [n for n in self.nodes() if name in (n["id"], n["name"])]
        by_id = [n for n in found if n["id"] == name]
        if by_id:
            return by_id[0]
        if len(found) > 1:
            self.module.fail_json(msg=f"{len(found)} nodes have the name {name}: give the id of the one meant ({', '.join(n['id'] for n in found)})")
        return found[0] if found else None

    def status(self):
        """Returns the status of the node and of its cluster, also if that is not well (exit code 5)."""
        return self.call("status", accept=(0, 5))

    def store(self):
        """Returns how the block store is, of each node."""
        return self.call("blob", "status")


def poll(seconds, look, pause=1.0):
    """Calls look until it returns nothing, for that long; returns what it last returned: why it is not so yet."""
    end = time.monotonic() + seconds
    while True:
        try:
            why = look()
        except Unanswered as e:
            why = [str(e)]
        if not why or time.monotonic() >= end:
            return why
        time.sleep(pause)
