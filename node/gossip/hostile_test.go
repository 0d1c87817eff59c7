package gossip_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/steledb/stele/internal/loglimit"
	"github.com/steledb/stele/internal/testseed"
	"github.com/steledb/stele/node/gossip"
)

// seeded returns a random source with the seed of the test.
func seeded(t testing.TB) *rand.Rand { return rand.New(rand.NewPCG(testseed.New(t), 0)) }

func soak() int {
	times, _ := strconv.Atoi(os.Getenv("STELE_SOAK"))
	return max(times, 1)
}

// open returns the number of connections that the other side has not closed soon after.
func open(conns []net.Conn) int {
	var wait sync.WaitGroup
	var mu sync.Mutex
	n := 0
	for _, c := range conns {
		wait.Go(func() {
			if !ended(c, time.Second) {
				mu.Lock()
				n++
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	return n
}

// TestStreamsBounded (G5): of the streams of unknown hosts a bounded number stays, of one host and
// of all. Members still exchange lists, and a new one is accepted. Open streams end soon, even if
// they trickle.
func TestStreamsBounded(t *testing.T) {
	for _, c := range []struct {
		name        string
		hosts, each int
		most        int
		trickle     bool
	}{
		{"one host", 1, 100, gossip.HostStreamsMax, false},
		{"many hosts", 50, 2, gossip.UnknownStreamsMax, false},
		{"slow", 1, 20, gossip.HostStreamsMax, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			log := &lines{}
			a, b := start(t, config("a", log)), start(t, config("b", nil))
			join(t, b, a)
			within(t, 5*time.Second, a, "b is not there", sees(a, "b", gossip.Alive))
			time.Sleep(1100 * time.Millisecond) // until a reads the hosts of members again
			var conns []net.Conn
			began := time.Now()
			for i := range c.hosts * c.each {
				if conn := dialFrom(t, host(i%c.hosts), a.Address()); conn != nil {
					conns = append(conns, conn)
				}
			}
			if c.trickle {
				for _, conn := range conns {
					go func() { // until the connection is closed
						for b := range bytes.Lines(labelled(crypt(1<<20), bytes.Repeat([]byte{'\n'}, 1<<20))) {
							if _, err := conn.Write(b); err != nil {
								return
							}
							time.Sleep(20 * time.Millisecond)
						}
					}()
				}
			}
			fresh := start(t, config("c", nil))
			join(t, fresh, a)
			join(t, b, a)
			within(t, 5*time.Second, a, "c is not there", sees(a, "c", gossip.Alive))
			within(t, 5*time.Second, b, "c is not there", sees(b, "c", gossip.Alive))
			if n := open(conns); n > c.most || n == 0 {
				t.Errorf("%d streams are open, want %d at most", n, c.most)
			}
			if n := a.Streams(); n > c.most+2 { // streams of b and c
				t.Errorf("%d streams count", n)
			}
			if n := a.Stats().RefusedStreams; n < int64(c.hosts*c.each-c.most) {
				t.Errorf("%d streams counted as refused", n)
			}
			for _, conn := range conns {
				if !ended(conn, 10*time.Second) {
					t.Fatal("a stream stays open")
				}
			}
			if took := time.Since(began); took > 6*time.Second {
				t.Errorf("it took %v until all had ended", took)
			}
			for deadline := time.Now().Add(5 * time.Second); a.Streams() != 0; time.Sleep(10 * time.Millisecond) {
				if time.Now().After(deadline) {
					t.Fatalf("%d streams are still there", a.Streams())
				}
			}
			if n := log.count("level="); n > 30 {
				t.Errorf("%d lines:\n%s", n, log)
			}
			if log.count("gossip stream rejected") == 0 {
				t.Errorf("nothing was logged:\n%s", log)
			}
		})
	}
}

// TestLargestList: the list of the largest supported cluster is accepted, and no longer one.
func TestLargestList(t *testing.T) {
	open, keyed := config("a", nil), config("a", nil)
	open.Keys = nil
	a, b := start(t, open), start(t, keyed)
	const nodes = 2 * 1000 // an earlier run of each, too
	notes := gossip.NotesMax * 31
	fits, long := labelled(list(nodes, notes)), labelled(list(nodes+200, 0))
	for i := range nodes + 200 {
		if i < nodes {
			fits = append(fits, state(i)...)
		}
		long = append(long, state(i)...)
	}
	fits = append(fits, make([]byte, notes)...)
	for what, c := range map[string]struct {
		to    *gossip.Ring
		sent  []byte
		first int  // of the answer
		lost  bool // possible: not all that was sent was read
	}{
		"fits": {a, fits, 6, false}, "is too long": {a, long, 13, true}, "announces too many nodes": {a, labelled(list(1<<20, 0), state(0)), 13, false},
		"announces too many notes": {a, labelled(list(1, 20<<20), state(0)), 13, false},
		"announces too many bytes": {b, labelled(crypt(gossip.StreamBytesMax + 1)), 10, false},
	} {
		before := c.to.Stats().RefusedStreams
		conn := dialFrom(t, host(0), c.to.Address())
		go func() { _, _ = conn.Write(c.sent) }()
		_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
		answer, err := io.ReadAll(conn)
		if first := int(append(answer, 0)[0]); (!c.lost || len(answer) > 0) && first != c.first {
			t.Errorf("%s: the answer is %.100q, %v", what, answer, err)
		}
		if refused := c.to.Stats().RefusedStreams > before; refused == (what == "fits") {
			t.Errorf("%s: refused: %v", what, refused)
		}
	}
}

// TestFull (I13, G5): a member whose stream budget is used up stays within its memory, and accepts
// new members.
func TestFull(t *testing.T) {
	for _, c := range []struct{ hosts, each, bytes int }{{8, 1, 1200 << 10}, {40, 2, 300 << 10}, {1, 100, 1 << 20}} {
		for _, claim := range []int{gossip.StreamBytesMax, 20 << 20} {
			t.Run(fmt.Sprintf("%d hosts, %d each of %d bytes, %d claimed", c.hosts, c.each, c.bytes, claim), func(t *testing.T) {
				a := startSubprocess(t, false, memoryBound)
				b := start(t, config("b", nil))
				joinAt(t, b, a.address)
				before := a.condition(t)
				frame := labelled(crypt(claim), bytes.Repeat(garbage(seeded(t), 50<<10), c.bytes/(50<<10)))
				for i := range c.hosts * c.each {
					if conn := dialFrom(t, host(i%c.hosts), a.address); conn != nil {
						go func() { _, _ = conn.Write(frame) }()
					}
				}
				fresh := start(t, config("c", nil))
				joinAt(t, fresh, a.address)
				within(t, 5*time.Second, b, "c is not there", sees(b, "c", gossip.Alive))
				for range gossip.HostStreamsMax { // the part left for hosts of members
					if conn := dialFrom(t, net.IPv4(127, 0, 0, 1), a.address); conn != nil {
						go func() { _, _ = conn.Write(frame) }()
					}
				}
				time.Sleep(200 * time.Millisecond) // until it has come
				after := a.condition(t)
				t.Logf("%d MiB more memory, %d streams open, %+v", after.more(before)>>20, after.Streams, after.Stats)
				if more := after.more(before); more > memoryBound+memorySlack {
					t.Errorf("it took %d MiB more", more>>20)
				}
				if after.Stats.RefusedStreams == 0 {
					t.Error("nothing was rejected: the budget is not used up")
				}
			})
		}
	}
}

// TestAllAtOnce: many members on one host find each other, although all join the same one at once
// and their host reaches its maximum of streams.
func TestAllAtOnce(t *testing.T) {
	const n = 4 * gossip.HostStreamsMax
	first := start(t, config("first", nil))
	rings := []*gossip.Ring{first}
	for i := range n {
		c := config(fmt.Sprintf("n%02d", i), nil)
		c.Seeds = func() []string { return []string{first.Address()} }
		rings = append(rings, start(t, c))
	}
	for range gossip.HostStreamsMax {
		dialFrom(t, net.IPv4(127, 0, 0, 1), first.Address())
	}
	var wait sync.WaitGroup
	for _, r := range rings[1:] {
		wait.Go(func() { _ = r.Join(context.Background(), []string{first.Address()}) })
	}
	wait.Wait()
	took := all(t, rings, func(r *gossip.Ring) bool { return alive(r) == n+1 })
	t.Logf("all know all after %v; %+v", took[n], first.Stats())
	if first.Stats().RefusedStreams < n/2 {
		t.Error("hardly any join was rejected")
	}
}

// TestPackets: without a key no compressed packet is accepted; with or without one, no packet that
// is too long.
func TestPackets(t *testing.T) {
	small := bomb(1000)
	for what, c := range map[string]struct {
		packet       []byte
		keyed, plain bool // taken
	}{
		"nothing":          {nil, true, true},
		"a ping":           {labelled([]byte{0, 0x80}), true, true},
		"1400 bytes":       {labelled(make([]byte, 1400)), true, true},
		"too many bytes":   {labelled(make([]byte, 2100)), false, false},
		"compressed":       {labelled(small), true, false},
		"with a checksum":  {labelled([]byte{12, 0, 0, 0, 0}, small), true, false},
		"among others":     {labelled(many([]byte{0, 0x80}, small, nil)), true, false},
		"both":             {labelled([]byte{12, 0, 0, 0, 0}, many([]byte{0, 0x80}, small)), true, false},
		"many within many": {labelled(many(many([]byte{0, 0x80}))), true, false},
		"only two":         {labelled(many([]byte{0, 0x80}, []byte{4, 0x80})), true, true},
		"cut":              {labelled(many([]byte{0, 0x80}, small)[:7]), true, true},
		"no label":         {small, true, false},
		"a huge value":     {labelled([]byte("\x04\x81\xa1x\xc9\x7f\xff\xff\xff\x01")), true, false},
		"half a label":     {[]byte{0xf4, 255, 9}, true, true},
	} {
		if err := gossip.CheckPacket(c.packet, true); (err == nil) != c.keyed {
			t.Errorf("%s, with a key: %v", what, err)
		}
		if err := gossip.CheckPacket(c.packet, false); (err == nil) != c.plain {
			t.Errorf("%s, without: %v", what, err)
		}
	}
}

// TestRequests (G5): without a key, indirect probe requests for nodes that do not answer use
// bounded memory.
func TestRequests(t *testing.T) {
	a := startSubprocess(t, true, memoryBound)
	before := a.condition(t)
	requests := slices.Repeat([][]byte{request()}, 30)
	shower(t, host(0), a.address, slices.Repeat([][]byte{labelled(many(requests...))}, 300)...)
	for deadline := time.Now().Add(5 * time.Second); a.condition(t).Stats.DroppedPackets == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("nothing was dropped")
		}
	}
	if n := a.condition(t).Goroutines - before.Goroutines; n > gossip.RequestsMax+10 {
		t.Errorf("%d goroutines more", n)
	}
}

// TestCloseInFlood: a member closes while packets and streams arrive, and leaves no goroutine.
func TestCloseInFlood(t *testing.T) {
	for range 5 {
		before := runtime.NumGoroutine()
		r := start(t, config("a", nil))
		flood, stop := context.WithCancel(context.Background())
		var wait sync.WaitGroup
		wait.Go(func() {
			for flood.Err() == nil {
				shower(t, host(0), r.Address(), slices.Repeat([][]byte{labelled()}, 100)...)
			}
		})
		wait.Go(func() {
			for d := (net.Dialer{LocalAddr: &net.TCPAddr{IP: host(1)}}); flood.Err() == nil; {
				if conn, err := d.Dial("tcp", r.Address()); err == nil {
					conn.Close()
				}
			}
		})
		time.Sleep(20 * time.Millisecond)
		closed := make(chan error, 1)
		go func() { closed <- r.Close() }()
		select {
		case err := <-closed:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Second):
			t.Error("it does not close")
		}
		stop()
		wait.Wait()
		for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d goroutines, before %d", runtime.NumGoroutine(), before)
			}
		}
	}
}

// TestHostileGossip (I11, I13, G5): whatever many unknown hosts send, in the clear and as if
// encrypted, a member stays within its memory, logs little, accepts new members, and works as
// before afterwards. 1,000 streams and 18,000 packets, and STELE_SOAK times that.
func TestHostileGossip(t *testing.T) {
	for _, open := range []bool{false, true} {
		t.Run(map[bool]string{false: "with a key", true: "without"}[open], func(t *testing.T) {
			rnd := seeded(t)
			a := startSubprocess(t, open, memoryBound)
			cfg := config("b", nil)
			if open {
				cfg.Keys = nil
			}
			b := start(t, cfg)
			joinAt(t, b, a.address)
			within(t, 5*time.Second, b, "the one apart is not there", sees(b, "apart", gossip.Alive))
			before := a.condition(t)

			h := horde{at: a.address, gone: make(chan struct{})}
			for i := range 4 {
				own := rand.New(rand.NewPCG(rnd.Uint64(), uint64(i)))
				h.wait.Go(func() { h.rage(t, own, 250*soak()) })
			}
			cfg.Self.ID = "c"
			c := start(t, cfg)
			joinAt(t, c, a.address)
			within(t, 10*time.Second, c, "b is not there", sees(c, "b", gossip.Alive))
			within(t, 10*time.Second, b, "c is not there", sees(b, "c", gossip.Alive))
			h.wait.Wait()
			during := a.condition(t)
			close(h.gone)

			after := a.condition(t)
			for deadline := time.Now().Add(10 * time.Second); after.Streams != 0 || after.Goroutines > before.Goroutines+5; after = a.condition(t) {
				if time.Now().After(deadline) {
					t.Fatalf("%d streams and %d goroutines are left, before %d", after.Streams, after.Goroutines, before.Goroutines)
				}
				time.Sleep(20 * time.Millisecond)
			}
			t.Logf("%d MiB more memory, %d streams open at the end, %+v", after.more(before)>>20, during.Streams, after.Stats)
			if more := after.more(before); more > memoryBound+memorySlack {
				t.Errorf("it took %d MiB more", more>>20)
			}
			if n := strings.Count(after.Log, "level="); n > 2*loglimit.Most {
				t.Errorf("%d lines:\n%s", n, after.Log)
			}
			within(t, 5*time.Second, b, "the one apart is not there", sees(b, "apart", gossip.Alive))
			if after.Stats.RefusedStreams == 0 || after.Stats.DroppedPackets == 0 {
				t.Errorf("%+v", after.Stats)
			}
		})
	}
}

const (
	// memoryBound is the memory of gossip for streams and packets.
	memoryBound = 16 << 20
	// memorySlack: Go takes memory from the system in steps of 4 MiB, its collector is late by as
	// much, and parts of the program itself become resident.
	memorySlack = 10 << 20
)

func joinAt(t testing.TB, r *gossip.Ring, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := r.Join(ctx, []string{address}); err != nil {
		t.Fatal(err)
	}
}

// horde is unknown hosts, many of them.
type horde struct {
	at   string
	wait sync.WaitGroup
	gone chan struct{}
}

// rage opens streams, some of which stay, and sends packets in between.
func (h *horde) rage(t *testing.T, rnd *rand.Rand, streams int) {
	var bring, send [][]byte
	for i := range streams {
		if i%25 == 0 {
			bring, send = frames(rnd), packets(rnd)
		}
		from := host(rnd.IntN(500))
		shower(t, from, h.at, send...)
		conn := dialFrom(t, from, h.at)
		if conn == nil {
			continue
		}
		go func() {
			<-h.gone
			conn.Close()
		}()
		b := bring[rnd.IntN(len(bring))]
		if stays := rnd.IntN(2) == 0; stays {
			go func() { _, _ = conn.Write(b) }()
			continue
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Millisecond))
		_, _ = conn.Write(b)
		_, _ = io.Copy(io.Discard, conn)
		conn.Close()
	}
}
