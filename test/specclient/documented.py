"""Runs the programs of docs/rpc.md."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
COMMANDS = {"python": [sys.executable], "javascript": ["node"]}
CLIENTS = {"python": "stele.py", "javascript": "stele.mjs"}  # under which the others import them
ENDS = {"python": ".py", "javascript": ".mjs"}


def program(language, what):
    """The one program of the page in a language that has a text in it."""
    page = (HERE.parents[1] / "docs" / "rpc.md").read_text()
    blocks = re.findall(rf"^```{language}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    found = [block for block in blocks if what in block]
    assert len(found) == 1, f"docs/rpc.md has {len(found)} programs in {language} with {what!r}"
    return found[0]


class Folder:
    """A folder with the complete clients, and the packages that programs in JavaScript import."""

    def __init__(self):
        self.temporary = tempfile.TemporaryDirectory(prefix="stele-documented.")
        self.path = pathlib.Path(self.temporary.name)
        for language, name in CLIENTS.items():
            (self.path / name).write_text(program(language, "class Stele:" if language == "python" else "class Stele {"))
        (self.path / "node_modules").symlink_to(os.environ["SPECCLIENT_MODULES"])

    def close(self):
        self.temporary.cleanup()

    def run(self, language, text, **env):
        """Runs a program, and returns what it has printed, and its errors."""
        file = self.path / ("program" + ENDS[language])
        file.write_text(text)
        done = subprocess.run([*COMMANDS[language], file], env=dict(os.environ, **env), text=True, capture_output=True, timeout=120)
        return done.stdout, done.stderr
