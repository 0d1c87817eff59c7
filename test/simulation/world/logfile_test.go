package world

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// TestLogFile writes more than two windows. At each moment the file must have all that was written, also if nothing closes it.
func TestLogFile(t *testing.T) {
	name := filepath.Join(t.TempDir(), "events")
	l, err := createLog(name)
	if err != nil {
		t.Fatal(err)
	}
	var want bytes.Buffer
	for i := 0; want.Len() < 2*logWindow+1; i++ {
		line := fmt.Appendf(nil, "%d %0*d\n", i, 1<<16, i)
		want.Write(line)
		if n, err := l.Write(line); n != len(line) || err != nil {
			t.Fatalf("wrote %d bytes, error %v", n, err)
		}
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(bytes.TrimRight(got, "\x00"), want.Bytes()) {
		t.Error("the file lacks what was written")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err = os.ReadFile(name); err != nil || !bytes.Equal(got, want.Bytes()) {
		t.Errorf("the closed file has %d bytes, want %d; error %v", len(got), want.Len(), err)
	}
}
