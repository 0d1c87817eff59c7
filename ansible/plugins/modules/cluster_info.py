#!/usr/bin/python
# Copyright 2026 The Stele authors. Licensed under the Apache License 2.0.
"""Ansible module: how a cluster is."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cluster_info
short_description: Tell how a Stele cluster is, and wait until it is well
description:
  - Asks a node for the state of its cluster, of C(stele status), C(stele blob status) and C(stele node list).
  - With O(healthy) it waits until nothing is amiss, and fails with all that is when the time is over.
  - Well is a cluster whose nodes are all alive and not drained, whose tablets are all served, whose extents and
    commit logs have all their replicas, none of them damaged, and whose lock service has a leader and its voters.
options:
  stele:
    description: The program on the host.
    type: path
    default: /usr/bin/stele
  addr:
    description: Host:port of nodes to ask, between commas.
    type: str
    default: 127.0.0.1:7106
  credential:
    description: The client credential, as text.
    type: str
  healthy:
    description: Wait until the cluster is well.
    type: bool
    default: false
  nodes:
    description: Names of nodes that the cluster must have.
    type: list
    elements: str
    default: []
  except_nodes:
    description: Names of nodes that may be dead, drained or away.
    type: list
    elements: str
    default: []
  replicas:
    description: Whether there must be all replicas of everything. A cluster that has lost a host may not have the nodes for that.
    type: bool
    default: true
  settle:
    description: For how many seconds nothing must be amiss. Nodes take some time to see what another one that joins or leaves means.
    type: int
    default: 0
  timeout:
    description: Seconds to wait.
    type: int
    default: 300
author:
  - The Stele authors (@steledb)
"""

EXAMPLES = r"""
- name: Wait until the cluster is well
  steledb.stele.cluster_info:
    healthy: true
    nodes: [host1, host2, host3]
"""

RETURN = r"""
problems:
  description: What is amiss, a sentence each.
  type: list
  elements: str
  returned: always
nodes:
  description: The nodes, as C(stele node list --json) has them.
  type: list
  elements: dict
  returned: always
wanted:
  description: How many replicas an extent should have.
  type: int
  returned: always
cluster:
  description: The cluster's id.
  type: str
  returned: always
"""

import time

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.steledb.stele.plugins.module_utils.cli import COMMON, Stele, poll

# So many voters a cluster of as many nodes has at least: any one of them may fail.
VOTERS = 3


def node_problems(nodes, wanted, away):
    """Says what is amiss with the nodes as the cluster lists them."""
    problems = [f"node {w} is not in the cluster" for w in wanted if w not in away and not any(w in (n["id"], n["name"]) for n in nodes)]
    here = [n for n in nodes if n["id"] not in away and n["name"] not in away]
    for n in here:
        if n["state"] != "alive":
            problems.append(f"node {n['name']} is {n['state']}")
        if n["draining"]:
            problems.append(f'node {n["name"]} is drained: "stele node undrain {n["name"]}" takes it back')
    if not any(n["leader"] for n in nodes):
        problems.append("the lock service has no leader")
    if not any(n["master"] for n in nodes):
        problems.append("there is no master")
    voters = sum(1 for n in nodes if n["voter"] and n["state"] == "alive")
    if voters < min(VOTERS, len(here)):
        problems.append(f"{voters} of {len(here)} nodes vote in the lock service, and {min(VOTERS, len(here))} should")
    return problems


def tablet_problems(status, away, replicas):
    """Says what is amiss with the tablets, of a status."""
    problems = []
    if not status["ready"] and status["node"] not in away and status["node_id"] not in away:
        problems.append(f"node {status['node']} does not serve: {status.get('reason') or 'it does not say why'}")
    whole = status["whole"]
    problems += [f"it is not known {u}" for u in whole["unknown"]]
    if whole["unserved"]:
        problems.append(f"tablets not served: {whole['unserved']}")
    if whole["unassigned"]:
        problems.append(f"tablets on no node: {whole['unassigned']}")
    if replicas and whole["under_replicated"]:
        problems.append(f"extents with too few replicas: {whole['under_replicated']}")
    return problems


def store_problems(store, away, replicas):
    """Says what is amiss with the block store."""
    problems = []
    for s in store["nodes"]:
        if s["node"] in away or s["name"] in away:
            continue
        if s.get("error"):
            problems.append(f"the block store of node {s['name']} does not answer: {s['error']}")
            continue
        if not s["known"]:
            problems.append(f"node {s['name']} has yet to look through what it holds")
        if s["rotten"]:
            problems.append(f"damaged replicas on node {s['name']}: {s['rotten']}")
        if s.get("alarm"):
            problems.append(f"node {s['name']} says of garbage: {s['alarm']}")
        if replicas and s["logs"] and s["log_replicas"] < store["wanted"]:
            problems.append(f"the commit log of node {s['name']} is on {s['log_replicas']} of {store['wanted']} nodes")
    return problems


def main():
    module = AnsibleModule(
        argument_spec={
            **COMMON,
            "healthy": {"type": "bool", "default": False},
            "nodes": {"type": "list", "elements": "str", "default": []},
            "except_nodes": {"type": "list", "elements": "str", "default": []},
            "settle": {"type": "int", "default": 0},
            "replicas": {"type": "bool", "default": True},
        },
        supports_check_mode=True,
    )
    p, stele = module.params, Stele(module)
    seen = {"nodes": [], "cluster": "", "wanted": 0}
    well = {"since": None}

    def look():
        seen["nodes"] = stele.nodes()
        status, store = stele.status(), stele.store()
        seen.update(cluster=status["cluster"], wanted=store["wanted"])
        return (
            node_problems(seen["nodes"], p["nodes"], p["except_nodes"])
            + tablet_problems(status, p["except_nodes"], p["replicas"])
            + store_problems(store, p["except_nodes"], p["replicas"])
        )

    def lasting():
        found = look()
        if found:
            well["since"] = None
            return found
        well["since"] = well["since"] or time.monotonic()
        lasted = time.monotonic() - well["since"]
        return [] if lasted >= p["settle"] else [f"all has been well for {lasted:.0f} s only"]

    problems = poll(p["timeout"], lasting) if p["healthy"] else poll(0, look)
    if problems and p["healthy"]:
        module.fail_json(msg=f"the cluster is not well after {p['timeout']} s: {'; '.join(problems)}", problems=problems, **seen)
    module.exit_json(changed=False, problems=problems or [], **seen)


if __name__ == "__main__":
    main()
