package simnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/memberlist"
)

func (w *world) gossip(h *Host, address string) *Gossip {
	w.t.Helper()
	g, err := h.Gossip(address)
	if err != nil {
		w.t.Fatal(err)
	}
	return g
}

// exchange sends numbered packets from a to b and returns the numbers in the order of arrival.
func (w *world) exchange(link Link, count int) (arrived []int) {
	w.t.Helper()
	w.SetLink(w.a, w.b, link)
	from, to := w.gossip(w.a, "10.0.0.1:9000"), w.gossip(w.b, "10.0.0.2:9000")
	defer func() { _ = errors.Join(from.Shutdown(), to.Shutdown()) }()
	for i := range count {
		if _, err := from.WriteTo(binary.BigEndian.AppendUint32(nil, uint32(i)), "10.0.0.2:9000"); err != nil {
			w.t.Fatal(err)
		}
		time.Sleep(time.Millisecond)
	}
	for {
		select {
		case p := <-to.PacketCh():
			if p.From.String() != "10.0.0.1:9000" {
				w.t.Errorf("packet from %v", p.From)
			}
			arrived = append(arrived, int(binary.BigEndian.Uint32(p.Buf)))
		case <-time.After(time.Second):
			return arrived
		}
	}
}

func TestPackets(t *testing.T) {
	inWorld(t, Config{}, func(t *testing.T, w *world) {
		if got := w.exchange(Link{Delay: time.Millisecond}, 100); len(got) != 100 || !slices.IsSorted(got) {
			t.Errorf("perfect link: %v", got)
		}
		if got := w.exchange(Link{Loss: 0.3}, 500); len(got) < 300 || len(got) > 400 {
			t.Errorf("loss: %d packets of 500", len(got))
		}
		if got := w.exchange(Link{Duplicate: 0.3}, 500); len(got) < 600 || len(got) > 700 {
			t.Errorf("duplication: %d packets of 500", len(got))
		}
		if got := w.exchange(Link{Reorder: 0.1}, 500); len(got) != 500 || slices.IsSorted(got) {
			t.Errorf("reordering: %d packets, sorted %t", len(got), slices.IsSorted(got))
		}
		w.Cut(w.a, w.b)
		if got := w.exchange(Link{}, 10); len(got) != 0 {
			t.Errorf("cut: %v", got)
		}
	})
}

func TestPacketQueue(t *testing.T) {
	inWorld(t, Config{PacketQueue: 8}, func(t *testing.T, w *world) {
		if got := w.exchange(Link{}, 100); len(got) > 10 || w.count(PacketDropped) != 100-len(got) {
			t.Errorf("%d packets from a queue of 8, %d dropped", len(got), w.count(PacketDropped))
		}
		g := w.gossip(w.a, ":9000")
		if _, err := g.WriteTo(make([]byte, packetMax+1), "10.0.0.2:9000"); !errors.Is(err, syscall.EMSGSIZE) {
			t.Error(err)
		}
		if _, err := w.a.Gossip(":9000"); !errors.Is(err, syscall.EADDRINUSE) {
			t.Error(err)
		}
		if ip, port, err := g.FinalAdvertiseAddr("", 0); ip.String() != "10.0.0.1" || port != 9000 || err != nil {
			t.Error(ip, port, err)
		}
		w.a.Kill(false)
		if _, err := g.WriteTo(nil, "10.0.0.2:9000"); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		if err := g.Shutdown(); err != nil {
			t.Error(err)
		}
		_ = w.gossip(w.a, ":9000").Shutdown()
	})
}

// TestMemberlist: members find each other, and one that loses power.
func TestMemberlist(t *testing.T) {
	link := Link{Delay: time.Millisecond, Jitter: 5 * time.Millisecond, Loss: 0.05, Duplicate: 0.05, Reorder: 0.05}
	inWorld(t, Config{Link: link}, func(t *testing.T, w *world) {
		var all []*memberlist.Memberlist
		for i := range 4 {
			g := w.gossip(w.Host(fmt.Sprintf("10.0.1.%d", i)), ":7946")
			c := memberlist.DefaultLANConfig()
			c.Name, c.Transport, c.Logger = fmt.Sprint("n", i), g, log.New(io.Discard, "", 0)
			c.AdvertiseAddr, c.AdvertisePort = g.host.IP(), g.GetAutoBindPort()
			m, err := memberlist.Create(c)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, m)
			if _, err := m.Join([]string{"10.0.1.0:7946"}); i > 0 && err != nil {
				t.Error(err)
			}
		}
		time.Sleep(10 * time.Second)
		for i, m := range all {
			if m.NumMembers() != 4 {
				t.Errorf("n%d sees %d members", i, m.NumMembers())
			}
		}
		w.Host("10.0.1.3").Kill(true)
		time.Sleep(time.Minute)
		for i, m := range all {
			if i < 3 && m.NumMembers() != 3 {
				t.Errorf("n%d sees %d members after a power loss", i, m.NumMembers())
			}
			if err := m.Shutdown(); err != nil {
				t.Error(err)
			}
		}
		time.Sleep(time.Minute) // its goroutines end with their next turn
	})
}

// history returns a hash of the events of one run (SN1).
func history(t *testing.T, seed uint64) (sum uint64) {
	synctest.Test(t, func(t *testing.T) {
		h := fnv.New64a()
		link := Link{Delay: time.Millisecond, Jitter: time.Millisecond, Loss: 0.1, Duplicate: 0.1, Reorder: 0.1, Bandwidth: 1 << 20}
		n := New(Config{Rand: rand.New(rand.NewPCG(seed, 0)), Link: link, Events: func(e Event) { fmt.Fprintln(h, e) }})
		defer n.Close()
		var hosts []*Host
		var sockets []*Gossip
		for i := range 5 {
			host := n.Host(fmt.Sprintf("10.0.0.%d", i))
			g, err := host.Gossip(":9000")
			if err != nil {
				t.Fatal(err)
			}
			hosts, sockets = append(hosts, host), append(sockets, g)
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		for range 500 {
			from, to := rng.IntN(5), rng.IntN(5)
			_, _ = sockets[from].WriteTo(make([]byte, rng.IntN(1000)), hosts[to].IP()+":9000")
			if c, err := hosts[from].Dial(t.Context(), hosts[to].IP()+":9000"); err == nil {
				_, _ = c.Write(make([]byte, rng.IntN(100_000)))
				_ = c.Close()
			}
			if rng.IntN(20) == 0 {
				n.Cut(hosts[to], hosts[from])
				time.AfterFunc(time.Second, func() { n.Heal(hosts[to], hosts[from]) })
			}
		}
		for i, host := range hosts {
			host.Kill(i%2 == 0)
			_ = sockets[i].Shutdown()
		}
		time.Sleep(time.Hour)
		n.Close()
		sum = h.Sum64()
	})
	return sum
}

func TestEqualSeedsEqualEvents(t *testing.T) {
	first := history(t, 1)
	for range 3 {
		if again := history(t, 1); again != first {
			t.Fatal("two runs with one seed differ")
		}
	}
	if history(t, 2) == first {
		t.Error("two seeds cause one history")
	}
}
