"""Runs the tests of one package on its mutants: try.py GO STATE FOLDER RESULT.json LINE RUN SAMPLE SEED

RESULT.json is gremlins' list of the package's mutants, and gets the status and the name of each. Mutants of code that the tests do not
execute are not tried. LINE restricts the run to one line of the file unless it is empty, and RUN selects tests. If SAMPLE
is not 0, just that many mutants that compile are tried, those that come first in the random order of SEED. STATE is a
folder for temporary files, with the file `limit`: the seconds after which the tests of a mutant are stopped. A mutant that
takes that long counts as killed.
"""

import json
import os
import resource
import signal
import subprocess
import sys

from mutant import Source

MEMORY = 8 << 30  # bytes of address space: a mutant may allocate without end


def bound():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))


class Trial:
    def __init__(self, go, state, folder, run):
        self.go, self.state, self.folder, self.run = go, state, folder, run
        self.environment = os.environ | {"TMPDIR": f"{state}/t"}
        os.makedirs(f"{state}/t", exist_ok=True)
        with open(f"{state}/limit", encoding="utf-8") as f:
            self.limit = int(f.read())

    def status(self, source, mutation):
        """Returns KILLED, LIVED or NOT VIABLE, which is a mutant that does not compile."""
        if not source.compiles(mutation):
            return "NOT VIABLE"
        mutated, overlay, binary = f"{self.state}/mutated.go", f"{self.state}/overlay.json", f"{self.state}/test"
        with open(mutated, "w", encoding="utf-8") as f:
            f.write(source.mutate(mutation))
        with open(overlay, "w", encoding="utf-8") as f:
            json.dump({"Replace": {os.path.abspath(source.name): mutated}}, f)
        build = [self.go, "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", binary, f"./{self.folder}"]
        if subprocess.run(build, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode != 0:
            return "NOT VIABLE"
        test = [binary, "-test.short", "-test.failfast", "-test.paniconexit0", "-test.count=1", "-test.run", self.run]
        none = subprocess.DEVNULL
        options = {"stdin": none, "stdout": none, "stderr": none, "start_new_session": True, "preexec_fn": bound}
        process = subprocess.Popen(test, cwd=self.folder, env=self.environment, **options)
        try:
            return "LIVED" if process.wait(self.limit) == 0 else "KILLED"
        except subprocess.TimeoutExpired:
            return "KILLED"
        finally:
            try:
                os.killpg(process.pid, signal.SIGKILL)  # also what the tests started
            except ProcessLookupError:
                pass
            process.wait()


def main():
    go, state, folder, result, line, run, sample, seed = sys.argv[1:]
    with open(result, encoding="utf-8") as f:
        files = json.load(f)
    mutants = []
    for file in files["files"]:
        source = Source(f"{folder}/{file['file_name']}")
        file["source"] = source.name
        file["mutations"] = [m for m in file["mutations"] if not line or m["line"] == int(line)]
        for mutation in file["mutations"]:
            mutation["mutant"] = source.describe(mutation)
            if mutation["status"] == "RUNNABLE":
                mutation["status"] = "NOT TRIED"
                mutants.append((source.rank(mutation, seed), source, mutation))
    mutants.sort(key=lambda m: m[0])
    trial, tried = Trial(go, state, folder, run), 0
    for _, source, mutation in mutants:
        if tried == int(sample) > 0:
            break
        mutation["status"] = trial.status(source, mutation)
        tried += mutation["status"] != "NOT VIABLE"
        if mutation["status"] != "NOT VIABLE":
            print(f"{mutation['status']:6} {mutation['line']:4} {mutation['mutant']}", flush=True)
    with open(result, "w", encoding="utf-8") as f:
        json.dump(files, f)


main()
