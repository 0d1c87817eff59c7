package place

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

func key(i int) Key {
	return KeyOf([16]byte{byte(i), byte(i >> 8), byte(i >> 16), 7}, uint64(i%3))
}

func fleet(n int, capacity func(i int) int64) []Node {
	nodes := make([]Node, n)
	for i := range nodes {
		nodes[i] = Node{ID: fmt.Sprintf("node-%d", i), CapacityBytes: capacity(i)}
	}
	return nodes
}

func same(int) int64 { return 1 << 40 }

func ids(nodes []Node) string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.ID)
	}
	return strings.Join(names, " ")
}

// PL1. Every later version must compute the same placements.
func TestGolden(t *testing.T) {
	if k := KeyOf([16]byte{0x00, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}, 5); k != goldenKey {
		t.Errorf("key %#x", uint64(k))
	}
	nodes := fleet(7, func(i int) int64 { return int64(i+1) << 40 })
	for i, want := range goldenRanks {
		if got := ids(Rank(key(i), nodes)); got != want {
			t.Errorf("key %d: rank %s, want %s", i, got, want)
		}
		slices.Reverse(nodes) // order does not matter
	}
}

// Each node ranks first for a share of the keys that equals its share of the capacity.
func TestBalance(t *testing.T) {
	const keys = 60_000
	for _, capacity := range []func(int) int64{same, func(i int) int64 { return int64(1+i%4) << 39 }} {
		nodes := fleet(12, capacity)
		total := 0.0
		first, three := map[string]int{}, map[string]int{}
		for _, n := range nodes {
			total += float64(n.CapacityBytes)
		}
		for i := range keys {
			chosen := Choose(key(i), nodes, nil, 3)
			first[chosen[0].ID]++
			for _, n := range chosen {
				three[n.ID]++
			}
		}
		for _, n := range nodes {
			share := float64(n.CapacityBytes) / total
			if off := float64(first[n.ID])/(share*keys) - 1; math.Abs(off) > 0.05 {
				t.Errorf("%s is first for %d keys, %+.1f %%", n.ID, first[n.ID], 100*off)
			}
			// No node can have more than one of three replicas, so the large ones get a little less
			// than their share.
			if off := float64(three[n.ID])/(3*share*keys) - 1; math.Abs(off) > 0.15 {
				t.Errorf("%s has %d replicas, %+.1f %%", n.ID, three[n.ID], 100*off)
			}
		}
	}
}

// When a node leaves, no keys of others move; when one joins, only the keys that it gains.
func TestMovement(t *testing.T) {
	nodes := fleet(10, func(i int) int64 { return int64(2+i%3) << 39 })
	gone := nodes[4].ID
	rest := slices.DeleteFunc(slices.Clone(nodes), func(n Node) bool { return n.ID == gone })
	moved := 0
	const keys = 20_000
	for i := range keys {
		before, after := Choose(key(i), nodes, nil, 3), Choose(key(i), rest, nil, 3)
		for _, n := range before {
			if n.ID != gone && !slices.Contains(after, n) {
				t.Fatalf("key %d: %s became %s without %s", i, ids(before), ids(after), gone)
			}
			if n.ID == gone {
				moved++
			}
		}
	}
	if share := float64(moved) / (3 * keys); share < 0.08 || share > 0.14 {
		t.Errorf("%.1f %% of the replicas moved", 100*share)
	}
}

func TestSmallChangesOfCapacity(t *testing.T) {
	const keys = 20_000
	count := func(change float64) (moved int) {
		nodes := fleet(10, func(i int) int64 { return 1<<40 + int64(i)<<34 + 1<<33 })
		changed := slices.Clone(nodes)
		changed[3].CapacityBytes = int64(float64(changed[3].CapacityBytes) * change)
		for i := range keys {
			if Choose(key(i), nodes, nil, 1)[0].ID != Choose(key(i), changed, nil, 1)[0].ID {
				moved++
			}
		}
		return moved
	}
	if n := count(1.005); n != 0 {
		t.Errorf("%d keys moved as a node got half a percent larger", n)
	}
	// A tenth of the keys are the node's; one percent of all follow ten percent more of its
	// capacity.
	if n := count(1.10); n == 0 || n > keys/80 {
		t.Errorf("%d keys moved as a node got a tenth larger", n)
	}
}

// PL3.
func TestZones(t *testing.T) {
	nodes := fleet(12, same)
	for i := range nodes {
		nodes[i].Zone = fmt.Sprintf("z%d", i%4)
	}
	two := slices.Clone(nodes)
	for i := range two {
		two[i].Zone = fmt.Sprintf("z%d", i%2)
	}
	for i := range 2000 {
		zones := func(nodes []Node) map[string]int {
			m := map[string]int{}
			for _, n := range nodes {
				m[n.Zone]++
			}
			return m
		}
		if chosen := Choose(key(i), nodes, nil, 4); len(zones(chosen)) != 4 {
			t.Fatalf("key %d: %v", i, chosen)
		}
		if z := zones(Choose(key(i), two, nil, 4)); z["z0"] != 2 || z["z1"] != 2 {
			t.Fatalf("key %d: zones %v", i, z)
		}
		first := nodes[i%12]
		for _, n := range Choose(key(i), nodes, []string{first.ID}, 3) {
			if n.Zone == first.Zone || n.ID == first.ID {
				t.Fatalf("key %d: %s beside %s", i, n.ID, first.ID)
			}
		}
		// With as many replicas as zones, the best node of each zone is chosen.
		want := map[string]bool{}
		for _, n := range Rank(key(i), nodes) {
			if !want[n.Zone] {
				want[n.Zone] = true
				if !slices.Contains(Choose(key(i), nodes, nil, 4), n) {
					t.Fatalf("key %d: the best of zone %s is left out", i, n.Zone)
				}
			}
		}
	}
}

// PL2.
func TestWhoIsLeftOut(t *testing.T) {
	nodes := fleet(5, same)
	nodes[1].Full, nodes[2].Draining, nodes[3].CapacityBytes = true, true, 0
	for i := range 200 {
		if got := Choose(key(i), nodes, []string{"node-0", "elsewhere"}, 3); ids(got) != "node-4 node-3" {
			t.Fatalf("chose %s", ids(got))
		}
		if got := Rank(key(i), nodes); len(got) != 5 {
			t.Fatalf("rank %s", ids(got))
		}
	}
	if got := Choose(key(1), nil, nil, 3); len(got) != 0 {
		t.Errorf("chose %s of none", ids(got))
	}
}

func TestKeysDiffer(t *testing.T) {
	seen := map[Key]bool{}
	for i := range 1000 {
		for index := range uint64(10) {
			seen[KeyOf([16]byte{15: byte(i), 0: byte(i >> 8)}, index)] = true
		}
	}
	if len(seen) != 10_000 {
		t.Errorf("%d keys of 10000", len(seen))
	}
}
