package place

import (
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"strings"
)

// Node describes a node for placement.
type Node struct {
	ID, Zone       string
	CapacityBytes  int64
	Full, Draining bool // excluded by Choose
}

// Key is a hash that identifies what is placed, see KeyOf.
type Key uint64

// KeyOf returns the key of extent index of a blob or log.
func KeyOf(id [16]byte, index uint64) Key {
	le := binary.LittleEndian
	h := mix(le.Uint64(id[:8]))
	h = mix(h ^ le.Uint64(id[8:]))
	return Key(mix(h ^ index))
}

// Rank returns all nodes, including full and draining ones, in their order for the key. Readers
// look for an extent in this order.
func Rank(key Key, nodes []Node) []Node {
	type scored struct {
		node  Node
		score float64
	}
	all := make([]scored, len(nodes))
	for i, n := range nodes {
		all[i] = scored{n, score(key, n)}
	}
	slices.SortFunc(all, func(a, b scored) int {
		switch {
		case a.score > b.score:
			return -1
		case a.score < b.score:
			return 1
		}
		return strings.Compare(a.node.ID, b.node.ID)
	})
	ranked := make([]Node, len(all))
	for i := range all {
		ranked[i] = all[i].node
	}
	return ranked
}

// Choose returns up to n nodes for the key in addition to those taken, in order of preference. It
// picks the highest rank among the zones with the fewest replicas. A taken node that is not in
// nodes has no known zone and is not counted.
func Choose(key Key, nodes []Node, taken []string, n int) []Node {
	inZone := make(map[string]int)
	var open []Node
	for _, node := range Rank(key, nodes) {
		switch {
		case slices.Contains(taken, node.ID):
			inZone[node.Zone]++
		case !node.Full && !node.Draining:
			open = append(open, node)
		}
	}
	var chosen []Node
	for len(chosen) < n && len(open) > 0 {
		best := 0
		for i, node := range open {
			if inZone[node.Zone] < inZone[open[best].Zone] {
				best = i
			}
		}
		chosen = append(chosen, open[best])
		inZone[open[best].Zone]++
		open = slices.Delete(open, best, best+1)
	}
	return chosen
}

// ChooseFull returns chosen, extended to up to n nodes with full ones.
func ChooseFull(key Key, nodes []Node, taken []string, chosen []Node, n int) []Node {
	taken = slices.Clone(taken)
	for _, x := range chosen {
		taken = append(taken, x.ID)
	}
	all := slices.Clone(nodes)
	for i := range all {
		all[i].Full = false
	}
	return append(chosen, Choose(key, all, taken, n-len(chosen))...)
}

// score returns the node's score for the key. Nodes without capacity rank last.
func score(key Key, n Node) float64 {
	h := mix(uint64(key) ^ hashOf(n.ID))
	// 53 bits, centered in their interval: never 0 or 1.
	u := (float64(h>>11) + 0.5) / (1 << 53)
	return -weight(n.CapacityBytes) / math.Log(u)
}

// weight rounds a capacity down to six significant bits.
func weight(capacity int64) float64 {
	if capacity <= 0 {
		return 0
	}
	c := uint64(capacity)
	if drop := bits.Len64(c) - 6; drop > 0 {
		c = c >> drop << drop
	}
	return float64(c)
}

// hashOf is the 64-bit FNV-1a hash, mixed.
func hashOf(id string) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(id) {
		h = (h ^ uint64(id[i])) * 0x100000001b3
	}
	return mix(h)
}

// mix is the finalizer of SplitMix64 (Steele, Lea and Flood, 2014): each input bit changes half of
// the output bits.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
