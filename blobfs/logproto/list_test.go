package logproto

import (
	"math"
	"strings"
	"testing"
)

// TestListBounds: a list is valid at each of its bounds and not beyond them.
func TestListBounds(t *testing.T) {
	sealed := func(seq uint64, length int64) Extent { return Extent{seq, length, []string{"n1"}} }
	open := func(seq uint64) Extent { return sealed(seq, Open) }
	many := func(n int) (all []Extent) {
		for i := range n {
			all = append(all, sealed(uint64(i+1), 1))
		}
		return all
	}
	replicas := func(n int) []Extent { return []Extent{{1, 5, strings.Split(strings.Repeat("n,", n-1)+"n", ",")}} }
	for name, c := range map[string]struct {
		l    List
		good bool
	}{
		"empty":                      {List{Epoch: 1}, true},
		"no epoch":                   {List{}, false},
		"a negative start":           {List{Epoch: 1, Start: -1}, false},
		"1,024 extents":              {List{Epoch: 1, Extents: many(1024)}, true},
		"1,025 extents":              {List{Epoch: 1, Extents: many(1025)}, false},
		"gaps in numbers":            {List{Epoch: 1, Extents: []Extent{sealed(2, 5), sealed(9, 5)}}, true},
		"number 0":                   {List{Epoch: 1, Extents: []Extent{sealed(0, 5)}}, false},
		"a number twice":             {List{Epoch: 1, Extents: []Extent{sealed(2, 5), sealed(2, 5)}}, false},
		"numbers that fall":          {List{Epoch: 1, Extents: []Extent{sealed(3, 5), sealed(2, 5)}}, false},
		"one open":                   {List{Epoch: 1, Extents: []Extent{sealed(1, 5), open(2)}}, true},
		"two open":                   {List{Epoch: 1, Extents: []Extent{open(1), open(2)}}, true},
		"three open":                 {List{Epoch: 1, Extents: []Extent{open(1), open(2), open(3)}}, false},
		"sealed after open":          {List{Epoch: 1, Extents: []Extent{open(1), sealed(2, 5)}}, false},
		"closed":                     {List{Epoch: 1, Closed: true, Extents: []Extent{sealed(1, 5)}}, true},
		"closed, with an open one":   {List{Epoch: 1, Closed: true, Extents: []Extent{sealed(1, 5), open(2)}}, false},
		"length 0":                   {List{Epoch: 1, Extents: []Extent{sealed(1, 0)}}, true},
		"length -2":                  {List{Epoch: 1, Extents: []Extent{sealed(1, -2)}}, false},
		"no replica":                 {List{Epoch: 1, Extents: []Extent{{1, 5, nil}}}, false},
		"8 replicas":                 {List{Epoch: 1, Extents: replicas(8)}, true},
		"9 replicas":                 {List{Epoch: 1, Extents: replicas(9)}, false},
		"a node without a name":      {List{Epoch: 1, Extents: []Extent{{1, 5, []string{"n1", ""}}}}, false},
		"a name of 64 bytes":         {List{Epoch: 1, Extents: []Extent{{1, 5, []string{strings.Repeat("n", 64)}}}}, true},
		"a name of 65 bytes":         {List{Epoch: 1, Extents: []Extent{{1, 5, []string{strings.Repeat("n", 65)}}}}, false},
		"to the last position":       {List{Epoch: 1, Start: math.MaxInt64 - 5, Extents: []Extent{sealed(1, 5)}}, true},
		"beyond the last position":   {List{Epoch: 1, Start: math.MaxInt64 - 5, Extents: []Extent{sealed(1, 6)}}, false},
		"beyond it after the second": {List{Epoch: 1, Start: 5, Extents: []Extent{sealed(1, 5), sealed(2, math.MaxInt64-9)}}, false},
	} {
		if err := c.l.Validate(); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
	l := List{Start: 3, Extents: []Extent{sealed(1, 5), sealed(2, 7), open(3)}}
	if n, end := l.Sealed(); n != 2 || end != 15 {
		t.Errorf("%d extents are sealed, to %d", n, end)
	}
}

// TestListEqual: lists are equal if they agree in everything.
func TestListEqual(t *testing.T) {
	list := func() List {
		return List{Epoch: 3, Owner: 7, Start: 9, Extents: []Extent{{1, 5, []string{"a", "b"}}, {2, Open, []string{"b", "c"}}}}
	}
	l, same := list(), list()
	if !l.Equal(&same) {
		t.Error("a list is not equal to itself")
	}
	for name, change := range map[string]func(l *List){
		"epoch":    func(l *List) { l.Epoch++ },
		"owner":    func(l *List) { l.Owner++ },
		"closed":   func(l *List) { l.Closed = true },
		"start":    func(l *List) { l.Start++ },
		"extents":  func(l *List) { l.Extents = l.Extents[:1] },
		"number":   func(l *List) { l.Extents[1].Seq++ },
		"length":   func(l *List) { l.Extents[1].Length = 4 },
		"replicas": func(l *List) { l.Extents[1].Replicas = []string{"b", "a"} },
	} {
		other := list()
		change(&other)
		if l.Equal(&other) || other.Equal(&l) {
			t.Errorf("lists with another %s are equal", name)
		}
	}
}
