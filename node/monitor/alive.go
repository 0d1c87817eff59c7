package monitor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
)

// signs has the parts that were probed and have not answered.
type signs struct {
	// mu guards the fields in it. Never held during a probe.
	mu struct {
		sync.Mutex
		waiting map[string]bool
	}
}

// Part is a part of the node that can be probed.
type Part struct {
	Name string
	// Probe returns once the part has answered, or with an error. It need not end with ctx. It does not wait for a disk, for other nodes, for a
	// lease, for space or for memory: a restarted process would wait for the same.
	Probe func(ctx context.Context) error
}

// Alive probes the parts of the node, each at most once at a time. The error names the parts that have not answered when ctx ends, or is why
// the node has failed. The node must have been started and not be closed.
func (sv *Service) Alive(ctx context.Context) error {
	if err := sv.Err(); err != nil {
		return err
	}
	type answer struct {
		part string
		err  error
	}
	parts := sv.Parts()
	answers, silent, wait := make(chan answer, len(parts)), map[string]bool{}, 0
	for _, part := range parts {
		silent[part.Name] = true
		if !sv.signs.begin(part.Name) {
			continue // an earlier probe is still waiting
		}
		wait++
		sv.Background.Go(func() {
			defer sv.signs.end(part.Name)
			answers <- answer{part.Name, part.Probe(ctx)}
		})
	}
	var errs []error
	for ended := false; wait > 0 && !ended; {
		select {
		case a := <-answers:
			delete(silent, a.part)
			errs = append(errs, a.err)
			wait--
		case <-ctx.Done():
			ended = true
		}
	}
	if len(silent) > 0 {
		errs = append(errs, fmt.Errorf("no answer from %s", strings.Join(slices.Sorted(maps.Keys(silent)), ", ")))
	}
	return errors.Join(errs...)
}

func (l *signs) begin(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.waiting[part] {
		return false
	}
	if l.mu.waiting == nil {
		l.mu.waiting = map[string]bool{}
	}
	l.mu.waiting[part] = true
	return true
}

func (l *signs) end(part string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.mu.waiting, part)
}
