package netlab

import "slices"

// Cut loses all packets from each host of one set to each of another, that
// direction alone, until Heal.
func (l *Lab) Cut(from, to []*Host) {
	l.t.Helper()
	var pairs []pair
	for _, a := range from {
		for _, b := range to {
			pairs = append(pairs, pair{a, b})
		}
	}
	l.change(pairs)
}

// Partition loses all packets, in both directions, between hosts that no set has
// together, until Heal. Hosts of no set are not affected. A host of several sets is a
// bridge: it hears all of them, who do not hear each other.
func (l *Lab) Partition(sets ...[]*Host) {
	l.t.Helper()
	var pairs []pair
	all := slices.Concat(sets...)
	for _, a := range all {
		for _, b := range all {
			together := func(set []*Host) bool { return slices.Contains(set, a) && slices.Contains(set, b) }
			if !slices.ContainsFunc(sets, together) {
				pairs = append(pairs, pair{a, b})
			}
		}
	}
	l.change(pairs)
}

// Isolate loses all packets from and to a host, until Heal.
func (l *Lab) Isolate(h *Host) {
	l.t.Helper()
	l.Partition([]*Host{h}, slices.DeleteFunc(slices.Clone(l.hosts), func(o *Host) bool { return o == h }))
}

// Heal ends all cuts.
func (l *Lab) Heal() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var ended []pair
	for p := range l.cuts {
		ended = append(ended, p)
	}
	clear(l.cuts)
	l.apply(ended)
}

// change cuts pairs, beside those that are cut already.
func (l *Lab) change(pairs []pair) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var news []pair
	for _, p := range pairs {
		if p.from != p.to && !l.cuts[p] {
			l.cuts[p] = true
			news = append(news, p)
		}
	}
	l.apply(news)
}

// apply brings the hosts' entries of pairs in line with the cuts.
func (l *Lab) apply(pairs []pair) {
	l.t.Helper()
	entries := make(map[*Host][]string)
	for _, p := range pairs {
		entries[p.from] = append(entries[p.from], l.entry(p))
	}
	for from, commands := range entries {
		l.must(from.ip(commands...))
	}
}
