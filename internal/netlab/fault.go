package netlab

import "slices"

// Cut drops all packets from each host in from to each host in to, in that direction only, until
// Heal.
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

// Partition drops all packets, in both directions, between hosts that are not together in any set,
// until Heal. Hosts in no set are not affected. A host in several sets reaches all of them,
// although they do not reach each other.
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

// Isolate drops all packets from and to a host, until Heal.
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
	for p := range l.blocked {
		ended = append(ended, p)
	}
	clear(l.blocked)
	l.apply(ended)
}

// change adds cuts to the existing ones.
func (l *Lab) change(pairs []pair) {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	var news []pair
	for _, p := range pairs {
		if p.from != p.to && !l.blocked[p] {
			l.blocked[p] = true
			news = append(news, p)
		}
	}
	l.apply(news)
}

// apply updates the hosts' neighbor entries for pairs according to the cuts.
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
