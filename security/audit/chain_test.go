package audit

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/security/pki"
)

// TestOneRequester: AL3. A principal with many kinds of refusals gets no more records than its
// share, and does not displace those of others.
func TestOneRequester(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem(vfs.MemOptions{})
		l := open(t, fs, nil)
		eve := pki.Peer{Kind: pki.Principal, Name: "eve"}
		for i := range 5000 {
			r := refuse("h"+strconv.Itoa(i), "table "+strconv.Itoa(i))
			r.Requester = eve
			l.Refusal(r)
		}
		for i := range 5000 {
			l.Refusal(refuse("stranger", "table "+strconv.Itoa(i)))
		}
		l.Refusal(Record{Requester: ann, From: "h1:1", Action: "get", On: "table a", Code: "permission_denied"})
		closed(t, l)
		count, records := map[string]int64{}, map[string]int{}
		for _, r := range read(t, fs, "refusals.log") {
			count[r.Name] += max(1, r.Repeated)
			records[r.Name]++
		}
		if count["eve"] != 5000 || count[""] != 5000 || count["ann"] != 1 || records["eve"] != refusalsOfOne || records[""] != refusalsOfOne {
			t.Errorf("counts %v, records %v", count, records)
		}
		if len(l.mu.byKey) > 2*refusalsOfOne+1 {
			t.Errorf("%d kinds are recorded individually", len(l.mu.byKey))
		}
	})
}

// written returns a directory with several files of a log, and the chain head.
func written(t *testing.T, n int) (dir string, head Head) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "audit")
	for half := range 2 { // the second half continues the chain
		l, err := Open(Config{Dir: dir, Node: "n1", Files: 5, BytesMax: 2 * batchBytesMax})
		if err != nil {
			t.Fatal(err)
		}
		l.actions.file.bytesMax = 4000 // a dozen records
		for i := range n / 2 {
			if err := errors.Join(l.Action(drop(strconv.Itoa(half*n/2+i))), l.TableAction(drop("t"))); err != nil {
				t.Fatal(err)
			}
		}
		end := l.actions.file.head.Load()
		head = Head{"audit", end.seq, end.prev()}
		closed(t, l)
	}
	return dir, head
}

// TestVerify: AL5, for every line of a log.
func TestVerify(t *testing.T) {
	dir, head := written(t, 40)
	all, err := VerifyFolder(dir, []Head{head})
	if err != nil || len(all) != 2 || all[0].Log != "audit" || all[0].Last != 40 || all[0].Sum != head.Sum || all[1].Log != "table-admins" || all[1].First != 1 {
		t.Fatalf("as written: %+v, %v", all, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "audit.log*"))
	if err != nil || len(files) < 3 {
		t.Fatalf("there are %v, %v", files, err)
	}
	for _, path := range files {
		was, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.SplitAfter(was, []byte("\n"))
		lines = lines[:len(lines)-1]
		for i := range lines {
			last := path == filepath.Join(dir, "audit.log") && i == len(lines)-1
			changed := bytes.Replace(lines[i], []byte(`"ann"`), []byte(`"bob"`), 1)
			for what, becomes := range map[string][][]byte{
				"removed":  append(append([][]byte{}, lines[:i]...), lines[i+1:]...),
				"changed":  append(append(append([][]byte{}, lines[:i]...), changed), lines[i+1:]...),
				"repeated": append(append(append([][]byte{}, lines[:i+1]...), lines[i]), lines[i+1:]...),
			} {
				if err := os.WriteFile(path, bytes.Join(becomes, nil), 0o600); err != nil {
					t.Fatal(err)
				}
				var bad *TamperError
				if _, err := VerifyFolder(dir, []Head{head}); !errors.As(err, &bad) {
					t.Fatalf("%s: line %d %s: %v", path, i+1, what, err)
				}
				_, err := VerifyFolder(dir, nil)
				if quiet := last && what != "repeated"; errors.As(err, &bad) == quiet {
					t.Errorf("%s: line %d %s, without the end: %v", path, i+1, what, err)
				}
			}
		}
		if err := os.WriteFile(path, was, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "audit.log.1")); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(filepath.Join(dir, "audit.log.2"), filepath.Join(dir, "audit.log.1")); err != nil {
		t.Fatal(err)
	}
	if _, err := VerifyFolder(dir, nil); err == nil || !strings.Contains(err.Error(), "removed") {
		t.Errorf("without a file: %v", err)
	}
}

// TestOlderLog: lines of a version without chains are kept, and later lines are chained to the last
// of them.
func TestOlderLog(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	const old = `{"time":"2027-01-01T12:00:00.000Z","node":"n1","kind":"principal","name":"ann","action":"drop_table","outcome":"done"}` + "\n"
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "audit.log"), []byte(old+old), 0o600)); err != nil {
		t.Fatal(err)
	}
	l, err := Open(Config{Dir: dir, Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Action(drop("t")); err != nil {
		t.Fatal(err)
	}
	closed(t, l)
	all, err := VerifyFolder(dir, nil)
	if err != nil || len(all) != 1 || all[0].Unchained != 2 || all[0].First != 1 || all[0].Last != 1 {
		t.Errorf("%+v, %v", all, err)
	}
}

// TestSinks: each record also goes to the sink, the journal or a file rotated by another program,
// and its chains can be verified there.
func TestSinks(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit-copy")
	for i := range 2 {
		sink, err := OpenSink(path)
		if err != nil {
			t.Fatal(err)
		}
		l, err := Open(Config{Dir: filepath.Join(dir, "audit"), Node: "n1", Sink: sink})
		if err != nil {
			t.Fatal(err)
		}
		l.Refusal(refuse("h1", "table a"))
		if err := errors.Join(l.Action(drop("t")), l.TableAction(drop("u"))); err != nil {
			t.Fatal(err)
		}
		closed(t, l)
		if i == 0 {
			if err := os.Rename(path, path+".old"); err != nil {
				t.Fatal(err)
			}
		}
	}
	var both bytes.Buffer
	for _, p := range []string{path + ".old", path} {
		b, err := os.ReadFile(p)
		if err != nil || bytes.Count(b, []byte("\n")) != 3 {
			t.Fatalf("%s: %q, %v", p, b, err)
		}
		both.Write(b)
	}
	text := both.String()
	if all, err := Verify("copy", &both, nil); err != nil || len(all) != 3 || all[0].Last != 2 {
		t.Errorf("%+v, %v", all, err)
	}
	lines := strings.SplitAfter(text, "\n")
	if _, err := Verify("copy", strings.NewReader(strings.Join(append(lines[:3:3], lines[3:]...), "")), []Head{{"audit", 9, strings.Repeat("0", 64)}}); err == nil {
		t.Error("a missing head is not detected")
	}
	for _, name := range []string{"", "somewhere", "./x"} {
		if _, err := OpenSink(name); err == nil {
			t.Errorf("%q is a sink", name)
		}
	}
}

// TestJournal: each record is one journal message with its own identifier.
func TestJournal(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "journal")
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := openJournal(socket)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Send([]byte("{\"a\":1}\n{\"a\":2}\n")), s.Close()); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		b := make([]byte, 1000)
		n, err := c.Read(b)
		if want := fmt.Sprintf("SYSLOG_IDENTIFIER=stele-audit\nPRIORITY=6\nMESSAGE={\"a\":%d}\n", i+1); err != nil || string(b[:n]) != want {
			t.Errorf("message %q, %v", b[:n], err)
		}
	}
}

// TestSlowSink: a blocked sink delays no action, and dropped records are counted.
func TestSlowSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		sink := &stuck{begun: make(chan struct{}), free: make(chan struct{})}
		l := open(t, vfs.NewMem(vfs.MemOptions{}), func(c *Config) {
			c.Sink, c.Logger, c.BytesMax = sink, slog.New(slog.NewTextHandler(&log, nil)), 1<<30
		})
		if err := l.Action(drop("t")); err != nil {
			t.Fatal(err)
		}
		<-sink.begun
		long := drop("t")
		long.Text = strings.Repeat("x", textBytesMax)
		const more = 10_000
		for range more {
			if err := l.Action(long); err != nil {
				t.Fatal(err)
			}
		}
		close(sink.free)
		closed(t, l)
		if !sink.closed || sink.lines == 0 || sink.lines > more || !strings.Contains(log.String(), "records="+strconv.Itoa(more+1-sink.lines)+"\n") {
			t.Errorf("%d lines came, and the log is %s", sink.lines, log.String())
		}
	})
}

// stuck is a sink that blocks until it is released.
type stuck struct {
	begun, free chan struct{}
	lines       int
	closed      bool
}

func (s *stuck) Send(lines []byte) error {
	if s.lines == 0 {
		close(s.begun)
	}
	<-s.free
	s.lines += bytes.Count(lines, []byte("\n"))
	return nil
}

func (s *stuck) Close() error {
	s.closed = true
	return nil
}
