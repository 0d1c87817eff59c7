"""Prints what became of the mutants: report.py MIN ACCEPTED TABLE RESULT.json=FOLDER…

A survivor is named by its file, its function and the line with the mutation, as in

    security/token/token.go Parse: if len(text) [> → >=] limit {

ACCEPTED has such lines, each followed by `  ## ` and the reason why the survivor is right. TABLE is a file that gets the
table in Markdown, besides standard output. If not all mutants of a package were tried, the table has the 95% confidence
interval of the percentage (Wilson's). Exits with 1 if a package has less than MIN percent, or if ACCEPTED has a line of a
measured file that is no mutant of it.
"""

import json
import math
import sys

from accepted import read_accepted


def interval(killed, tried):
    """Returns the bounds of Wilson's 95% confidence interval, in percent."""
    if tried == 0:
        return 0.0, 100.0
    z, p = 1.96, killed / tried
    middle = p + z * z / (2 * tried)
    half = z * math.sqrt(p * (1 - p) / tried + z * z / (4 * tried * tried))
    return (100 * (middle + sign * half) / (1 + z * z / tried) for sign in (-1, 1))


def main():
    least, accepted_name, table_name = float(sys.argv[1]), sys.argv[2], sys.argv[3]
    accepted = read_accepted(accepted_name)
    rows, failed, known, measured = [], False, set(), set()
    for argument in sys.argv[4:]:
        result, _, package = argument.partition("=")
        with open(result, encoding="utf-8") as f:
            files = json.load(f)["files"]
        killed = survived = pardoned = uncovered = untried = 0
        for file in files:
            if ":" not in package:
                measured.add(file["source"])
            for mutation in file["mutations"]:
                status, mutant = mutation["status"], mutation["mutant"]
                known.add(mutant)
                killed += status == "KILLED"
                uncovered += status == "NOT COVERED"
                untried += status == "NOT TRIED"
                pardoned += status == "LIVED" and mutant in accepted
                if status == "LIVED" and mutant not in accepted:
                    survived += 1
                    print(f"survived {file['source']}:{mutation['line']}: {mutant}")
        tried = killed + survived
        percent = f"{100 * killed / tried:.1f}" if tried else "-"
        failed |= tried > 0 and 100 * killed / tried < least
        if untried:
            low, high = interval(killed, tried)
            percent += f" ({low:.0f}–{high:.0f})"
        rows.append((package, tried + pardoned, killed, survived, pardoned, untried, uncovered, percent))
    for mutant, n in accepted.items():
        if mutant.partition(" ")[0] in measured and mutant not in known:
            print(f"{accepted_name}:{n}: there is no such mutant: {mutant}")
            failed = True
    header = ("package", "tried", "killed", "survived", "accepted", "not tried", "not executed", "percent killed")
    lines = [f"| {' | '.join(map(str, row))} |" for row in (header, ("---",) * len(header), *rows)]
    print("\n".join(lines))
    with open(table_name, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")
    sys.exit(failed)


main()
