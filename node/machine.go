package node

import (
	"errors"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// machineMemory returns the memory of the machine, or of the control groups that the
// process runs in if that is less, in bytes. root is the root folder.
func machineMemory(root string) (int64, error) {
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
	// A unit's MemoryMax= is the limit of its group, a slice's that of the one around it, and
	// in a container the group is the root that it sees.
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

// controlGroup returns the path of the control group that the process is in, "/" if that
// is not known.
func controlGroup(root string) string {
	groups, err := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	if err != nil {
		return "/"
	}
	for line := range strings.Lines(string(groups)) {
		if group, ok := strings.CutPrefix(line, "0::"); ok { // the others are of version 1
			return path.Join("/", strings.TrimSpace(group))
		}
	}
	return "/"
}
