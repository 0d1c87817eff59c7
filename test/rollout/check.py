"""Looks at a cluster from outside: check.py STELE ADDRESSES VERSION NODE…

Exits with 1 and says why unless the cluster has these nodes, each runs the version, and all is well.
"""

import json
import subprocess
import sys
import time

stele, addresses, version, *names = sys.argv[1:]
PATIENCE = 30  # seconds: what a playbook has waited for is so already, but a load goes on


def ask(*command):
    done = subprocess.run([stele, "--addr", addresses, *command, "--json", "--timeout", "15s"], capture_output=True, text=True)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()]


def problems():
    found = []
    code, nodes = ask("node", "list")
    if code or sorted(n["name"] for n in nodes) != sorted(names):
        found.append(f"nodes: {[n['name'] for n in nodes]}, exit code {code}")
    found += [f"{n['name']}: {n['state']}, {n['version']}, draining {n['draining']}" for n in nodes
              if n["state"] != "alive" or n["version"] != version or n["draining"]]
    if sum(n["voter"] for n in nodes) < 3:
        found.append("fewer than three voters")
    code, status = ask("status")
    whole = status[0]["whole"] if status else {}
    if code or whole.get("unserved") != 0 or whole.get("unassigned") != 0 or whole.get("under_replicated") != 0 or whole.get("unknown"):
        found.append(f"status, exit code {code}: {whole}")
    code, store = ask("blob", "status")
    if code or not store:
        return found + [f"blob status: exit code {code}"]
    for s in store[0]["nodes"]:
        if s.get("error") or not s["known"] or s["under_replicated"] or s["rotten"] or s["logs"] and s["log_replicas"] < store[0]["wanted"]:
            found.append(f"blob status: {s}")
    return found


end = time.monotonic() + PATIENCE
while found := problems():
    if time.monotonic() > end:
        sys.exit("\n".join(found))
    time.sleep(1)
