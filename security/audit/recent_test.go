package audit

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/steledb/stele/internal/vfs"
)

// TestRecent: the newest lines come first, over a rotation too, each whole.
func TestRecent(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	l := open(t, fs, nil)
	defer l.Close()
	if got, err := l.Recent(Actions, 10); err != nil || len(got) != 0 {
		t.Errorf("an empty log: %q, %v", got, err)
	}
	const n = 2000
	for i := range n {
		if err := l.Action(drop("t" + strconv.Itoa(i))); err != nil {
			t.Fatal(err)
		}
	}
	if _, _, err := fs.Stat("/audit/audit.log.1"); err != nil {
		t.Fatalf("the log was not rotated: %v", err)
	}
	got, err := l.Recent(Actions, 300)
	if err != nil || len(got) != 300 {
		t.Fatalf("%d lines, %v", len(got), err)
	}
	for i, text := range got {
		var x line
		if err := json.Unmarshal([]byte(text), &x); err != nil || x.On != "table t"+strconv.Itoa(n-1-i) {
			t.Fatalf("line %d: %s, %v", i, text, err)
		}
	}
	if got, err := l.Recent(TableActions, 10); err != nil || len(got) != 0 {
		t.Errorf("%q, %v", got, err)
	}
	for _, name := range []string{"", "../ca.key", "audit.log"} {
		if _, err := l.Recent(name, 10); err == nil || !strings.Contains(err.Error(), "no audit log") {
			t.Errorf("%q: %v", name, err)
		}
	}
}
