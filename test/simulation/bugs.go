package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/steledb/stele/internal/planted"
)

// searchesApart is the distance of the first seeds of two searches for the same bug.
const searchesApart = 1_000_000

// A hunt searches for one planted bug several times, each time from another seed on.
type hunt struct {
	bug      string
	left     int      // searches that run
	seeds    []int    // how many each search needed; 0 if it found nothing
	findings []string // of each search that found something
}

// huntAll searches for the bugs whose names contain o.bugs, o.tries times each, and prints a line for each.
func huntAll(ctx context.Context, o options, program string) error {
	hunts := newHunts(o)
	if len(hunts) == 0 {
		return fmt.Errorf("no planted bug has a name with %q: see internal/planted", o.bugs)
	}
	fmt.Printf("%-28s %6s  %-24s %s\n", "BUG", "MEDIAN", "SEEDS UNTIL FOUND", "FOUND AS")
	var mu sync.Mutex
	var wg sync.WaitGroup
	slots := make(chan struct{}, o.jobs)
	for i := range len(hunts) * o.tries {
		h, from := hunts[i/o.tries], o.from+uint64(i%o.tries)*searchesApart
		slots <- struct{}{}
		wg.Go(func() {
			n, finding := search(ctx, o, program, h.bug, from)
			mu.Lock()
			defer mu.Unlock()
			if h.add(n, finding); h.left == 0 && ctx.Err() == nil {
				fmt.Println(h)
			}
			<-slots
		})
	}
	wg.Wait()
	return cmp.Or(ctx.Err(), missed(hunts, o.seeds))
}

func newHunts(o options) (all []*hunt) {
	for _, b := range planted.All() {
		if strings.Contains(string(b), o.bugs) || o.bugs == "all" {
			all = append(all, &hunt{bug: string(b), left: o.tries})
		}
	}
	return all
}

// missed returns an error that names the bugs that a search did not find.
func missed(hunts []*hunt, seeds int) error {
	var names []string
	for _, h := range hunts {
		if slices.Contains(h.seeds, 0) {
			names = append(names, h.bug)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fmt.Errorf("not found in %d seeds: %s", seeds, strings.Join(names, ", "))
}

// search runs seeds with a bug, beginning with from, until one finds it, and returns their number, or 0. A seed
// that finds something without the bug too does not count.
func search(ctx context.Context, o options, program, bug string, from uint64) (n int, finding string) {
	for i, seed := 0, o.next(from); i < o.seeds; i, seed = i+1, o.next(seed+1) {
		finding := found(runSeed(ctx, o, program, seed, bug))
		if ctx.Err() != nil {
			return 0, ""
		}
		if finding != "" && found(runSeed(ctx, o, program, seed, "")) == "" {
			return i + 1, finding
		}
	}
	return 0, ""
}

// found returns what is wrong with a seed; empty if nothing is.
func found(o outcome) string {
	if o.err == nil {
		return o.result.Violation
	}
	for line := range strings.Lines(string(o.text)) { // of a program that crashed
		if strings.HasPrefix(line, "panic:") || strings.HasPrefix(line, "fatal error:") {
			return strings.TrimSpace(line)
		}
	}
	return o.err.Error()
}

func (h *hunt) add(n int, finding string) {
	h.left--
	h.seeds = append(h.seeds, n)
	if name, _, _ := strings.Cut(finding, ":"); n > 0 && !slices.Contains(h.findings, name) {
		h.findings = append(h.findings, name)
	}
}

func (h *hunt) String() string {
	needed := slices.Clone(h.seeds)
	slices.SortFunc(needed, func(a, b int) int { return cmp.Compare(uint(a-1), uint(b-1)) }) // what was not found is last
	texts := make([]string, len(needed))
	for i, n := range needed {
		if texts[i] = "-"; n > 0 {
			texts[i] = strconv.Itoa(n)
		}
	}
	return fmt.Sprintf("%-28s %6s  %-24s %s", h.bug, texts[(len(texts)-1)/2], strings.Join(texts, " "), strings.Join(h.findings, "; "))
}
