#!/usr/bin/python
# Copyright 2026 The Stele authors. Licensed under the Apache License 2.0.
"""Ansible module: what of Stele is on a host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: host_info
short_description: Tell what of Stele is on a host, and wait until its node serves
description:
  - Tells whether the program is there, whether the host has a node's data, and whether its node runs with the
    program and the configuration that are installed.
  - With O(serving) it waits until the node serves with the program that is installed. If the service has failed
    meanwhile, it fails at once, with the end of the node's log.
options:
  stele:
    description: The program on the host.
    type: path
    default: /usr/bin/stele
  addr:
    description: Host:port of the node on this host.
    type: str
    default: 127.0.0.1:7106
  credential:
    description: The client credential, as text.
    type: str
  unit:
    description: The systemd unit of the node.
    type: str
    default: stele.service
  data_dirs:
    description: The node's data folders.
    type: list
    elements: path
    default: [/var/lib/stele]
  security_dir:
    description: The folder of the node's keys. C(security) in the first data folder unless set.
    type: path
  files:
    description: Files that the node reads when it starts. A node that started before one of them changed is stale.
    type: list
    elements: path
    default: [/etc/stele/stele.yaml]
  serving:
    description: Wait until the node serves.
    type: bool
    default: false
  timeout:
    description: Seconds to wait.
    type: int
    default: 300
author:
  - The Stele authors (@steledb)
"""

EXAMPLES = r"""
- name: Wait until the node of this host serves
  steledb.stele.host_info:
    serving: true
"""

RETURN = r"""
installed:
  description: The version of the program; empty if it is not there.
  type: str
  returned: always
has_data:
  description: Whether a node has its data here.
  type: bool
  returned: always
has_keys:
  description: Whether the folder of a node's keys is there.
  type: bool
  returned: always
running:
  description: Whether the service runs.
  type: bool
  returned: always
service_failed:
  description: Whether systemd has given up on the service.
  type: bool
  returned: always
version:
  description: The version that the node runs, if it answers.
  type: str
  returned: always
node:
  description: The name of the node, if it answers.
  type: str
  returned: always
serves:
  description: Whether the node serves, if it answers.
  type: bool
  returned: always
draining:
  description: Whether the node is drained, if it answers.
  type: bool
  returned: always
stale:
  description: Why the node should be started again, a sentence each.
  type: list
  elements: str
  returned: always
"""

import os
import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.steledb.stele.plugins.module_utils.cli import COMMON, Stele, Unanswered, poll


class Host:
    """What is on this host."""

    def __init__(self, module):
        self.module, self.stele = module, Stele(module)

    def unit(self):
        keys = ("ActiveState", "SubState", "MainPID", "ExecMainStartTimestampMonotonic", "Result", "NRestarts")
        argv = ["systemctl", "show", self.module.params["unit"], *(f"--property={k}" for k in keys)]
        rc, out, err = self.module.run_command(argv)
        if rc != 0:
            self.module.fail_json(msg=f"systemctl show: {err.strip()}")
        return dict(line.split("=", 1) for line in out.splitlines() if "=" in line)

    def installed(self):
        if not os.access(self.module.params["stele"], os.X_OK):
            return ""
        return self.stele.call("version")["version"]

    def holds(self, folder):
        """Tells whether a node has run with a folder: one that has only got its keys has not."""
        return os.path.exists(os.path.join(folder, "identity")) and any(os.path.exists(os.path.join(folder, d)) for d in ("raft", "blobs"))

    def has_keys(self):
        """Tells whether the folder of keys is there, whatever is missing in it: the node itself says what."""
        p = self.module.params
        return os.path.lexists(p["security_dir"] or os.path.join(p["data_dirs"][0], "security"))

    def stale(self, unit):
        """Says why the node that runs is not the one that would start now."""
        pid = int(unit.get("MainPID") or 0)
        if not pid:
            return []
        why = []
        try:
            if os.readlink(f"/proc/{pid}/exe").endswith(" (deleted)"):
                why.append("another program is installed than the node runs")
        except OSError:
            return []
        since = int(unit["ExecMainStartTimestampMonotonic"]) / 1e6 - time.monotonic() + time.time()
        for name in self.module.params["files"]:
            if os.path.exists(name) and os.path.getmtime(name) > since + 1:
                why.append(f"{name} has changed since the node started")
        return why

    def look(self):
        unit = self.unit()
        seen = {
            "installed": self.installed(),
            "has_data": any(self.holds(d) for d in self.module.params["data_dirs"]),
            "has_keys": self.has_keys(),
            "running": unit["ActiveState"] in ("active", "activating", "reloading", "deactivating"),
            "service_failed": unit["ActiveState"] == "failed",
            "version": "",
            "node": "",
            "draining": False,
            "serves": False,
            "stale": self.stale(unit),
        }
        if seen["installed"] and seen["running"]:
            try:
                status = self.stele.status()
            except Unanswered as e:
                seen["silent"] = str(e)
                return seen
            seen.update(version=status["version"], node=status["node"], serves=status["ready"])
            seen["draining"] = any(n["draining"] for n in status["whole"]["nodes"] if n["id"] == status["node_id"])
            if status["version"] != seen["installed"] and not seen["stale"]:
                seen["stale"].append(f"version {seen['installed']} is installed, and the node runs {status['version']}")
        return seen

    def log(self):
        argv = ["journalctl", "--no-pager", "--quiet", "--output=cat", "--lines=20", f"--unit={self.module.params['unit']}"]
        return self.module.run_command(argv)[1].splitlines()

    def await_serving(self):
        seen = {}

        def look():
            seen.clear()
            seen.update(self.look())
            if seen["service_failed"]:
                self.module.fail_json(msg="the node does not start: its service has failed; the end of its log is in log", log=self.log(), **seen)
            if not seen["running"]:
                return ["its service does not run"]
            if not seen["serves"]:
                return [seen.get("silent") or "it does not serve yet"]
            return seen["stale"]

        why = poll(self.module.params["timeout"], look)
        if why:
            self.module.fail_json(
                msg=f"the node does not serve after {self.module.params['timeout']} s: {'; '.join(why)}; the end of its log is in log",
                log=self.log(), **seen)
        return seen


def main():
    module = AnsibleModule(
        argument_spec={
            **COMMON,
            "unit": {"type": "str", "default": "stele.service"},
            "data_dirs": {"type": "list", "elements": "path", "default": ["/var/lib/stele"]},
            "security_dir": {"type": "path"},
            "files": {"type": "list", "elements": "path", "default": ["/etc/stele/stele.yaml"]},
            "serving": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    host = Host(module)
    module.exit_json(changed=False, **(host.await_serving() if module.params["serving"] else host.look()))


if __name__ == "__main__":
    main()
