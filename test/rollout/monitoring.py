"""Asks a Prometheus that scrapes a cluster: monitoring.py URL NODES

Exits with 1 and says why unless it scrapes so many nodes, they export each metric that an alert or the dashboard
names, each expression can be evaluated, and no alert fires.
"""

import json
import re
import sys
import time
import urllib.parse
import urllib.request

url, nodes = sys.argv[1], int(sys.argv[2])
FILES = "ansible/roles/monitoring/files/"
PATIENCE = 60  # seconds: four scrapes


def ask(path, **query):
    with urllib.request.urlopen(f"{url}/api/v1/{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
        return json.load(answer)["data"]


def expressions():
    """Yields what the dashboard asks; the alerts' expressions Prometheus evaluates itself."""
    with open(FILES + "stele-dashboard.json", encoding="utf-8") as f:
        dashboard = json.load(f)
    for panel in dashboard["panels"]:
        for target in panel.get("targets", []):
            yield panel["title"], target["expr"].replace("$cluster", "rollout").replace("$__rate_interval", "1m")


def named():
    """Returns the metrics that an alert or the dashboard names."""
    with open(FILES + "stele.rules.yml", encoding="utf-8") as f:
        text = f.read()
    text += "\n".join(e for _, e in expressions())
    return set(re.findall(r"\b(?:stele|process)_[a-z0-9_]+", text))


def problems():
    targets = [t for t in ask("targets")["activeTargets"] if t["labels"]["job"] == "stele"]
    found = [f"{t['scrapeUrl']}: {t['health']} {t['lastError']}" for t in targets if t["health"] != "up"]
    if len(targets) != nodes:
        found.append(f"{len(targets)} nodes are scraped, not {nodes}")
    exported = set(ask("label/__name__/values"))
    found += [f"no node exports {name}" for name in sorted(named() - exported)]
    rules = [rule for group in ask("rules")["groups"] for rule in group["rules"]]
    found += [f"{r['name']}: {r['health']} {r.get('lastError', '')}" for r in rules if r["health"] != "ok"]
    found += [f"{r['name']} fires" for r in rules if r["state"] == "firing"]
    if not rules:
        found.append("there are no alerts")
    return found


def main():
    end = time.monotonic() + PATIENCE
    while True:
        try:
            found = problems()
        except OSError as e:
            found = [str(e)]
        if not found:
            break
        if time.monotonic() > end:
            sys.exit("\n".join(found))
        time.sleep(2)
    for title, expression in expressions():
        try:
            ask("query", query=expression)
        except OSError as e:
            sys.exit(f"{title}: {expression}: {e}")


main()
