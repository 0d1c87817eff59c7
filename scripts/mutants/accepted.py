"""Reads the accepted survivors; as a program, checks that each is of a line that exists: accepted.py ACCEPTED

Prints each entry whose file, function or line is not in the sources, and exits with 1 if there is one: after a function
was renamed or moved, its entries would accept nothing. Run it in the top folder.
"""

import os
import re
import sys

from mutant import Source

MUTATION = re.compile(r"\[(\S+) → \S+\]")


def read_accepted(name):
    """Returns the line number of each accepted mutant."""
    accepted = {}
    with open(name, encoding="utf-8") as f:
        for n, line in enumerate(f, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            mutant, separator, reason = line.partition("  ## ")
            if not separator or not reason:
                sys.exit(f"{name}:{n}: no reason")
            accepted[mutant] = n
    return accepted


class Sources:
    """The functions of Go files and their lines."""

    def __init__(self):
        self.files = {}

    def functions(self, name):
        """Returns the stripped lines of each function of a file."""
        if name not in self.files:
            functions = {}
            source = Source(name)
            for n, text in enumerate(source.lines, 1):
                functions.setdefault(source.function(n), set()).add(text.strip())
            self.files[name] = functions
        return self.files[name]

    def lacking(self, mutant):
        """Returns what of a mutant is not in the sources, or an empty string."""
        place, _, text = mutant.partition(": ")
        name, _, function = place.partition(" ")
        if not os.path.isfile(name):
            return "file"
        functions = self.functions(name)
        if function not in functions:
            return "function"
        return "" if MUTATION.sub(r"\1", text, count=1) in functions[function] else "line"


def main():
    name, sources, failed = sys.argv[1], Sources(), False
    for mutant, n in read_accepted(name).items():
        if lacking := sources.lacking(mutant):
            print(f"{name}:{n}: there is no such {lacking}: {mutant}")
            failed = True
    sys.exit(failed)


if __name__ == "__main__":
    main()
