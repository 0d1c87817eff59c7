"""Prints what became of the mutants: report.py MIN ACCEPTED TABLE RESULT.json=FOLDER…

A survivor is named by its file, its function and the line with the mutation, as in

    security/token/token.go Parse: if len(text) [> → >=] limit {

ACCEPTED has such lines, each followed by `  ## ` and the reason why the survivor is right. TABLE is a file that gets the
table in Markdown, besides standard output. Exits with 1 if a package has less than MIN percent, or if ACCEPTED has a line
of a measured file that is no mutant of it.
"""

import json
import re
import sys

MUTATIONS = {
    "ARITHMETIC_BASE": {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*"},
    "CONDITIONALS_BOUNDARY": {">=": ">", ">": ">=", "<=": "<", "<": "<="},
    "CONDITIONALS_NEGATION": {"==": "!=", "!=": "==", ">=": "<", ">": "<=", "<=": ">", "<": ">="},
    "INCREMENT_DECREMENT": {"++": "--", "--": "++"},
    "INVERT_ASSIGNMENTS": {"+=": "-=", "-=": "+=", "*=": "/=", "/=": "*=", "%=": "%="},
    "INVERT_BITWISE": {"&": "|", "|": "&", "^": "&", "&^": "&", "<<": ">>", ">>": "<<"},
    "INVERT_LOGICAL": {"&&": "||", "||": "&&"},
    "INVERT_LOOPCTRL": {"break": "continue", "continue": "break"},
}
FUNCTION = re.compile(r"func (?:\(\w+ (\*?\w+)(?:\[[^\]]*\])?\) )?(\w+)")


class Source:
    def __init__(self, name):
        self.name = name
        with open(name, encoding="utf-8") as f:
            self.lines = f.read().split("\n")

    def function(self, line):
        for text in reversed(self.lines[:line]):
            if match := FUNCTION.match(text):
                return ".".join(filter(None, (match[1], match[2]))).lstrip("*")
        return "-"

    def describe(self, mutation):
        """Returns the line that names a mutant in ACCEPTED."""
        raw = self.lines[mutation["line"] - 1].encode()
        before, after = raw[: mutation["column"] - 1].decode(), raw[mutation["column"] - 1 :].decode()
        tokens = MUTATIONS[mutation["type"]]
        token = next(t for t in sorted(tokens, key=len, reverse=True) if after.startswith(t))
        text = f"{before}[{token} → {tokens[token]}]{after[len(token):]}".strip()
        return f"{self.name} {self.function(mutation['line'])}: {text}"


def main():
    least, accepted_name, table_name = float(sys.argv[1]), sys.argv[2], sys.argv[3]
    accepted = {}
    with open(accepted_name, encoding="utf-8") as f:
        for n, line in enumerate(f, 1):
            line = line.strip()
            if not line or line.startswith("#"):
                continue
            mutant, separator, reason = line.partition("  ## ")
            if not separator or not reason:
                sys.exit(f"{accepted_name}:{n}: no reason")
            accepted[mutant] = n
    rows, failed, known, measured = [], False, set(), set()
    for argument in sys.argv[4:]:
        result, _, package = argument.partition("=")
        with open(result, encoding="utf-8") as f:
            files = json.load(f)["files"]
        killed = survived = pardoned = uncovered = 0
        folder = package.removesuffix(".go").rpartition("/")[0] if package.endswith(".go") else package
        for file in files:
            source = Source(f"{folder}/{file['file_name']}")
            measured.add(source.name)
            for mutation in file["mutations"]:
                status = mutation["status"]
                name = source.describe(mutation)
                known.add(name)
                if status in ("KILLED", "TIMED OUT"):
                    killed += 1
                elif status == "NOT COVERED":
                    uncovered += 1
                elif status == "LIVED" and name in accepted:
                    pardoned += 1
                elif status == "LIVED":
                    survived += 1
                    print(f"survived {source.name}:{mutation['line']}: {name}")
        percent = 100 * killed / max(killed + survived, 1)
        failed |= percent < least
        rows.append((package, killed + survived + pardoned, killed, survived, pardoned, uncovered, f"{percent:.1f}"))
    for mutant, n in accepted.items():
        if mutant.partition(" ")[0] in measured and mutant not in known:
            print(f"{accepted_name}:{n}: there is no such mutant: {mutant}")
            failed = True
    header = ("package", "mutants", "killed", "survived", "accepted", "not executed", "percent")
    lines = [f"| {' | '.join(map(str, row))} |" for row in (header, ("---",) * len(header), *rows)]
    print("\n".join(lines))
    with open(table_name, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    sys.exit(failed)


main()
