// Package patch builds programs for the simulated machine: with an overlay of Go's standard library
// in which a few places of the runtime are changed. The changes are edits of the text of the local
// toolchain, and a new file, process.go.txt. If the text is not as expected, because the toolchain
// is of another release, the build fails and names the place.
//
// # Goroutines
//
// The package starts none.
package patch

import (
	"context"
	_ "embed" // the runtime's new file
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

//go:embed process.go.txt
var processSource string

// An edit replaces text that must occur exactly once in a file of the standard library.
type edit struct{ file, old, new string }

var edits = []edit{
	// One thread runs everything, and a goroutine runs until it blocks.
	// The main goroutine is not locked to its thread during initialization: then there is one thread, whose allocations do not depend
	// on how fast the system wakes another.
	{"runtime/proc.go", "\tlockOSThread()\n\n\tif mp != &m0 {\n", "\tif mp != &m0 {\n"},
	{"runtime/proc.go", "\tneedUnlock := true\n", "\tneedUnlock := false\n"},
	{"runtime/proc.go", "\tneedUnlock = false\n\tunlockOSThread()\n", "\tneedUnlock = false\n"},
	{"runtime/proc.go", `const haveSysmon = GOARCH != "wasm"`, `const haveSysmon = false`},
	// The global queue is looked at after 61 goroutines of processes; goroutines of the runtime, as of a collection, do not count.
	{"runtime/proc.go", "\tif pp.schedtick%61 == 0 && !sched.runq.empty() {\n", "\tif simSwitched%61 == 0 && !sched.runq.empty() {\n"},

	{"runtime/proc.go", "\tif procresize(procs) != nil {\n\t\tthrow(\"unknown runnable goroutine during bootstrap\")\n", "\tprocs = 1\n\tsched.customGOMAXPROCS = true\n\tdebug.gcstoptheworld = 2\n\tif procresize(procs) != nil {\n\t\tthrow(\"unknown runnable goroutine during bootstrap\")\n"},
	{"runtime/debug.go", "\treturn int(numCPUStartup)\n", "\treturn 2\n"},

	// Garbage is collected only when process 0 asks for it, while nothing else runs. The stacks of
	// killed processes keep nothing alive.
	{"runtime/mgcpacer.go", "\tp := gogetenv(\"GOGC\")\n", "\tp := \"off\"\n"},
	{"runtime/mgcmark.go", "\t\t\tstopped := suspendG(gp)\n\t\t\tif stopped.dead {\n", "\t\t\tif simTable[gp.simProcess].state == simKilled {\n\t\t\t\tgp.gcscandone = true\n\t\t\t\treturn\n\t\t\t}\n\t\t\tstopped := suspendG(gp)\n\t\t\tif stopped.dead {\n"},

	// Most goroutines need more than 2 KiB of stack, and growing it takes a twentieth of the time.
	{"runtime/stack.go", "var startingStackSize uint32 = fixedStack\n", "var startingStackSize uint32 = 4 * fixedStack\n"},

	// Processes.
	{"runtime/runtime2.go", "\tcoroarg *coro // argument during coroutine transfers\n\tbubble  *synctestBubble\n",
		"\tcoroarg *coro // argument during coroutine transfers\n\tbubble  *synctestBubble\n\tsimProcess uint32\n"},
	{"runtime/proc.go", "\tnewg.parentGoid = callergp.goid\n", "\tnewg.parentGoid = callergp.goid\n\tnewg.simProcess = callergp.simProcess\n"},
	{"runtime/proc.go", "\tif sched.disable.user && !schedEnabled(gp) {\n\t\t// Scheduling of this goroutine is disabled. Put it on\n", "\tsimCharge(gp.simProcess)\n\tif gp.simProcess != 0 && simHold(gp) {\n\t\tgoto top\n\t}\n\n\tif sched.disable.user && !schedEnabled(gp) {\n\t\t// Scheduling of this goroutine is disabled. Put it on\n"},
	{"runtime/time.go", "\tisFake bool         // timer is using fake time; immutable; can be read without lock\n",
		"\tisFake bool         // timer is using fake time; immutable; can be read without lock\n\tsimProcess uint32\n"},
	{"runtime/time.go", "\tt.timer.init(nil, nil)\n\tt.trace(\"new\")\n", "\tt.timer.init(nil, nil)\n\tt.simProcess = getg().simProcess\n\tt.trace(\"new\")\n"},
	{"runtime/time.go", "\tf(arg, seq, delay)\n\n\tif !async && t.isChan {\n",
		"\tif simTable[t.simProcess].state != simKilled {\n\t\tsimGp := getg()\n\t\tsimSaved := simGp.simProcess\n\t\tsimGp.simProcess = t.simProcess\n\t\tf(arg, seq, delay)\n\t\tsimGp.simProcess = simSaved\n\t}\n\n\tif !async && t.isChan {\n"},

	// Time: it jumps when nothing can run, and each process has its own clocks.
	{"runtime/proc.go", "\t// We have nothing to do.\n\t//\n\t// If we're in the GC mark phase,", "\tif gcBlackenEnabled == 0 && gomaxprocs == 1 && simJump(pollUntil) {\n\t\tif mp.spinning {\n\t\t\tmp.spinning = false\n\t\t\tsched.nmspinning.Add(-1)\n\t\t}\n\t\tgoto top\n\t}\n\n\t// We have nothing to do.\n\t//\n\t// If we're in the GC mark phase,"},
	{"runtime/time.go", "\t\treturn sec, nsec, 0\n\t}\n\treturn time_now()\n", "\t\treturn sec, nsec, 0\n\t}\n\treturn simNow()\n"},
	{"runtime/time.go", "\t\treturn gp.bubble.now\n\t}\n\treturn nanotime()\n", "\t\treturn gp.bubble.now\n\t}\n\treturn simNano()\n"},
	{"runtime/time.go", "\t\tnow = bubble.now\n\t} else {\n\t\tnow = nanotime()\n\t}\n\twhen := now + ns\n", "\t\tnow = bubble.now\n\t} else {\n\t\tnow = nanotime()\n\t\tns = simPeriod(ns)\n\t}\n\twhen := now + ns\n"},
	{"runtime/time.go", "\tt.modify(when, period, f, arg, 0)\n\tt.init = true\n", "\tt.modify(simWhen(when), simPeriod(period), f, arg, 0)\n\tt.init = true\n"},
	{"runtime/time.go", "\treturn t.reset(when, period)\n}\n\n// Go runtime.\n", "\treturn t.reset(simWhen(when), simPeriod(period))\n}\n\n// Go runtime.\n"},
	{"runtime/time_fake.go", "\tif !(fd == 1 || fd == 2) {\n", "\tif true {\n"},
	{"syscall/time_fake.go", "const faketime = true", "const faketime = false"},

	// Pools keep what they have at a collection, and no memory is returned to the system meanwhile: the times of both depend on the
	// runtime's own memory.
	{"sync/pool.go", "func poolCleanup() {\n", "func poolCleanup() {\n\tif true {\n\t\treturn\n\t}\n"},
	{"runtime/mgcscavenge.go", "\tc <- 1\n\tscavenger.park()\n", "\tc <- 1\n\tfor {\n\t\tscavenger.park()\n\t}\n"},

	// The name of the host, for example in certificates.
	{"os/sys.go", "\treturn hostname()\n", "\treturn \"machine\", nil\n"},

	// Maps whose keys are addresses: a large one must not be iterated, since the order would depend on where the system and the
	// collector put things. Contexts cancel their children in the order in which they were made.
	{"internal/runtime/maps/table.go", "\tit.typ = typ\n\n\tif m == nil || m.used == 0 {\n\t\treturn\n\t}\n", "\tit.typ = typ\n\n\tif m == nil || m.used == 0 {\n\t\treturn\n\t}\n\tif m.dirLen > 0 {\n\t\tswitch typ.Key.Kind() {\n\t\tcase abi.Pointer, abi.Chan, abi.UnsafePointer, abi.Interface:\n\t\t\tfatal(\"simulation: iteration over a large map whose keys are addresses\")\n\t\t}\n\t}\n"},
	{"context/context.go", "\tchildren map[canceler]struct{} // set to nil by the first cancel call\n", "\tchildren map[canceler]int // set to nil by the first cancel call\n\tordered  []canceler       // the children; nil for one that was removed\n"},
	{"context/context.go", "\t\t\t\tp.children = make(map[canceler]struct{})\n\t\t\t}\n\t\t\tp.children[child] = struct{}{}\n", "\t\t\t\tp.children = make(map[canceler]int)\n\t\t\t}\n\t\t\tp.children[child] = len(p.ordered)\n\t\t\tp.ordered = append(p.ordered, child)\n"},
	{"context/context.go", "\tif p.children != nil {\n\t\tdelete(p.children, child)\n\t}\n", "\tif i, ok := p.children[child]; ok {\n\t\tdelete(p.children, child)\n\t\tp.ordered[i] = nil\n\t\tif len(p.ordered) > 2*len(p.children)+8 {\n\t\t\tleft := p.ordered[:0]\n\t\t\tfor _, c := range p.ordered {\n\t\t\t\tif c != nil {\n\t\t\t\t\tp.children[c] = len(left)\n\t\t\t\t\tleft = append(left, c)\n\t\t\t\t}\n\t\t\t}\n\t\t\tclear(p.ordered[len(left):])\n\t\t\tp.ordered = left\n\t\t}\n\t}\n"},
	{"context/context.go", "\tfor child := range c.children {\n", "\tordered := c.ordered\n\tc.ordered = nil\n\tfor _, child := range ordered {\n\t\tif child == nil {\n\t\t\tcontinue\n\t\t}\n"},

	// Randomness.
	{"runtime/rand.go", "\tmp := getg().m\n\tc := &mp.chacha8\n\tfor {\n", "\tif true {\n\t\treturn simRand()\n\t}\n\tmp := getg().m\n\tc := &mp.chacha8\n\tfor {\n"},
	// Callers of cheaprand that decide what the program does. Its others depend on the thread.
	{"runtime/select.go", "\t\tj := cheaprandn(uint32(norder + 1))\n", "\t\tj := randn(uint32(norder + 1))\n"},
	{"runtime/sema.go", "\ts.ticket = cheaprand() | 1\n", "\ts.ticket = rand32() | 1\n"},
	// Timers that expire at the same time run in a random order, not in that of the heap: a select puts the timers of its channels into
	// the heap in the order of the channels' addresses.
	{"runtime/time.go", "\tt.f = f\n\tt.arg = arg\n}\n\n// A timers is", "\tt.f = f\n\tt.arg = arg\n\tt.rand = rand32()\n}\n\n// A timers is"},
	// Hash keys and the base of the heap.
	{"runtime/rand.go", "\tglobalRand.state.Init(*seed)\n", "\t*seed = [32]byte{1}\n\tglobalRand.state.Init(*seed)\n"},
	{"crypto/internal/sysrand/rand.go", "func fatal(string)\n", "func fatal(string)\n\n//go:linkname runtimeRand runtime.rand\nfunc runtimeRand() uint64\n"},
	{"crypto/internal/sysrand/rand.go", "func Read(b []byte) {\n", "func Read(b []byte) {\n\tif true {\n\t\tfor i := range b {\n\t\t\tb[i] = byte(runtimeRand() >> 56)\n\t\t}\n\t\treturn\n\t}\n"},
}

// Tag is the build tag of programs for the simulated machine. It is Go's own tag for virtual time.
const Tag = "faketime"

// Build builds a package as a program for the simulated machine, with further arguments of go build.
// It writes what it needs to dir, which must exist. The error has the output of the compiler.
func Build(ctx context.Context, dir, pkg, program string, tags []string, args ...string) error {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("find the Go toolchain: %w", err)
	}
	overlay, err := write(strings.TrimSpace(string(out)), dir)
	if err != nil {
		return err
	}
	all := append([]string{"build", "-overlay", overlay, "-tags", strings.Join(append(tags, Tag), ","), "-o", program}, args...)
	cmd := exec.CommandContext(ctx, "go", append(all, pkg)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s with the patched runtime: %w\n%s", pkg, err, out)
	}
	return nil
}

// write writes the changed files and overlay.json, for go build -overlay, to dir.
func write(goroot, dir string) (overlay string, err error) {
	texts := map[string]string{"runtime/sim_process.go": processSource}
	for _, e := range edits {
		if _, ok := texts[e.file]; !ok {
			b, err := os.ReadFile(filepath.Join(goroot, "src", e.file))
			if err != nil {
				return "", fmt.Errorf("read the Go toolchain: %w", err)
			}
			texts[e.file] = string(b)
		}
		if n := strings.Count(texts[e.file], e.old); n != 1 {
			return "", fmt.Errorf("%s of the Go toolchain %s has this text %d times, must be once; the simulation was written for Go 1.26:\n%s", e.file, goroot, n, e.old)
		}
		texts[e.file] = strings.Replace(texts[e.file], e.old, e.new, 1)
	}
	replace := map[string]string{}
	for file, text := range texts {
		name := filepath.Join(dir, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			return "", fmt.Errorf("write the overlay: %w", err)
		}
		replace[filepath.Join(goroot, "src", file)] = name
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	overlay = filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, b, 0o600)
}
