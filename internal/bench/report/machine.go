package report

import (
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Machine is the machine of the client.
type Machine struct {
	OS          string  `json:"os"`
	Arch        string  `json:"arch"`
	Kernel      string  `json:"kernel,omitempty"`
	CPU         string  `json:"cpu,omitempty"`
	CPUs        int     `json:"cpus"`
	MemoryBytes int64   `json:"memory_bytes,omitempty"`
	Load        float64 `json:"load"` // average of the last minute
}

// ThisMachine describes the machine of this process. Unknown fields are left empty.
func ThisMachine() Machine {
	m := Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU()}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		m.Kernel = string(bytes.TrimRight(name.Release[:], "\x00"))
	}
	m.CPU = fieldOf("/proc/cpuinfo", "model name")
	if kilobytes, _, ok := strings.Cut(fieldOf("/proc/meminfo", "MemTotal"), " "); ok {
		n, _ := strconv.ParseInt(kilobytes, 10, 64)
		m.MemoryBytes = n << 10
	}
	if b, err := os.ReadFile("/proc/loadavg"); err == nil {
		first, _, _ := strings.Cut(string(b), " ")
		m.Load, _ = strconv.ParseFloat(first, 64)
	}
	return m
}

// fieldOf returns the value of the first line "name: value" of a file.
func fieldOf(path, name string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
