package limits

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/steledb/stele/client"
)

const (
	innocentRows  = 2000
	innocentEvery = 5 * time.Millisecond // 200 requests a second
	// innocentScans is the number of requests per scan: the others read one row.
	innocentScans = 20
	// innocentMost bounds the duration of a request, including its retries.
	innocentMost = 5 * time.Second
)

// innocent is a client of a user that takes no part in the attacks. It reads at a steady rate: a
// slow answer does not delay the next request.
type innocent struct {
	tab *client.Table

	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		reads  []time.Duration // of single rows, from the due time of each
		scans  []time.Duration
		failed []error
	}
}

// run makes requests for the given time, and waits for all answers.
func (n *innocent) run(ctx context.Context, while time.Duration) {
	n.mu.reads, n.mu.scans, n.mu.failed = nil, nil, nil
	var wait sync.WaitGroup
	began := time.Now()
	for i := 0; ; i++ {
		due := began.Add(time.Duration(i) * innocentEvery)
		if due.Sub(began) >= while {
			break
		}
		pause(ctx, time.Until(due))
		wait.Go(func() { n.request(ctx, i, due) })
	}
	wait.Wait()
}

// request makes request number i, which was due at the given time.
func (n *innocent) request(ctx context.Context, i int, due time.Time) {
	ctx, cancel := context.WithTimeout(ctx, innocentMost)
	defer cancel()
	scan := i%innocentScans == 0
	var err error
	if first := rand.IntN(innocentRows - 100); scan {
		err = n.scan(ctx, first)
	} else {
		err = n.read(ctx, first)
	}
	took := time.Since(due)
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case err != nil:
		n.mu.failed = append(n.mu.failed, fmt.Errorf("after %v: %w", took.Round(time.Millisecond), err))
	case scan:
		n.mu.scans = append(n.mu.scans, took)
	default:
		n.mu.reads = append(n.mu.reads, took)
	}
}

func (n *innocent) read(ctx context.Context, i int) error {
	r, err := n.tab.Get(ctx, row("small", i))
	if err == nil && (r == nil || len(r.Cells) != 1 || len(r.Cells[0].Value) != smallCell) {
		err = errWrong
	}
	return err
}

// scan reads 50 rows in batches of 20.
func (n *innocent) scan(ctx context.Context, first int) error {
	rows := n.tab.Scan(ctx, client.Start(row("small", first)), client.Limit(50), client.BatchRows(20))
	defer rows.Close()
	got := 0
	for rows.Next() {
		got++
	}
	if rows.Err() == nil && got != 50 {
		return fmt.Errorf("%w: a scan has %d rows, want 50", errWrong, got)
	}
	return rows.Err()
}

// quantile returns the q quantile of the values, 0 if there are none.
func quantile(all []time.Duration, q float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}
