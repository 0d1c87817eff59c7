#!/usr/bin/python
# Copyright 2026 The Stele authors. Licensed under the Apache License 2.0.
"""Ansible module: a node of a cluster is drained, taken back, or removed."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node
short_description: Drain, take back or remove a node of a Stele cluster
description:
  - Asks the cluster that a node be drained, or not any more, or be forgotten, and waits until that is so.
options:
  stele:
    description: The program on the host.
    type: path
    default: /usr/bin/stele
  addr:
    description: Host:port of nodes to ask, between commas. The node that is to be forgotten cannot be asked for that.
    type: str
    default: 127.0.0.1:7106
  credential:
    description: The client credential, as text.
    type: str
  name:
    description: Name or id of the node.
    type: str
    required: true
  state:
    description:
      - V(drained) has it hold nothing that is needed, and waits until it has no tablets, no vote and no extents that only it has.
      - V(empty) waits until there is nothing of commit logs on it either that others need, so that its disks may be thrown away.
      - V(undrained) takes a drain back.
      - V(absent) removes a node that is gone for good; one that is alive is refused.
    type: str
    choices: [drained, empty, undrained, absent]
    required: true
  timeout:
    description: Seconds to wait.
    type: int
    default: 300
author:
  - The Stele authors (@steledb)
"""

EXAMPLES = r"""
- name: Move everything off a node
  steledb.stele.node:
    name: host2
    state: drained

- name: Forget a node whose host is lost
  steledb.stele.node:
    name: host3
    state: absent
"""

RETURN = r"""
node:
  description: The node, as C(stele node list --json) has it; empty if it is not there.
  type: dict
  returned: always
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.steledb.stele.plugins.module_utils.cli import COMMON, Stele, poll


class Node:
    """A node, as its cluster knows it."""

    def __init__(self, module):
        self.module, self.stele = module, Stele(module)
        self.name, self.wait = module.params["name"], module.params["timeout"]
        self.seen = None

    def find(self):
        """Finds the node, as soon as a node answers."""

        def look():
            self.seen = self.stele.node(self.name)

        why = poll(min(self.wait, 30), look)
        if why:
            self.module.fail_json(msg="; ".join(why))
        return self.seen

    def end(self, changed):
        self.module.exit_json(changed=changed, node=self.seen or {})

    def must(self, look, what):
        why = poll(self.wait, look)
        if why:
            self.module.fail_json(msg=f"{what} after {self.wait} s: {'; '.join(why)}", node=self.seen or {})

    def there(self):
        if self.find() is None:
            self.module.fail_json(msg=f"the cluster has no node {self.name}")

    def drain(self, empty):
        self.there()
        changed = not self.seen["draining"]
        if self.module.check_mode:
            self.end(changed)
        end = time.monotonic() + self.wait

        def look():
            self.stele.call("node", "drain", self.seen["id"], "--timeout", f"{max(1, int(end - time.monotonic()))}s")
            self.seen = self.stele.node(self.seen["id"]) or self.seen
            return self.logs() if empty else None

        self.must(look, f"node {self.name} is not drained")
        self.end(changed)

    def logs(self):
        """Says what of commit logs the node still holds that is needed."""
        if self.seen["state"] != "alive":
            return None  # a node that is down tells nothing of its disks
        here = [s for s in self.stele.store()["nodes"] if s["node"] == self.seen["id"]]
        return [s.get("error") or f"it has extents of commit logs: {s['drain_logs']}" for s in here if not s["safe"]]

    def undrain(self):
        self.there()
        changed = self.seen["draining"]
        if changed and not self.module.check_mode:
            self.must(lambda: self.stele.call("node", "undrain", self.seen["id"]) and None, f"node {self.name} is still drained")
        self.end(changed)

    def remove(self):
        if self.find() is None:
            self.end(False)
        if self.module.check_mode:
            self.end(True)

        def look():
            n = self.stele.node(self.seen["id"])
            if n is None:
                return None
            if n["state"] == "alive":
                return ["it is alive: stop it first"]
            self.stele.call("node", "remove", n["id"], "--yes")  # refused while it has tablets
            return ["it is still listed"]

        self.must(look, f"node {self.name} is not removed")
        self.end(True)


def main():
    module = AnsibleModule(
        argument_spec={
            **COMMON,
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "required": True, "choices": ["drained", "empty", "undrained", "absent"]},
        },
        supports_check_mode=True,
    )
    node, state = Node(module), module.params["state"]
    if state == "absent":
        node.remove()
    elif state == "undrained":
        node.undrain()
    else:
        node.drain(empty=state == "empty")


if __name__ == "__main__":
    main()
