package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/security/pki"
	"github.com/steledb/stele/security/token"
)

var (
	noon = time.Date(2027, 1, 1, 12, 0, 0, 0, time.UTC)
	ann  = pki.Peer{Kind: pki.Principal, Name: "ann", Cluster: "c1"}
)

func drop(table string) Record {
	return Record{Requester: ann, From: "10.0.0.9:4711", Action: "drop_table", On: "table " + table, Outcome: Done, Request: "7f", Time: noon}
}

func open(t testing.TB, fs vfs.FS, change func(*Config)) *Log {
	t.Helper()
	cfg := Config{Dir: "/audit", Node: "n1", FS: fs, BytesMax: 2 * batchBytesMax}
	if change != nil {
		change(&cfg)
	}
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func closed(t testing.TB, l *Log) {
	t.Helper()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// read returns the records of all files of a log, oldest first. Every line must be a record.
func read(t testing.TB, fs vfs.FS, name string) (all []line) {
	t.Helper()
	for n := 100; n >= 0; n-- {
		path := "/audit/" + name
		if n > 0 {
			path += "." + strconv.Itoa(n)
		}
		f, err := fs.OpenRead(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		size, err := f.Size()
		if err != nil {
			t.Fatal(err)
		}
		b := make([]byte, size)
		if _, err := f.ReadAt(b, 0); err != nil && size > 0 {
			t.Fatal(err)
		}
		_ = f.Close()
		if size > 0 && b[size-1] != '\n' {
			t.Fatalf("%s ends within a line", path)
		}
		for text := range bytes.Lines(b) {
			var l line
			d := json.NewDecoder(bytes.NewReader(text))
			d.DisallowUnknownFields()
			if err := d.Decode(&l); err != nil {
				t.Fatalf("%s has the line %q: %v", path, text, err)
			}
			all = append(all, l)
		}
	}
	return all
}

func sumOf(line string) string {
	sum := sha256.Sum256([]byte(line))
	return hex.EncodeToString(sum[:])
}

// TestLine pins the example of the package doc.
func TestLine(t *testing.T) {
	const example = `{"time":"2027-01-01T12:00:00.000Z","node":"n1","kind":"principal","name":"ann","from":"10.0.0.9:4711","action":"drop_table","on":"table t","outcome":"done","request":"7f","log":"audit","seq":1,"prev":""}`
	var b bytes.Buffer
	first := chain{}.add(&b, "audit.log", drop("t").line("n1", 1))
	if b.String() != example+"\n" {
		t.Errorf("line is\n%s, want\n%s", b.String(), example)
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(doc), example) {
		t.Error("doc.go has a different example")
	}
	b.Reset()
	first.add(&b, "audit.log", Record{From: "10.0.0.9:1", Action: "auth", Outcome: Refused, Code: "unauthenticated", Text: "unknown <token>", Time: noon.Add(time.Millisecond)}.line("n1", 12))
	if want := `{"time":"2027-01-01T12:00:00.001Z","node":"n1","kind":"anonymous","from":"10.0.0.9:1","action":"auth","outcome":"refused","code":"unauthenticated","text":"unknown <token>","repeated":12,"log":"audit","seq":2,"prev":"` + sumOf(example) + `"}` + "\n"; b.String() != want {
		t.Errorf("line is\n%s, want\n%s", b.String(), want)
	}
}

// TestHostileTexts: AL2 and AL4.
func TestHostileTexts(t *testing.T) {
	tok := token.New(token.Access, pki.Fingerprint{}, noon, 0).Reveal()
	key := "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEIabcdefghijklmnop\n-----END EC PRIVATE KEY-----"
	texts := []string{
		"a\nb\r\n{\"forged\":1}\n", "\x00\x1b[31m\xff\xfe", strings.Repeat("é", 1000), strings.Repeat("\x01", 5000), `"}{"`, "\u2028",
		"given " + tok, strings.Repeat(tok+" ", 8) + tok[:60] + "\n" + tok[60:], strings.Repeat(tok+" ", 8) + "\n" + tok, strings.Repeat("x", 1000) + tok, strings.ToUpper(tok), strings.Repeat("x", 240) + tok, key, "file:\n" + strings.ReplaceAll(key, "EC ", ""),
	}
	for pad := range 150 { // move the line break of a token across the cut
		texts = append(texts, strings.Repeat(tok+" ", 7)+strings.Repeat(".", pad)+" "+tok[:60]+"\n"+tok[60:])
	}
	for _, text := range texts {
		r := Record{Requester: pki.Peer{Kind: pki.Principal, Name: text}, From: text, Action: text, On: text, Outcome: Failed, Code: text, Text: text, Request: text, Time: noon}
		var b bytes.Buffer
		r.line(text, 1).encode(&b)
		if b.Len() > batchBytesMax/4 {
			t.Errorf("%.20q: a record of %d bytes", text, b.Len())
		}
		if !json.Valid(b.Bytes()) || bytes.Count(b.Bytes(), []byte("\n")) != 1 {
			t.Errorf("%.20q: not one line of JSON: %s", text, b.Bytes())
		}
		for _, secret := range []string{tok[30:42], tok[30:35], tok[60:66], tok[70:80], strings.ToUpper(tok[30:42]), "MHcCAQ"} {
			if bytes.Contains(b.Bytes(), []byte(secret)) {
				t.Errorf("%.20q: a secret is in the record: %s", text, b.Bytes())
			}
		}
		if len(text) > 300 && !strings.Contains(text, "-") && b.Len() < 8*textBytesMax {
			t.Errorf("%.20q: too little is left: %s", text, b.Bytes())
		}
		before := b.String()
		r.clean()
		b.Reset()
		r.line(text, 1).encode(&b)
		if b.String() != before {
			t.Errorf("%.20q: cleaned twice it is another: %s, before %s", text, b.String(), before)
		}
	}
}

// random returns a generator with the seed of the test.
func random(t *testing.T) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(testseed.New(t), 0))
}

// TestPowerLoss: AL1 and AL2, with a power loss at each disk operation while the log is opened,
// written and rotated.
func TestPowerLoss(t *testing.T) {
	rng := random(t)
	long := strings.Repeat("x", textBytesMax)
	const actions = 40
	write := func(fs vfs.FS) (acked int) {
		l, err := Open(Config{Dir: "/audit", Node: "n1", FS: fs, BytesMax: 2 * batchBytesMax, Files: 50})
		if err != nil {
			return 0
		}
		defer l.Close()
		l.actions.file.bytesMax = 2000 // some records
		for i := range actions {
			r := drop(strconv.Itoa(i))
			r.Text = long
			if l.Action(r) != nil {
				break
			}
			acked++
		}
		return acked
	}
	clean := vfs.NewMem(vfs.MemOptions{})
	if write(clean) != actions {
		t.Fatal("incomplete without a power loss")
	}
	for cut := int64(1); cut <= clean.Ops(); cut++ {
		fs := vfs.NewMem(vfs.MemOptions{})
		var after *vfs.Mem
		fs.SetHook(func(op vfs.Op) error {
			if op.N >= cut {
				if after == nil {
					after = fs.Crash(rng)
				}
				return vfs.ErrPowerCut
			}
			return nil
		})
		acked := write(fs)
		if after == nil {
			after = fs.Crash(rng)
		}
		l := open(t, after, nil)
		if err := l.Action(drop("after")); err != nil {
			t.Fatal(err)
		}
		closed(t, l)
		found := map[string]bool{}
		for _, r := range read(t, after, "audit.log") {
			found[r.On] = true
		}
		for i := range acked {
			if !found["table "+strconv.Itoa(i)] {
				t.Fatalf("power loss at operation %d: action %d of %d is lost", cut, i, acked)
			}
		}
		if !found["table after"] || found["table "+strconv.Itoa(acked+1)] {
			t.Fatalf("power loss at operation %d: of %d actions there are %v", cut, acked, found)
		}
		var lines bytes.Buffer
		for _, l := range read(t, after, "audit.log") {
			l.encode(&lines)
		}
		if all, err := Verify("audit.log", &lines, nil); err != nil || all[0].First != 1 {
			t.Fatalf("power loss at operation %d: the chain is broken: %+v, %v", cut, all, err)
		}
	}
}

// TestFullDisk: a write that failed in whole or in part does not affect the next one.
func TestFullDisk(t *testing.T) {
	for _, fault := range []error{syscall.ENOSPC, vfs.ErrTorn} {
		fs := vfs.NewMem(vfs.MemOptions{})
		l := open(t, fs, nil)
		if err := l.Action(drop("a")); err != nil {
			t.Fatal(err)
		}
		fs.SetHook(func(op vfs.Op) error {
			if op.Kind == vfs.OpWrite {
				return fault
			}
			return nil
		})
		lost := drop("lost")
		lost.Text = strings.Repeat("x", textBytesMax)
		if err := l.Action(lost); !errors.Is(err, fault) {
			t.Errorf("%v: %v", fault, err)
		}
		fs.SetHook(nil)
		if err := l.Action(drop("b")); err != nil {
			t.Errorf("after %v: %v", fault, err)
		}
		closed(t, l)
		if all := read(t, fs, "audit.log"); len(all) != 2 || all[0].On != "table a" || all[1].On != "table b" {
			t.Errorf("after %v: %v", fault, all)
		}
	}
}

// TestFailedSync: nothing is acknowledged after a failed fsync.
func TestFailedSync(t *testing.T) {
	fs := vfs.NewMem(vfs.MemOptions{})
	l := open(t, fs, nil)
	fs.SetHook(func(op vfs.Op) error {
		if op.Kind == vfs.OpSync {
			return syscall.EIO
		}
		return nil
	})
	if err := l.Action(drop("a")); !errors.Is(err, syscall.EIO) {
		t.Errorf("a failed sync: %v", err)
	}
	fs.SetHook(nil)
	if err := l.Action(drop("b")); !errors.Is(err, syscall.EIO) {
		t.Errorf("after a failed sync: %v", err)
	}
	closed(t, l)
	l = open(t, fs.Crash(nil), nil)
	if err := l.Action(drop("c")); err != nil {
		t.Error(err)
	}
	closed(t, l)
}

func TestRotation(t *testing.T) {
	for _, files := range []int{1, 3} {
		fs := vfs.NewMem(vfs.MemOptions{})
		l := open(t, fs, func(c *Config) { c.Files = files })
		const n = 3000
		for i := range n {
			if i == n/2 {
				closed(t, l)
				l = open(t, fs, func(c *Config) { c.Files = files })
			}
			if err := l.Action(drop(strconv.Itoa(i))); err != nil {
				t.Fatal(err)
			}
		}
		closed(t, l)
		all := read(t, fs, "audit.log")
		for i, r := range all {
			if want := "table " + strconv.Itoa(n-len(all)+i); r.On != want {
				t.Fatalf("%d files: record %d of %d is of %s, want %s", files, i, len(all), r.On, want)
			}
		}
		names, err := fs.ReadDir("/audit")
		if err != nil || len(names) != files+2 { // and table-admins.log and refusals.log
			t.Errorf("%d files: there are %v, %v", files, names, err)
		}
		total := int64(0)
		for _, name := range names {
			size, _, err := fs.Stat("/audit/" + name)
			if err != nil || size > 2*batchBytesMax {
				t.Errorf("%s has %d bytes, %v", name, size, err)
			}
			total += size
		}
		if len(all) < 450*(files-1)+1 || total < int64(files-1)*batchBytesMax {
			t.Errorf("%d files: only %d records of %d bytes are left", files, len(all), total)
		}
	}
}

func refuse(host, on string) Record {
	return Record{From: host + ":99", Action: "get", On: on, Code: "permission_denied", Text: "no"}
}

func sum(all []line) (n int64) {
	for _, r := range all {
		n += max(1, r.Repeated)
	}
	return n
}

// TestRefusals: AL3, in virtual time.
func TestRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem(vfs.MemOptions{})
		l := open(t, fs, nil)
		if err := l.Action(drop("t")); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		l.Refusal(refuse("h1", "table a"))
		time.Sleep(2 * flushEvery)
		if all := read(t, fs, "refusals.log"); len(all) != 1 || all[0].Outcome != "refused" || all[0].Time != start.UTC().Format(timeForm) || all[0].Repeated != 0 {
			t.Fatalf("after two seconds: %+v", all)
		}
		for range 100_000 {
			l.Refusal(refuse("h1", "table a"))
		}
		l.Refusal(refuse("h1", "table b"))
		l.Refusal(refuse("h2", "table a"))
		time.Sleep(2 * flushEvery)
		if all := read(t, fs, "refusals.log"); len(all) != 3 {
			t.Fatalf("other refusals: %+v", all)
		}
		time.Sleep(repeatEvery)
		all := read(t, fs, "refusals.log")
		if len(all) != 4 || all[3].Repeated != 100_000 || sum(all) != 100_003 {
			t.Fatalf("after a minute: %+v", all)
		}
		time.Sleep(2 * repeatEvery)
		l.mu.Lock()
		if n := len(l.mu.byKey); n != 0 {
			t.Errorf("%d kinds are remembered", n)
		}
		l.mu.Unlock()
		for range 7 {
			l.Refusal(refuse("h1", "table a"))
		}
		closed(t, l)
		if all := read(t, fs, "refusals.log"); sum(all) != 100_010 {
			t.Errorf("after Close: %+v", all)
		}
		if all := read(t, fs, "audit.log"); len(all) != 1 {
			t.Errorf("the actions are %v", all)
		}
		if err := l.Action(drop("t")); !errors.Is(err, ErrClosed) {
			t.Errorf("an action after Close: %v", err)
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestFlood: AL3. Refusals of ever new kinds while the disk is blocked, and after that.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem(vfs.MemOptions{})
		l := open(t, fs, func(c *Config) { c.Files = 4 })
		if err := l.Action(drop("t")); err != nil {
			t.Fatal(err)
		}
		stall := make(chan struct{})
		fs.SetHook(func(op vfs.Op) error {
			if op.Kind == vfs.OpWrite && strings.HasSuffix(op.Name, "refusals.log") {
				<-stall
				if op.Len > batchBytesMax {
					t.Errorf("a batch of %d bytes", op.Len)
				}
			}
			return nil
		})
		long, total := strings.Repeat("y", 10_000), int64(0)
		for i := range 20 {
			for j := range 200 {
				l.Refusal(refuse("h"+strconv.Itoa(j%7), fmt.Sprintf("table %d %d %s", i, j, long)))
				total++
			}
			time.Sleep(flushEvery)
		}
		l.mu.Lock()
		kinds := len(l.mu.byKey)
		for key, r := range l.mu.byKey {
			if len(key.on)+len(r.first.On)+len(r.first.Text) > 3*textBytesMax+10 {
				t.Fatalf("%d bytes are kept of a refusal", len(key.on)+len(r.first.On))
			}
		}
		l.mu.Unlock()
		if kinds > refusalsMax {
			t.Errorf("%d kinds are recorded individually", kinds)
		}
		if err := l.Action(drop("u")); err != nil { // the other file is not affected
			t.Fatal(err)
		}
		close(stall)
		closed(t, l)
		if got := sum(read(t, fs, "refusals.log")); got != total {
			t.Errorf("%d refusals are counted, and there were %d", got, total)
		}
		if all := read(t, fs, "audit.log"); len(all) != 2 {
			t.Errorf("the actions are %v", all)
		}
	})
}

// TestLostRefusals: refusals that cannot be written are reported in the node's log.
func TestLostRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := vfs.NewMem(vfs.MemOptions{})
		var log bytes.Buffer
		l := open(t, fs, func(c *Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		fs.SetHook(func(op vfs.Op) error {
			if op.Kind == vfs.OpWrite {
				return syscall.ENOSPC
			}
			return nil
		})
		for range 5 {
			l.Refusal(refuse("h1", "table a"))
		}
		closed(t, l)
		if !strings.Contains(log.String(), "refusals=5") {
			t.Errorf("the log is %q", log.String())
		}
	})
}

func TestRealFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "security", "audit")
	for range 2 {
		l, err := Open(Config{Dir: dir, Node: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Action(Record{Requester: ann, Action: "acl_grant", Outcome: Done}); err != nil {
			t.Fatal(err)
		}
		closed(t, l)
	}
	for name, want := range map[string]os.FileMode{"": 0o700, "audit.log": 0o600, "table-admins.log": 0o600, "refusals.log": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("%q: %v, %v", name, info.Mode(), err)
		}
	}
	b, err := os.ReadFile(filepath.Join(dir, "audit.log"))
	if err != nil || bytes.Count(b, []byte("\n")) != 2 || bytes.Contains(b, []byte("0001-01-01")) {
		t.Errorf("%s, %v", b, err)
	}
	for what, cfg := range map[string]Config{"no folder": {}, "small": {Dir: dir, BytesMax: 1000}, "no files": {Dir: dir, Files: -1}, "many files": {Dir: dir, Files: 1001}} {
		if _, err := Open(cfg); err == nil {
			t.Errorf("%s: opened", what)
		}
	}
}
