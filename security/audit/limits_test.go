package audit

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/steledb/stele/internal/vfs"
)

// TestTornTailOfLongFile: of a file longer than the scanned window only the torn bytes are
// truncated, and the chain continues after its last complete line.
func TestTornTailOfLongFile(t *testing.T) {
	for _, torn := range []string{"", "{\"time\":", "no record\n", "\n"} {
		m := vfs.NewMem(vfs.MemOptions{})
		large := func(c *Config) { c.BytesMax = 1 << 30 }
		l := open(t, m, large)
		n := 0
		for ; l.actions.file.size < 3*batchBytesMax; n++ {
			if err := l.Action(drop(strconv.Itoa(n))); err != nil {
				t.Fatal(err)
			}
		}
		size := l.actions.file.size
		closed(t, l)
		f, err := m.Open("/audit/audit.log")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte(torn), size); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		l = open(t, m, large)
		if got, _, err := m.Stat("/audit/audit.log"); err != nil || got != size {
			t.Errorf("with %q behind it the file has %d bytes, %v; want %d", torn, got, err, size)
		}
		if err := l.Action(drop("after")); err != nil {
			t.Fatal(err)
		}
		closed(t, l)
		all := read(t, m, "audit.log")
		var lines bytes.Buffer
		for _, l := range all {
			l.encode(&lines)
		}
		if chains, err := Verify("audit.log", &lines, nil); err != nil || chains[0].Last != uint64(n+1) {
			t.Errorf("with %q behind it: %+v, %v; want %d lines", torn, chains, err, n+1)
		}
	}
}

// noReads fails reads of the named files.
type noReads struct {
	vfs.FS
	name  string
	opens bool // opening succeeds, reading fails
}

type noBytes struct{ vfs.File }

func (noBytes) ReadAt([]byte, int64) (int, error) { return 0, syscall.EIO }

func (f noReads) OpenRead(name string) (vfs.File, error) {
	if filepath.Base(name) != f.name {
		return f.FS.OpenRead(name)
	}
	if !f.opens {
		return nil, syscall.EIO
	}
	file, err := f.FS.OpenRead(name)
	return noBytes{file}, err
}

// TestUnreadableEnd: if the end of a log cannot be read, no new chain is started. It would look
// like a log whose first lines were removed.
func TestUnreadableEnd(t *testing.T) {
	for _, opens := range []bool{false, true} {
		for _, empty := range []bool{false, true} { // a power loss after the rename, and after the new file was created
			m := vfs.NewMem(vfs.MemOptions{})
			l := open(t, m, nil)
			if err := l.Action(drop("a")); err != nil {
				t.Fatal(err)
			}
			closed(t, l)
			if err := m.Rename("/audit/audit.log", "/audit/audit.log.1"); err != nil {
				t.Fatal(err)
			}
			if empty {
				f, err := m.Create("/audit/audit.log")
				if err != nil {
					t.Fatal(err)
				}
				_ = f.Close()
			}
			if _, err := Open(Config{Dir: "/audit", Node: "n1", FS: noReads{m, "audit.log.1", opens}}); !errors.Is(err, syscall.EIO) {
				t.Errorf("opens %v, empty %v: %v", opens, empty, err)
			}
			l = open(t, m, nil)
			if head := l.actions.file.head.Load(); head.seq != 1 {
				t.Errorf("opens %v, empty %v: when it can be read again the chain ends at %d", opens, empty, head.seq)
			}
			closed(t, l)
		}
	}
}

// TestRotationClosesFiles: rotated files are closed.
func TestRotationClosesFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l, err := Open(Config{Dir: dir, Node: "n1", Files: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer closed(t, l)
	l.actions.file.bytesMax = 1
	for range 20 {
		if err := l.Action(drop("t")); err != nil {
			t.Fatal(err)
		}
	}
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	opened := 0
	for _, fd := range fds {
		if to, err := os.Readlink("/proc/self/fd/" + fd.Name()); err == nil && strings.HasPrefix(to, dir) {
			opened++
		}
	}
	if opened != 3 {
		t.Errorf("%d files of the log are open, want one of each kind", opened)
	}
}

// TestBatches: refusals written together share an fsync, with at most batchBytesMax per fsync.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfs.NewMem(vfs.MemOptions{})
		l := open(t, m, nil)
		syncs, most := 0, 0
		m.SetHook(func(op vfs.Op) error {
			if op.Kind == vfs.OpSync {
				syncs++
			}
			if op.Kind == vfs.OpWrite {
				most = max(most, int(op.Len))
			}
			return nil
		})
		const n = 900
		for i := range n {
			l.Refusal(refuse("h"+strconv.Itoa(i), strings.Repeat("x", textBytesMax)))
		}
		closed(t, l)
		total := 0
		for _, r := range read(t, m, "refusals.log") {
			var b bytes.Buffer
			r.encode(&b)
			total += b.Len()
		}
		if least := total/batchBytesMax + 1; syncs < least || syncs > 2*least || most > batchBytesMax {
			t.Errorf("%d bytes were written with %d fsyncs, want about %d; the largest write has %d bytes", total, syncs, least, most)
		}
	})
}

// TestRepeatedRefusals: a repeated refusal is written once a minute, exactly a minute later.
func TestRepeatedRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfs.NewMem(vfs.MemOptions{})
		l := open(t, m, nil)
		count := func() int { return len(read(t, m, "refusals.log")) }
		time.Sleep(flushEvery / 2)
		l.Refusal(refuse("h1", "table a"))
		time.Sleep(3 * flushEvery) // it was written 2.5 s ago
		l.Refusal(refuse("h1", "table a"))
		time.Sleep(repeatEvery - 3*flushEvery)
		if n := count(); n != 1 {
			t.Errorf("within a minute %d lines were written, want 1", n)
		}
		time.Sleep(flushEvery)
		if n := count(); n != 2 {
			t.Errorf("after a minute %d lines were written, want 2", n)
		}
		closed(t, l)
	})
}

// TestForgottenRequesters: a requester's share is restored after a while without refusals. Refusals
// of others are written in the same flush that drops many old entries.
func TestForgottenRequesters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfs.NewMem(vfs.MemOptions{})
		l := open(t, m, nil)
		time.Sleep(flushEvery / 2)
		for round := range 3 {
			before := len(read(t, m, "refusals.log"))
			for i := range refusalsOfOne - 1 {
				l.Refusal(refuse("h1", fmt.Sprintf("table %d %d", round, i)))
			}
			for i := range 200 {
				l.Refusal(refuse("host"+strconv.Itoa(i), "table a"))
			}
			time.Sleep(flushEvery)
			if n := len(read(t, m, "refusals.log")) - before; n != refusalsOfOne-1+200 {
				t.Errorf("round %d: %d records were written", round, n)
			}
			time.Sleep(repeatEvery - flushEvery) // the next flush drops all entries
			l.Refusal(refuse("other", "table a"))
			time.Sleep(flushEvery)
			if n := len(read(t, m, "refusals.log")) - before; n != refusalsOfOne+200 {
				t.Errorf("round %d: a refusal in the second in which others are forgotten was not written: %d records", round, n)
			}
			time.Sleep(repeatEvery)
			l.mu.Lock()
			if len(l.mu.byKey) != 0 || len(l.mu.perRequester) != 0 {
				t.Errorf("round %d: %d refusals of %d requesters are remembered", round, len(l.mu.byKey), len(l.mu.perRequester))
			}
			l.mu.Unlock()
			time.Sleep(flushEvery)
		}
		closed(t, l)
	})
}

// TestRefusalsOfManyHosts: refusals beyond refusalsMax are counted in one record.
func TestRefusalsOfManyHosts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfs.NewMem(vfs.MemOptions{})
		l := open(t, m, func(c *Config) { c.BytesMax = 1 << 30 })
		for i := range refusalsMax + 7 {
			l.Refusal(refuse("h"+strconv.Itoa(i), "table a"))
		}
		closed(t, l)
		all := read(t, m, "refusals.log")
		if len(all) != refusalsMax+1 || sum(all) != refusalsMax+7 {
			t.Errorf("%d records of %d refusals, want %d of %d", len(all), sum(all), refusalsMax+1, refusalsMax+7)
		}
	})
}

// TestHostsOfRefusals: connections from one host are one requester regardless of port. Addresses
// without a port are distinct.
func TestHostsOfRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfs.NewMem(vfs.MemOptions{})
		l := open(t, m, nil)
		for _, from := range []string{"10.0.0.1:1", "10.0.0.1:2", "[fe80::1]:1", "[fe80::1]:2", "local", "@", "local"} {
			l.Refusal(Record{From: from, Action: "get", On: "table a"})
		}
		closed(t, l)
		if all := read(t, m, "refusals.log"); len(all) != 4 || sum(all) != 7 {
			t.Errorf("%+v", all)
		}
	})
}

// TestChainEndsAreLogged: the heads of nonempty logs are logged on open, on close and every hour.
func TestChainEndsAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := vfs.NewMem(vfs.MemOptions{})
		var log bytes.Buffer
		logged := func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) }
		l := open(t, m, logged)
		if log.Len() != 0 {
			t.Errorf("an empty log has an end: %s", log.String())
		}
		if err := l.Action(drop("t")); err != nil {
			t.Fatal(err)
		}
		end := fmt.Sprintf("file=audit.log seq=1 sha256=%s", l.actions.file.head.Load().prev())
		time.Sleep(headsEvery + time.Second)
		if n := strings.Count(log.String(), end); n != 1 {
			t.Errorf("after an hour the end was logged %d times: %s", n, log.String())
		}
		closed(t, l)
		closed(t, open(t, m, logged))
		if n := strings.Count(log.String(), end); n != 4 || strings.Count(log.String(), "\n") != n { // one hourly, two closes, and an open of the nonempty log
			t.Errorf("the end was logged %d times: %s", n, log.String())
		}
	})
}

// TestConfigLimits: too small or too many files are rejected with the limit.
func TestConfigLimits(t *testing.T) {
	for _, test := range []struct {
		cfg  Config
		want string
	}{
		{Config{Dir: "/audit", BytesMax: 2*batchBytesMax - 1}, "at least 131072"}, {Config{Dir: "/audit", Files: -1}, "1 to 1000"},
		{Config{Dir: "/audit", Files: 1001}, "1 to 1000"}, {Config{}, "no directory"},
	} {
		test.cfg.FS = vfs.NewMem(vfs.MemOptions{})
		if _, err := Open(test.cfg); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v", test.cfg, err)
		}
	}
	l, err := Open(Config{Dir: "/audit", Files: 1000, BytesMax: 2 * batchBytesMax, FS: vfs.NewMem(vfs.MemOptions{})})
	if err != nil {
		t.Fatal(err)
	}
	closed(t, l)
}

// TestOutcomes: an invalid outcome does not panic.
func TestOutcomes(t *testing.T) {
	for o, want := range map[Outcome]string{0: "unknown", Done: "done", Refused: "refused", Failed: "failed", Failed + 1: "unknown", 255: "unknown"} {
		if o.String() != want {
			t.Errorf("outcome %d is %s", o, o)
		}
	}
}

// TestCutTexts: a long text is cut at a character boundary.
func TestCutTexts(t *testing.T) {
	for _, first := range []string{"", "x", "xx", "xxx"} {
		s := clean(first + strings.Repeat("€", 200))
		if !utf8.ValidString(s) || !strings.HasSuffix(s, "€…") || len(s) > textBytesMax+len("…") || len(s) < textBytesMax-2 {
			t.Errorf("%d bytes: %q", len(s), s)
		}
	}
}

// TestVerifyRotated: a log with the maximum number of files, whose first lines were rotated out,
// verifies. So does another log in its directory.
func TestVerifyRotated(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "audit")
	l, err := Open(Config{Dir: dir, Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	l.actions.file.bytesMax = 500
	if err := l.TableAction(drop("t")); err != nil {
		t.Fatal(err)
	}
	for range 40 {
		if err := l.Action(drop("t")); err != nil {
			t.Fatal(err)
		}
	}
	head := l.actions.file.head.Load()
	closed(t, l)
	all, err := VerifyFolder(dir, nil)
	if err != nil || len(all) != 2 || all[0].First == 1 || all[0].Last != 40 {
		t.Fatalf("%+v, %v", all, err)
	}
	// A head belongs to one log and one line of it.
	for _, h := range []Head{{"table-admins", head.seq, head.prev()}, {"audit", head.seq - 1, head.prev()}} {
		var bad *TamperError
		if _, err := VerifyFolder(dir, []Head{h}); !errors.As(err, &bad) || strings.Contains(err.Error(), ":0:") {
			t.Errorf("%+v: %v", h, err)
		}
	}
}

// TestVerifyLocates: the error has the file and line of the change.
func TestVerifyLocates(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "audit.log")
	var b bytes.Buffer
	end := chain{}
	for i := range 10 {
		if i == 5 {
			b.WriteString("no record\n")
			continue
		}
		end = end.add(&b, "audit.log", drop(strconv.Itoa(i)).line("n1", 1))
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(b.String())
	if _, err := VerifyFolder(dir, nil); err == nil || !strings.HasPrefix(err.Error(), path+":6: ") || strings.Contains(err.Error(), "\n") {
		t.Errorf("line 6: %v", err)
	}
	// A record of another log.
	b.Reset()
	chain{}.add(&b, "refusals.log", drop("t").line("n1", 1))
	write(b.String())
	if _, err := VerifyFolder(dir, nil); err == nil || !strings.Contains(err.Error(), `another log: "refusals"`) {
		t.Errorf("a record of another log: %v", err)
	}
	if _, err := Verify("copy", strings.NewReader(`{"seq":1}`), nil); err == nil || !strings.Contains(err.Error(), "copy:1: record belongs to another log: \"\"") {
		t.Errorf("a record of no log: %v", err)
	}
	// A line too long for a node to write is an error, not the end of the log.
	write(strings.Repeat("x", 2*batchBytesMax))
	if _, err := VerifyFolder(dir, nil); err == nil || !strings.Contains(err.Error(), "too long") {
		t.Errorf("a long line: %v", err)
	}
	// The number of errors is bounded.
	write(strings.Repeat("no record\n", 150))
	if _, err := VerifyFolder(dir, nil); err == nil || strings.Count(err.Error(), "\n") != 99 {
		t.Errorf("150 bad lines: %d errors", strings.Count(err.Error(), "\n")+1)
	}
}

// failing is a sink that rejects everything.
type failing struct{}

func (failing) Send([]byte) error { return syscall.EPIPE }
func (failing) Close() error      { return nil }

// TestShipperLogs: records that the sink rejects, or that exceed the queue, are logged with their
// number; delivered records are not logged.
func TestShipperLogs(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	s := newShipper(failing{}, logger)
	s.add([]byte("{}\n{}\n"))
	s.send()
	if !strings.Contains(log.String(), "records=2 ") || strings.Count(log.String(), "\n") != 1 {
		t.Errorf("a sink that rejects: %s", log.String())
	}
	log.Reset()
	taken := &stuck{begun: make(chan struct{}), free: make(chan struct{})}
	close(taken.free)
	s = newShipper(taken, logger)
	s.add([]byte("{}\n{}\n"))
	s.send()
	s.send()
	if log.Len() != 0 || taken.lines != 2 {
		t.Errorf("a sink that takes all got %d lines: %s", taken.lines, log.String())
	}
	large := bytes.Repeat([]byte("x\n"), shipBytesMax/2)
	s.add(large)
	s.add([]byte("y\n"))
	if len(s.mu.waiting) != len(large) || s.mu.dropped != 1 {
		t.Errorf("%d bytes wait, at most %d may; %d records were dropped", len(s.mu.waiting), shipBytesMax, s.mu.dropped)
	}
}

// TestFileSinkFollows: the sink writes to the file at its path after a rename and after its
// directory was missing, and reopens it only then.
func TestFileSinkFollows(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "logs")
	path := filepath.Join(dir, "copy")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	sink, err := OpenSink(path)
	if err != nil {
		t.Fatal(err)
	}
	s := sink.(*fileSink)
	send := func(line string) {
		t.Helper()
		if err := s.Send([]byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	send("a\n")
	opened := s.f
	send("b\n")
	if s.f != opened {
		t.Error("the file was reopened although it was not renamed")
	}
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	send("c\n")
	if _, err := opened.Stat(); err == nil {
		t.Error("the renamed file stays open")
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	if err := s.Send([]byte("lost\n")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("without its folder: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("closed without a file: %v", err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	send("d\n")
	last := s.f
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := last.Stat(); err == nil {
		t.Error("the file stays open")
	}
	for name, want := range map[string]string{path: "c\nd\n", path + ".1": "a\nb\n"} {
		if b, err := os.ReadFile(name); err != nil || string(b) != want {
			t.Errorf("%s has %q, %v; want %q", name, b, err, want)
		}
	}
}
