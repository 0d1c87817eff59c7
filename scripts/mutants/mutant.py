"""The mutants that gremlins lists: how they are named, and their source text."""

import hashlib
import re

MUTATIONS = {
    "ARITHMETIC_BASE": {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"},
    "CONDITIONALS_BOUNDARY": {">=": ">", ">": ">=", "<=": "<", "<": "<="},
    "CONDITIONALS_NEGATION": {"==": "!=", "!=": "==", ">=": "<", ">": "<=", "<=": ">", "<": ">="},
    "INCREMENT_DECREMENT": {"++": "--", "--": "++"},
    "INVERT_ASSIGNMENTS": {"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "%=": "*="},
    "INVERT_BITWISE": {"&": "|", "|": "&", "^": "&", "&^": "&", "<<": ">>", ">>": "<<"},
    "INVERT_LOGICAL": {"&&": "||", "||": "&&"},
    "INVERT_LOOPCTRL": {"break": "continue", "continue": "break"},
}
UNARY = re.compile(r"(^|[^\w)\]])$")  # what is before & in gofmt's form, if it takes an address
FUNCTION = re.compile(r"func (?:\(\w+ (\*?\w+)(?:\[[^\]]*\])?\) )?(\w+)")


class Source:
    """A Go file with mutations, each a dict with line, column, type and status."""

    def __init__(self, name):
        self.name = name
        with open(name, encoding="utf-8") as f:
            self.lines = f.read().split("\n")

    def split(self, mutation):
        """Returns the line before the mutated operator, the operator, its replacement, and the line after it."""
        raw = self.lines[mutation["line"] - 1].encode()
        before, after = raw[: mutation["column"] - 1].decode(), raw[mutation["column"] - 1 :].decode()
        tokens = MUTATIONS[mutation["type"]]
        token = next(t for t in sorted(tokens, key=len, reverse=True) if after.startswith(t))
        return before, token, tokens[token], after[len(token) :]

    def function(self, line):
        for text in reversed(self.lines[:line]):
            if match := FUNCTION.match(text):
                return ".".join(filter(None, (match[1], match[2]))).lstrip("*")
        return "-"

    def describe(self, mutation):
        """Returns the line that names a mutant in the file of accepted survivors."""
        before, token, replacement, after = self.split(mutation)
        return f"{self.name} {self.function(mutation['line'])}: {f'{before}[{token} → {replacement}]{after}'.strip()}"

    def compiles(self, mutation):
        """Reports whether a mutant may compile, which for most of those that do not is quicker than building them."""
        before, token, _, after = self.split(mutation)
        if token == "&":
            return after.startswith(" ") or not UNARY.search(before)
        return token != "+" or not (before.rstrip().endswith(('"', "`")) or after.lstrip().startswith(('"', "`")))

    def mutate(self, mutation):
        """Returns the text of the file with the mutation."""
        before, _, replacement, after = self.split(mutation)
        at = mutation["line"]
        return "\n".join([*self.lines[: at - 1], before + replacement + after, *self.lines[at:]])

    def rank(self, mutation, seed):
        """Returns the place of a mutant in the random order of a seed, which no other mutant influences."""
        key = f"{seed} {self.name}:{mutation['line']}:{mutation['column']} {mutation['type']}"
        return hashlib.sha256(key.encode()).digest()
