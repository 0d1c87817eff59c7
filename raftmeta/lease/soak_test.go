package lease

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/steledb/stele/raftmeta/fsm"

	"github.com/steledb/stele/raftmeta/api"
)

// TestSizes measures a namespace of 1,000,000 files and 100,000 sessions, each with a lock and four
// ephemeral files: memory, snapshot, restore, and the start of a lease manager. Unless STELE_SOAK
// is set, the size is a tenth of that.
func TestSizes(t *testing.T) {
	files, sessions := 100_000, api.SessionsMax/10
	if os.Getenv("STELE_SOAK") != "" {
		files, sessions = 1_000_000, api.SessionsMax
	}
	before := heapBytes()
	m := fsm.NewMachine(func(err error) { t.Error(err) })
	var filled *fsm.Namespace
	m.View(func(ns *fsm.Namespace, _ uint64) { filled = ns })
	fill(t, filled, files, sessions)
	machineBytes := heapBytes() - before

	start := time.Now()
	var b bytes.Buffer
	if err := fsm.WriteSnapshot(&b, filled, 1); err != nil {
		t.Fatal(err)
	}
	wrote := time.Since(start)
	start = time.Now()
	ns, _, err := fsm.ReadSnapshot(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	read := time.Since(start)
	got := ns.Counts()
	if got != filled.Counts() || got.Sessions != sessions {
		t.Errorf("%+v", got)
	}
	before = heapBytes()
	start = time.Now()
	r := &soloReplica{t: t, machine: m}
	r.term.Store(1)
	k := newManager(r, m, NewClock(), 1)
	began := time.Since(start)
	keeperBytes := heapBytes() - before
	k.shutdown()

	greedy := fillSession(t, filled)
	start = time.Now()
	filled.Apply(1<<41+1, 1, &fsm.Command{Op: fsm.OpExpireSession, Sessions: []api.SessionID{greedy}})
	t.Logf("%d files, %d sessions: %d MiB (%d bytes a file), snapshot of %d MiB written in %v and read in %v; lease manager %d MiB in %v; a session that held 10,000 ended in %v",
		got.Files, sessions, machineBytes>>20, machineBytes/int64(got.Files), b.Len()>>20, wrote, read, keeperBytes>>20, began, time.Since(start))
	runtime.KeepAlive(k)
	if perFile := machineBytes / int64(got.Files); perFile > 1200 {
		t.Errorf("%d bytes a file", perFile)
	}
}

// fillSession opens a session with the maximum of holds.
func fillSession(t *testing.T, ns *fsm.Namespace) api.SessionID {
	const first = 1 << 40
	ns.Apply(first, 1, &fsm.Command{Op: fsm.OpExpireSession, Sessions: []api.SessionID{1}}) // to free capacity
	ns.Apply(first+1, 1, &fsm.Command{Op: fsm.OpOpenSession, Duration: time.Second})
	for i := range uint64(api.HoldsMax) {
		c := fsm.Command{Op: fsm.OpAcquire, Session: first + 1, Path: fmt.Sprintf("/greedy/%d", i), Mode: api.Exclusive, Duration: time.Second}
		if i%2 == 0 {
			c = fsm.Command{Op: fsm.OpSet, Session: first + 1, Path: c.Path, Ephemeral: true, Generation: 0}
		}
		if r := ns.Apply(first+2+i, 1, &c); r.Code != fsm.CodeDone {
			t.Fatalf("%+v: %+v", c, r)
		}
	}
	one := fsm.Command{Op: fsm.OpAcquire, Session: first + 1, Path: "/one-more", Mode: api.Exclusive}
	if r := ns.Apply(1<<41, 1, &one); r.Code != fsm.CodeHolds {
		t.Errorf("one more than it may hold: %+v", r)
	}
	return first + 1
}

// fill creates sessions, each with a lock and four ephemeral files, and other files of 100 bytes.
func fill(t *testing.T, ns *fsm.Namespace, files, sessions int) {
	index := uint64(0)
	do := func(c fsm.Command) {
		index++
		if r := ns.Apply(index, 1, &c); r.Code != fsm.CodeDone {
			t.Fatalf("%+v: %+v", c, r)
		}
	}
	for i := range sessions {
		do(fsm.Command{Op: fsm.OpOpenSession, Name: fmt.Sprintf("node-%d.example.com", i), Duration: 10 * time.Second})
		id := api.SessionID(index)
		do(fsm.Command{Op: fsm.OpAcquire, Session: id, Path: fmt.Sprintf("/servers/node-%d", i), Mode: api.Exclusive, Duration: time.Second})
		for j := range 4 {
			do(fsm.Command{Op: fsm.OpSet, Session: id, Ephemeral: true, Path: fmt.Sprintf("/live/node-%d/%d", i, j), Generation: api.AnyGeneration, Data: []byte("address")})
		}
	}
	for i := ns.Counts().Files; i < files; i++ {
		do(fsm.Command{Op: fsm.OpSet, Path: fmt.Sprintf("/tables/d%d/file-%d", i/1000, i), Generation: api.AnyGeneration, Data: bytes.Repeat([]byte("x"), 100)})
	}
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var st runtime.MemStats
	runtime.ReadMemStats(&st)
	return int64(st.HeapAlloc)
}
