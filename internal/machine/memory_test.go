package machine

import (
	"os"
	"path/filepath"
	"testing"
)

func TestMemory(t *testing.T) {
	const meminfo = "MemTotal:       16000000 kB\nMemFree:  1 kB\n"
	const machine = 16_000_000 << 10
	for name, c := range map[string]struct {
		files map[string]string
		want  int64
	}{
		"no groups": {map[string]string{}, machine},
		"a unit": {map[string]string{
			"proc/self/cgroup": "1:name=systemd:/x\n0::/system.slice/stele.service\n",
			"sys/fs/cgroup/system.slice/stele.service/memory.max": "8589934592\n", "sys/fs/cgroup/system.slice/memory.max": "max\n",
		}, 8 << 30},
		"a slice": {map[string]string{
			"proc/self/cgroup": "0::/system.slice/stele.service\n",
			"sys/fs/cgroup/system.slice/stele.service/memory.max": "max\n", "sys/fs/cgroup/system.slice/memory.max": "4294967296\n",
		}, 4 << 30},
		"a container":        {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1073741824\n"}, 1 << 30},
		"more than there is": {map[string]string{"proc/self/cgroup": "0::/\n", "sys/fs/cgroup/memory.max": "1099511627776\n"}, machine},
		"above the root":     {map[string]string{"proc/self/cgroup": "0::/../../x\n", "sys/fs/cgroup/x/memory.max": "1073741824\n"}, 1 << 30},
	} {
		root := t.TempDir()
		c.files["proc/meminfo"] = meminfo
		for file, text := range c.files {
			file = filepath.Join(root, file)
			if err := os.MkdirAll(filepath.Dir(file), 0o777); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := Memory(root); got != c.want || err != nil {
			t.Errorf("%s: %d, %v; want %d", name, got, err, c.want)
		}
	}
	if _, err := Memory(t.TempDir()); err == nil {
		t.Error("a machine without /proc has memory")
	}
}
