package raftmeta

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

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
	m := newMachine(func(err error) { t.Error(err) })
	fill(t, m.mu.ns, files, sessions)
	machineBytes := heapBytes() - before

	start := time.Now()
	var b bytes.Buffer
	if err := writeSnapshot(&b, m.mu.ns, 1); err != nil {
		t.Fatal(err)
	}
	wrote := time.Since(start)
	start = time.Now()
	ns, _, err := readSnapshot(bytes.NewReader(b.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	read := time.Since(start)
	if ns.sessions.Len() != sessions || ns.files != m.mu.ns.files {
		t.Errorf("%d sessions, %d files", ns.sessions.Len(), ns.files)
	}
	before = heapBytes()
	start = time.Now()
	r := &soloReplica{t: t, machine: m}
	r.term.Store(1)
	k := newLeaseManager(r, m, newMachineClock(), 1)
	began := time.Since(start)
	keeperBytes := heapBytes() - before
	k.shutdown()

	greedy := fillSession(t, m.mu.ns)
	start = time.Now()
	m.mu.ns.endSession(1<<41, greedy, true)
	t.Logf("%d files, %d sessions: %d MiB (%d bytes a file), snapshot of %d MiB written in %v and read in %v; lease manager %d MiB in %v; a session that held 10,000 ended in %v",
		ns.files, sessions, machineBytes>>20, machineBytes/int64(ns.files), b.Len()>>20, wrote, read, keeperBytes>>20, began, time.Since(start))
	runtime.KeepAlive(k)
	if perFile := machineBytes / int64(ns.files); perFile > 1200 {
		t.Errorf("%d bytes a file", perFile)
	}
}

// fillSession opens a session with the maximum of holds.
func fillSession(t *testing.T, ns *namespace) api.SessionID {
	const first = 1 << 40
	ns.endSession(first, 1, true) // to free capacity
	ns.apply(first+1, 1, &command{op: opOpenSession, duration: time.Second})
	for i := range uint64(api.HoldsMax) {
		c := command{op: opAcquire, session: first + 1, path: fmt.Sprintf("/greedy/%d", i), mode: api.Exclusive, duration: time.Second}
		if i%2 == 0 {
			c = command{op: opSet, session: first + 1, path: c.path, ephemeral: true, generation: 0}
		}
		if r := ns.apply(first+2+i, 1, &c); r.code != codeDone {
			t.Fatalf("%+v: %+v", c, r)
		}
	}
	one := command{op: opAcquire, session: first + 1, path: "/one-more", mode: api.Exclusive}
	if r := ns.apply(1<<41, 1, &one); r.code != codeHolds {
		t.Errorf("one more than it may hold: %+v", r)
	}
	return first + 1
}

// fill creates sessions, each with a lock and four ephemeral files, and other files of 100 bytes.
func fill(t *testing.T, ns *namespace, files, sessions int) {
	index := uint64(0)
	do := func(c command) {
		index++
		if r := ns.apply(index, 1, &c); r.code != codeDone {
			t.Fatalf("%+v: %+v", c, r)
		}
	}
	for i := range sessions {
		do(command{op: opOpenSession, name: fmt.Sprintf("node-%d.example.com", i), duration: 10 * time.Second})
		id := api.SessionID(index)
		do(command{op: opAcquire, session: id, path: fmt.Sprintf("/servers/node-%d", i), mode: api.Exclusive, duration: time.Second})
		for j := range 4 {
			do(command{op: opSet, session: id, ephemeral: true, path: fmt.Sprintf("/live/node-%d/%d", i, j), generation: AnyGeneration, data: []byte("address")})
		}
	}
	for i := ns.files; i < files; i++ {
		do(command{op: opSet, path: fmt.Sprintf("/tables/d%d/file-%d", i/1000, i), generation: AnyGeneration, data: bytes.Repeat([]byte("x"), 100)})
	}
}

func heapBytes() int64 {
	runtime.GC()
	runtime.GC()
	var st runtime.MemStats
	runtime.ReadMemStats(&st)
	return int64(st.HeapAlloc)
}
