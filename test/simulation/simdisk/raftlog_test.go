package simdisk

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	bbolt "go.etcd.io/bbolt/errors"

	"github.com/steledb/stele/internal/vfs"
	"github.com/steledb/stele/raftmeta/storage"
)

const logName = "raft.db"

func openLog(t *testing.T, fsys vfs.FS) *RaftLog {
	t.Helper()
	r, err := OpenRaftLog(fsys, logName)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func entry(index uint64, data string) *raft.Log {
	return &raft.Log{Index: index, Term: 7, Type: raft.LogCommand, Data: []byte(data), Extensions: []byte("sum"), AppendedAt: time.Unix(5, 6)}
}

// TestLikeBolt: a RaftLog answers a random history as raft-boltdb does, before and after it is opened
// again.
func TestLikeBolt(t *testing.T) {
	want, err := storage.OpenBolt(filepath.Join(t.TempDir(), logName))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = want.Close() }()
	d := newDisk(Config{})
	got := openLog(t, d.FS())
	rng := rand.New(rand.NewPCG(3, 4))
	next := uint64(1)
	for range 300 {
		var do func(b storage.Backend) error
		switch key := []byte{byte('a' + rng.IntN(3))}; rng.IntN(6) {
		case 0:
			first := next - uint64(rng.IntN(10))
			do = func(b storage.Backend) error { return b.DeleteRange(first, first+20) }
			next = min(next, max(first, 1))
		case 1:
			last := uint64(rng.IntN(int(next)))
			do = func(b storage.Backend) error { return b.DeleteRange(0, last) }
		case 2:
			value := rng.Uint64()
			do = func(b storage.Backend) error { return b.SetUint64(key, value) }
		default:
			var logs []*raft.Log
			for range 1 + rng.IntN(5) {
				logs = append(logs, entry(next, strings.Repeat("x", 1+rng.IntN(2000))))
				next++
			}
			do = func(b storage.Backend) error { return b.StoreLogs(logs) }
		}
		if err := errors.Join(do(want), do(got)); err != nil {
			t.Fatal(err)
		}
		if rng.IntN(20) == 0 {
			got = openLog(t, d.Crash(rng.IntN(2) == 0))
		}
		compare(t, got, want, next)
	}
}

func compare(t *testing.T, got, want storage.Backend, last uint64) {
	t.Helper()
	same := func(what string, ask func(b storage.Backend) any) {
		t.Helper()
		if g, w := ask(got), ask(want); !reflect.DeepEqual(g, w) {
			t.Fatalf("%s: got %v, want %v", what, g, w)
		}
	}
	same("first", func(b storage.Backend) any { i, err := b.FirstIndex(); return fmt.Sprint(i, err) })
	same("last", func(b storage.Backend) any { i, err := b.LastIndex(); return fmt.Sprint(i, err) })
	for i := last - min(last, 30); i <= last; i++ {
		same(fmt.Sprint("entry ", i), func(b storage.Backend) any {
			var l raft.Log
			err := b.GetLog(i, &l)
			l.AppendedAt = l.AppendedAt.UTC()
			return []any{l, err}
		})
	}
	for _, key := range []string{"a", "b", "c"} {
		same("value "+key, func(b storage.Backend) any { v, err := b.Get([]byte(key)); return []any{v, err} })
	}
}

func TestRaftLogErrors(t *testing.T) {
	r := openLog(t, newDisk(Config{}).FS())
	if _, err := r.Get([]byte("k")); err != raftboltdb.ErrKeyNotFound {
		t.Error(err)
	}
	if _, err := r.GetUint64([]byte("k")); err != raftboltdb.ErrKeyNotFound {
		t.Error(err)
	}
	if err := r.GetLog(1, new(raft.Log)); err != raft.ErrLogNotFound {
		t.Error(err)
	}
	if err := r.Set(nil, nil); err != bbolt.ErrKeyRequired {
		t.Error(err)
	}
	want := &raft.Log{Index: 1}
	got := &raft.Log{Term: 9, Data: []byte("old")}
	if err := errors.Join(r.StoreLog(want), r.GetLog(1, got)); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
	if err := r.StoreLog(want); err != bbolt.ErrDatabaseNotOpen {
		t.Error(err)
	}
}

// TestRaftLogSurvivesCrashes kills the process, or the power, at random times. What was acknowledged is
// there, and what was being written is there in whole or not at all (SD4).
func TestRaftLogSurvivesCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk(Config{Write: Latency{Min: time.Microsecond, Max: time.Millisecond}, Sync: Latency{Min: time.Microsecond, Max: 2 * time.Millisecond}})
		rng := rand.New(rand.NewPCG(9, 9))
		acked, next, torn := map[uint64]string{}, uint64(1), 0
		for range 150 {
			r := openLog(t, d.FS())
			checkLog(t, r, acked, next)
			last, _ := r.LastIndex()
			next = last + 1
			life, power := time.Duration(rng.Int64N(int64(30*time.Millisecond))), rng.IntN(3) > 0
			writing := make(chan struct{})
			go func() {
				defer close(writing)
				next = writeUntilKilled(r, rng, acked, next)
			}()
			time.Sleep(life)
			before := d.FS()
			d.Crash(power)
			<-writing
			if content, err := vfs.ReadFile(d.FS(), logName); err != nil || before == d.FS() {
				t.Fatal(err)
			} else if !whole(content) {
				torn++
			}
		}
		if torn < 10 {
			t.Errorf("only %d crashes tore a record", torn)
		}
	})
}

// writeUntilKilled stores and deletes entries until the FS fails. It returns the index after the last
// entry that may be stored.
func writeUntilKilled(r *RaftLog, rng *rand.Rand, acked map[uint64]string, next uint64) uint64 {
	for {
		var logs []*raft.Log
		for range 1 + rng.IntN(4) {
			logs = append(logs, entry(next+uint64(len(logs)), strings.Repeat("y", rng.IntN(3000))+"."))
		}
		err := r.StoreLogs(logs)
		next += uint64(len(logs))
		if err != nil {
			return next
		}
		for _, l := range logs {
			acked[l.Index] = string(l.Data)
		}
		if rng.IntN(100) == 0 {
			first, _ := r.FirstIndex()
			for i := range acked {
				if i <= next-5 {
					delete(acked, i) // whether or not the deletion survives
				}
			}
			if r.DeleteRange(first, next-5) != nil {
				return next
			}
		}
	}
}

func checkLog(t *testing.T, r *RaftLog, acked map[uint64]string, next uint64) {
	t.Helper()
	last, _ := r.LastIndex()
	for i, want := range acked {
		var l raft.Log
		if err := r.GetLog(i, &l); err != nil || string(l.Data) != want {
			t.Fatalf("entry %d has %d bytes, %v, want %d", i, len(l.Data), err, len(want))
		}
	}
	for i := last; i > 0 && acked[i] == ""; i-- { // of a batch that was not acknowledged
		var l raft.Log
		if err := r.GetLog(i, &l); err == nil {
			acked[i] = string(l.Data)
		}
	}
	if last >= next && last > 0 {
		t.Fatalf("entry %d was never stored", last)
	}
}

// whole reports whether the content consists of valid records.
func whole(content []byte) bool {
	for len(content) > 0 {
		_, _, size, ok := parseRecord(content)
		if !ok {
			return false
		}
		content = content[size:]
	}
	return true
}

// TestRaftLogFindsDamage flips each bit of a log. The error names the record.
func TestRaftLogFindsDamage(t *testing.T) {
	d := newDisk(Config{})
	r := openLog(t, d.FS())
	if err := errors.Join(r.Set([]byte("k"), []byte("v")), r.StoreLog(entry(1, "data")), r.DeleteRange(0, 0), r.StoreLog(entry(2, "more"))); err != nil {
		t.Fatal(err)
	}
	content, err := vfs.ReadFile(d.FS(), logName)
	if err != nil {
		t.Fatal(err)
	}
	for bit := range 8 * len(content) {
		if content[bit/8] == recordPadding && recordPadded(content, bit/8) {
			continue
		}
		mem := vfs.NewMem(vfs.MemOptions{})
		damaged := bytes.Clone(content)
		damaged[bit/8] ^= 1 << (bit % 8)
		mustCreate(t, mem, logName, string(damaged))
		var corrupt *storage.CorruptError
		if _, err := OpenRaftLog(mem, logName); !errors.As(err, &corrupt) || corrupt.Offset > int64(bit/8) {
			t.Fatalf("bit %d of byte %d: %v", bit%8, bit/8, err)
		}
	}
}

// recordPadded reports whether the byte at off is padding.
func recordPadded(content []byte, off int) bool {
	for at := 0; ; {
		_, payload, size, _ := parseRecord(content[at:])
		if off < at+size {
			return off >= at+recordHeader+len(payload)
		}
		at += size
	}
}

// TestRaftLogAfterFailedSync: after a failed sync the process ends, and the next one makes durable what
// it reads.
func TestRaftLogAfterFailedSync(t *testing.T) {
	d := newDisk(Config{})
	r := openLog(t, d.FS())
	d.SetFaults(Faults{Sync: 1})
	if err := r.StoreLog(entry(1, "one")); err == nil {
		t.Fatal("the sync succeeded")
	}
	d.SetFaults(Faults{})
	if err := r.StoreLog(entry(2, "two")); err == nil {
		t.Error("wrote after a failure")
	}
	r = openLog(t, d.Crash(false))
	if err := r.StoreLog(entry(2, "two")); err != nil {
		t.Fatal(err)
	}
	r = openLog(t, d.Crash(true))
	if err := errors.Join(r.GetLog(1, new(raft.Log)), r.GetLog(2, new(raft.Log))); err != nil {
		t.Error(err)
	}
}

func TestRaftLogIsCompacted(t *testing.T) {
	d := newDisk(Config{Capacity: 20 << 20})
	r := openLog(t, d.FS())
	want := map[string][]byte{}
	for i := uint64(1); i <= 3000; i++ {
		key := fmt.Sprint("key", i%3)
		want[key] = []byte(fmt.Sprint(i))
		if err := errors.Join(r.StoreLog(entry(i, strings.Repeat("z", 10_000))), r.Set([]byte(key), want[key])); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 {
			if err := r.DeleteRange(0, i-10); err != nil {
				t.Fatal(err)
			}
		}
	}
	if d.Used() > 3<<20 || d.Used() != r.size {
		t.Errorf("%d bytes used, the log has %d", d.Used(), r.size)
	}
	d.SetCapacity(d.Used() + 100) // a compaction does not fit
	for range 10 {
		_ = r.Set([]byte("key0"), []byte("3000"))
	}
	d.SetCapacity(20 << 20)
	r = openLog(t, d.Crash(true))
	first, _ := r.FirstIndex()
	last, _ := r.LastIndex()
	if first != 2991 || last != 3000 || !maps.EqualFunc(r.values, want, bytes.Equal) {
		t.Errorf("entries %d to %d, values %q", first, last, r.values)
	}
}

// TestFormatExample: the example in the package comment is what is written.
func TestFormatExample(t *testing.T) {
	d := newDisk(Config{})
	if err := openLog(t, d.FS()).Set([]byte("k"), []byte("v")); err != nil {
		t.Fatal(err)
	}
	content, err := vfs.ReadFile(d.FS(), logName)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	var text string
	for _, m := range regexp.MustCompile(`(?m)^//\t00[01]0  (.*)$`).FindAllStringSubmatch(string(doc), -1) {
		text += strings.ReplaceAll(m[1], " ", "")
	}
	if want, err := hex.DecodeString(text); err != nil || !bytes.Equal(content, want) {
		t.Errorf("wrote\n% x, documented is\n% x, %v", content, want, err)
	}
}
