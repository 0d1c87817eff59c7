package master

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// oneRecovery is the recovery of one dead server. The test decides the outcome of saves and sorts.
// It implements Recoveries.
type oneRecovery struct {
	mu    sync.Mutex
	saved *Recovery
	gen   uint64
	saves int
	// save decides whether a save fails, and may change what is stored. It is called with mu held.
	save func() error
	sort func(ctx context.Context, p *Piece) ([]byte, error)
}

func (o *oneRecovery) Recovery(context.Context, string) (*Recovery, uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.saved, o.gen, nil
}

func (o *oneRecovery) SaveRecovery(_ context.Context, r *Recovery, gen uint64) (uint64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.saves++
	if o.save != nil {
		if err := o.save(); err != nil {
			return 0, err
		}
	}
	if gen != o.gen {
		return 0, errTestChanged
	}
	o.saved = r
	o.gen++
	return o.gen, nil
}

func (o *oneRecovery) EndLogs(context.Context, string) ([]Piece, error) { return pieces(2), nil }

func (o *oneRecovery) Sort(ctx context.Context, _ *TabletServer, _ string, p *Piece) ([]byte, error) {
	if o.sort != nil {
		return o.sort(ctx, p)
	}
	return []byte("run"), nil
}

func pieces(n int) (all []Piece) {
	for i := range n {
		all = append(all, Piece{Start: int64(i), End: int64(i + 1)})
	}
	return all
}

// sortBy has n helpers sort the logs of a dead server.
func (o *oneRecovery) sortBy(ctx context.Context, helpers int, held func() bool) error {
	s := sorter{rs: o, log: slog.New(slog.DiscardHandler), server: "dead", held: held, alive: func(string) context.Context { return context.Background() }}
	return s.run(ctx, slices.Repeat([]TabletServer{{Name: "a"}}, helpers))
}

func always() bool { return true }

// TestSortTimeouts: the time for a piece doubles with each failed attempt, up to 16 times.
func TestSortTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var limits []time.Duration
		o := &oneRecovery{saved: &Recovery{Server: "dead", Pieces: pieces(1)}, sort: func(ctx context.Context, _ *Piece) ([]byte, error) {
			deadline, _ := ctx.Deadline()
			limits = append(limits, time.Until(deadline)/time.Second)
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		err := o.sortBy(t.Context(), 4, always)
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1 of 1 pieces remain") {
			t.Errorf("the error is %v", err)
		}
		if want := []time.Duration{30, 60, 120, 240, 480, 480, 480, 480}; !slices.Equal(limits, want) {
			t.Errorf("the limits in seconds are %d, want %d", limits, want)
		}
	})
}

// TestSortsAtOnce: one server sorts two pieces at a time.
func TestSortsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now, most := 0, 0
		var mu sync.Mutex
		o := &oneRecovery{saved: &Recovery{Server: "dead", Pieces: pieces(7)}, sort: func(context.Context, *Piece) ([]byte, error) {
			mu.Lock()
			now++
			most = max(most, now)
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			now--
			mu.Unlock()
			return []byte("run"), nil
		}}
		begun := time.Now()
		if err := o.sortBy(t.Context(), 1, always); err != nil || !o.saved.Done() {
			t.Errorf("sorted: %v, %+v", err, o.saved)
		}
		if took := time.Since(begun); most != sortsMax || took != 4*time.Second {
			t.Errorf("%d pieces were sorted at once, and all took %v", most, took)
		}
	})
}

// TestSortGoesOn: sorted pieces are not sorted again, and with nothing to sort no server is needed.
func TestSortGoesOn(t *testing.T) {
	done := pieces(3)
	for i := range done {
		done[i].Run = []byte("before")
	}
	o := &oneRecovery{saved: &Recovery{Server: "dead", Pieces: done}}
	if err := o.sortBy(t.Context(), 0, always); err != nil || o.saves != 0 {
		t.Errorf("with all sorted: %v after %d saves", err, o.saves)
	}
	part := slices.Clone(done)
	part[1].Run = nil
	var sorted []int64
	o = &oneRecovery{saved: &Recovery{Server: "dead", Pieces: part}, sort: func(_ context.Context, p *Piece) ([]byte, error) {
		sorted = append(sorted, p.Start)
		return []byte("now"), nil
	}}
	if err := o.sortBy(t.Context(), 0, always); err == nil || len(sorted) > 0 {
		t.Error("a piece is sorted by no server")
	}
	if err := o.sortBy(t.Context(), 1, always); err != nil || !slices.Equal(sorted, []int64{1}) || string(o.saved.Pieces[1].Run) != "now" || string(o.saved.Pieces[0].Run) != "before" {
		t.Errorf("with one not sorted: %v, sorted are %v, saved is %+v", err, sorted, o.saved)
	}
}

// TestSortSavedOtherwise: after a failed save the stored recovery is read. If the piece is sorted
// there, its work is done. If it is no longer the same piece, that is an error. Otherwise it is
// saved again.
func TestSortSavedOtherwise(t *testing.T) {
	run := []byte("of another master")
	for name, c := range map[string]struct {
		change func(o *oneRecovery)
		want   error
		saves  int
		run    string
	}{
		"as it was":            {func(*oneRecovery) {}, nil, 2, "run"},
		"sorted by another":    {func(o *oneRecovery) { o.saved, o.gen = &Recovery{Pieces: []Piece{{End: 1, Run: run}}}, o.gen+1 }, nil, 1, string(run)},
		"at another number":    {func(o *oneRecovery) { o.gen++ }, nil, 2, "run"},
		"gone":                 {func(o *oneRecovery) { o.saved, o.gen = nil, o.gen+5 }, errRecoveryGone, 2, ""},
		"of more pieces":       {func(o *oneRecovery) { o.saved, o.gen = &Recovery{Pieces: pieces(2)}, o.gen+5 }, errRecoveryGone, 2, ""},
		"of another log":       {func(o *oneRecovery) { o.saved, o.gen = &Recovery{Pieces: []Piece{{Log: [16]byte{1}}}}, o.gen+5 }, errRecoveryGone, 2, ""},
		"of another beginning": {func(o *oneRecovery) { o.saved, o.gen = &Recovery{Pieces: []Piece{{Start: 7}}}, o.gen+5 }, errRecoveryGone, 2, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			o := &oneRecovery{saved: &Recovery{Pieces: pieces(1)}, gen: 1}
			o.save = func() error {
				if o.saves > 1 {
					return nil
				}
				c.change(o)
				return errTestUnknown
			}
			err := o.sortBy(t.Context(), 1, always)
			if !errors.Is(err, c.want) || (err == nil) != (c.want == nil) || o.saves != c.saves {
				t.Errorf("%s: %v after %d saves, want %v after %d", name, err, o.saves, c.want, c.saves)
			}
			if c.want == nil && string(o.saved.Pieces[0].Run) != c.run {
				t.Errorf("%s: saved is %q, want %q", name, o.saved.Pieces[0].Run, c.run)
			}
		})
	}
}

// TestSortByFormerMaster: a node that is no longer the master has no piece sorted and saves
// nothing.
func TestSortByFormerMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &oneRecovery{saved: &Recovery{Pieces: pieces(1)}, sort: func(context.Context, *Piece) ([]byte, error) {
			t.Error("a piece is sorted for a node that is not the master")
			return nil, errTestUnknown
		}}
		if err := o.sortBy(t.Context(), 1, func() bool { return false }); !errors.Is(err, ErrNotMaster) {
			t.Errorf("the error is %v", err)
		}
		held := true
		o = &oneRecovery{saved: &Recovery{Pieces: pieces(1)}, save: func() error { held = false; return errTestUnknown }}
		if err := o.sortBy(t.Context(), 1, func() bool { return held }); !errors.Is(err, ErrNotMaster) || o.saves != 1 {
			t.Errorf("the mastership ends with a save: %v after %d saves", err, o.saves)
		}
	})
}

// TestRecoveryBegins: the pieces of a server's logs are saved before any of them is sorted.
func TestRecoveryBegins(t *testing.T) {
	o := &oneRecovery{}
	o.sort = func(context.Context, *Piece) ([]byte, error) {
		o.mu.Lock()
		defer o.mu.Unlock()
		if o.saved == nil || len(o.saved.Pieces) != 2 {
			t.Errorf("a piece is sorted while saved is %+v", o.saved)
		}
		return []byte("run"), nil
	}
	if err := o.sortBy(t.Context(), 1, always); err != nil || !o.saved.Done() || o.saves != 3 {
		t.Errorf("%v after %d saves: %+v", err, o.saves, o.saved)
	}
	o = &oneRecovery{save: func() error { return errTestUnknown }}
	if err := o.sortBy(t.Context(), 1, always); !errors.Is(err, errTestUnknown) || o.saves != 1 {
		t.Errorf("when its beginning cannot be saved: %v after %d saves", err, o.saves)
	}
}
