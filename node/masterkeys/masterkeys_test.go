package masterkeys

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/steledb/stele/blobfs"
)

// write writes a file and returns its name.
func write(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
	return name
}

// digits returns a key of one repeated byte, as its line of a file.
func digits(b byte) string {
	return hex.EncodeToString(bytes.Repeat([]byte{b}, blobfs.MasterKeyBytes))
}

// TestKeys: the keys of a file, and of a command, are in the order of their lines.
func TestKeys(t *testing.T) {
	file := write(t, "# the current one first\n\n "+digits(2)+" \n"+digits(1)+"\n", 0o600)
	for _, s := range []Source{{File: file}, {Command: "cat " + file}} {
		keys, err := s.Read(t.Context())
		if err != nil || len(keys) != 2 || keys[0][0] != 2 || keys[1][0] != 1 {
			t.Errorf("%+v: %d keys, %v", s, len(keys), err)
		}
	}
	if keys, err := (Source{}).Read(t.Context()); err != nil || keys != nil {
		t.Errorf("no source: %d keys, %v", len(keys), err)
	}
}

// TestBadKeys (MK1): errors name the line, and contain no part of a key. None of them is transient.
func TestBadKeys(t *testing.T) {
	good := digits(0x5a)
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "no key found"},
		{"comments", "# nothing\n\n", "no key found"},
		{"short", "# one\n" + good[2:], "line 2 has 62 characters"},
		{"long", good + "\n" + good + "5a", "line 2 has 66 characters"},
		{"no digits", strings.Replace(good, "5a", "zz", 1), "line 1 has other characters"},
		{"zeros", strings.Repeat("0", 64), "line 1 has only zeros"},
	} {
		file := write(t, c.text, 0o600)
		for _, s := range []Source{{File: file}, {Command: "cat " + file}} {
			wantBad(t, c.name, s, c.want, good[:10])
		}
	}
	file := write(t, good, 0o600)
	wantBad(t, "exposed", Source{File: write(t, good, 0o644)}, "chmod 600", good[:10])
	wantBad(t, "both", Source{File: file, Command: "true"}, "only one of them", good[:10])
	wantBad(t, "no command", Source{Command: "no-such-vault"}, `exit status 127: "`, good[:10])
	wantBad(t, "endless", Source{Command: "head -c 100000 /dev/zero"}, "more than 65536 bytes", good[:10])
}

func wantBad(t *testing.T, name string, s Source, want, never string) {
	t.Helper()
	keys, err := s.Read(t.Context())
	var bad *Error
	if !errors.As(err, &bad) || bad.Transient || keys != nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), never) {
		t.Errorf("%s: %d keys, %v", name, len(keys), err)
	}
}

// TestCommandFails: the error of a command that runs and fails is transient. Await repeats the command until it succeeds, or ctx ends.
func TestCommandFails(t *testing.T) {
	file, flag := write(t, digits(1), 0o600), filepath.Join(t.TempDir(), "flag")
	s := Source{Command: fmt.Sprintf("test -e %s && cat %s && exit 0; echo no such vault >&2; exit 3", flag, file)}
	var bad *Error
	if _, err := s.Read(t.Context()); !errors.As(err, &bad) || !bad.Transient || !strings.Contains(err.Error(), `exit status 3: "no such vault"`) {
		t.Errorf("read: %v", err)
	}
	log := slog.New(slog.DiscardHandler)
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := s.Await(ctx, log, cancel); !errors.As(err, &bad) || !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled while waiting: %v", err)
	}
	waits := 0
	keys, err := s.Await(t.Context(), log, func() {
		if waits++; waits == 2 {
			if err := os.WriteFile(flag, nil, 0o600); err != nil {
				t.Error(err)
			}
		}
	})
	if err != nil || len(keys) != 1 || waits != 2 {
		t.Errorf("%d keys after %d waits, %v", len(keys), waits, err)
	}
}
