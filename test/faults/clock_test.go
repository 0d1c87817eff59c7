package faults

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// clockEnv names the file with the offset of a node's wall clock in seconds: eight bytes in the
// machine's byte order. It does not affect monotonic time, as setting a clock does not.
const clockEnv = "FAULTS_CLOCK"

const (
	clockSource = `package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

func wallShift() int64 { return atomic.LoadInt64(shift) }

var shift = func() *int64 {
	name, ok := syscall.Getenv("` + clockEnv + `")
	if !ok {
		return new(int64)
	}
	fd, err := syscall.Open(name, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic("` + clockEnv + `: " + err.Error())
	}
	b, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("` + clockEnv + `: " + err.Error())
	}
	return (*int64)(unsafe.Pointer(&b[0]))
}()
`
	clockPlace = "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n"
	clockShift = "\tsec += wallShift()\n"
)

// overlay creates a file for "go build -overlay" that adds the offset in clockEnv's file to the
// program's wall clock, in all of its packages.
func overlay(dir string) (string, error) {
	out, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("find Go's own sources: %w", err)
	}
	sources := filepath.Join(strings.TrimSpace(string(out)), "src", "time")
	now, err := os.ReadFile(filepath.Join(sources, "time.go"))
	if err != nil {
		return "", err
	}
	text := string(now)
	if strings.Count(text, clockPlace) != 1 {
		return "", fmt.Errorf("%s/time.go has an unexpected clock function", sources)
	}
	text = strings.Replace(text, clockPlace, clockPlace+clockShift, 1)
	replace := map[string]string{}
	for name, text := range map[string]string{"time.go": text, "wallshift.go": clockSource} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(sources, name)] = file
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, "overlay.json")
	return file, os.WriteFile(file, b, 0o600)
}

// setClock sets the offset of the node's wall clock.
func (n *node) setClock(off time.Duration) {
	n.c.t.Helper()
	f, err := os.OpenFile(n.clockFile(), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		n.c.t.Fatal(err)
	}
	defer f.Close()
	b := binary.NativeEndian.AppendUint64(nil, uint64(int64(off/time.Second)))
	if _, err := f.WriteAt(b, 0); err != nil { // in place: the process has it mapped
		n.c.t.Fatal(err)
	}
}

func (n *node) clockFile() string { return filepath.Join(n.c.dir, n.String()+".clock") }
