package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/steledb/stele/test/simulation/world"
)

// TestLogToPipe tests that a child writes its events to a regular file, and that they arrive in a pipe, without the zeros that a crash leaves.
func TestLogToPipe(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() {
		f, err := os.Open(pipe)
		if err != nil {
			t.Error(err)
		}
		b, err := io.ReadAll(f)
		if err != nil {
			t.Error(err)
		}
		read <- string(b)
	}()
	if err := logThrough(pipe, func(file string) {
		if !regular(file) {
			t.Errorf("a child writes to %s", file)
		}
		if err := os.WriteFile(file, []byte("events"+strings.Repeat("\x00", 3<<20)), 0o600); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if got := <-read; got != "events" {
		t.Errorf("the pipe has %q", got)
	}
}

// TestDescribe tests that the summary of a seed has its counts by their kind.
func TestDescribe(t *testing.T) {
	text := describe(world.Result{Seed: 7, Virtual: 12.5, Counts: map[string]int64{"fault crash": 3, "op read ok": 40, "op read unknown": 2, "op scan failed": 1, "blackouts": 1, "undecided": 0}}, 2*time.Second)
	for _, want := range []string{"seed 7: 12.5 virtual seconds", "faults: crash 3\n", "reached: blackouts 1\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	for _, want := range []string{"read 40 0 2", "scan 0 1 0"} {
		if !strings.Contains(strings.Join(strings.Fields(text), " "), want) {
			t.Errorf("no line %q in:\n%s", want, text)
		}
	}
}
