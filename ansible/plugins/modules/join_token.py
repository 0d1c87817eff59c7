#!/usr/bin/python
# Copyright 2026 The Stele authors. Licensed under the Apache License 2.0.
"""Ansible module: a token by which hosts join a cluster."""

from __future__ import annotations

DOCUMENTATION = r"""
module: join_token
short_description: Make a token by which hosts join a Stele cluster
description:
  - Has the cluster make a token, which is told once. Use it with C(no_log).
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
    description: The client credential of an admin, as text.
    type: str
    required: true
  ttl:
    description: For how long the token is good.
    type: str
    default: 1h
  uses:
    description: How many hosts may join with it.
    type: int
    default: 1
  timeout:
    description: Seconds to wait.
    type: int
    default: 60
author:
  - The Stele authors (@steledb)
"""

EXAMPLES = r"""
- name: Make a token
  steledb.stele.join_token:
    credential: "{{ lookup('ansible.builtin.file', 'stele-admin.pem', rstrip=false) }}"
    uses: 3
  register: made
  no_log: true
"""

RETURN = r"""
token:
  description: The token. It is a secret.
  type: str
  returned: always
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.steledb.stele.plugins.module_utils.cli import COMMON, Stele, poll


def main():
    module = AnsibleModule(
        argument_spec={
            **COMMON,
            "credential": {"type": "str", "required": True, "no_log": True},
            "timeout": {"type": "int", "default": 60},
            "ttl": {"type": "str", "default": "1h"},
            "uses": {"type": "int", "default": 1},
        },
    )
    p, stele, made = module.params, Stele(module), {}

    def ask():
        made.update(stele.call("token", "create", "--ttl", p["ttl"], "--uses", str(p["uses"])))

    why = poll(p["timeout"], ask)
    if why:
        module.fail_json(msg="; ".join(why))
    module.exit_json(changed=True, token=made["token"])


if __name__ == "__main__":
    main()
