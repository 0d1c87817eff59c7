// Package machine reads the size of the machine that the process runs on.
package machine

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory returns the memory of the machine, or of the process's control groups if that is less, in bytes. root is the root directory.
func Memory(root string) (int64, error) {
	info, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return 0, err
	}
	total := int64(0)
	for line := range strings.Lines(string(info)) {
		if rest, ok := strings.CutPrefix(line, "MemTotal:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				return 0, err
			}
			total = kib << 10
		}
	}
	if total == 0 {
		return 0, errors.New("no MemTotal in /proc/meminfo")
	}
	// A unit's MemoryMax= limits its control group, and a slice's the enclosing one. In a container the root that the process sees is the group.
	for group := controlGroup(root); ; group = path.Dir(group) {
		limit, err := os.ReadFile(filepath.Join(root, "sys/fs/cgroup", group, "memory.max"))
		if err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(limit)), 10, 64); err == nil {
				total = min(total, n)
			}
		}
		if group == "/" {
			return total, nil
		}
	}
}

// controlGroup returns the path of the process's control group, or "/" if it is unknown.
func controlGroup(root string) string {
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return "/"
	}
	for line := range strings.Lines(string(groups)) {
		if group, ok := strings.CutPrefix(line, "0::"); ok { // other lines are of version 1
			return path.Join("/", strings.TrimSpace(group))
		}
	}
	return "/"
}
