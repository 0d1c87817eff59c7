package tablet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/steledb/stele/table"
)

// unreachableMetadata does not answer until the caller gives up, or fails with ErrClosed.
type unreachableMetadata struct {
	Metadata
	called chan struct{} // closed by the first call
	once   sync.Once
	closed atomic.Bool
}

func (m *unreachableMetadata) wait(ctx context.Context) error {
	m.once.Do(func() { close(m.called) })
	if m.closed.Load() {
		return fmt.Errorf("read METADATA: %w", ErrClosed)
	}
	<-ctx.Done()
	return ctx.Err()
}

func (m *unreachableMetadata) Save(ctx context.Context, _ *Meta) error { return m.wait(ctx) }

func (m *unreachableMetadata) Load(ctx context.Context, _ uint64, _ []byte) (*Meta, error) {
	return nil, m.wait(ctx)
}

func (m *unreachableMetadata) Split(ctx context.Context, _, _ *Meta) error { return m.wait(ctx) }

func disconnectFrom(s *clusterServer) *unreachableMetadata {
	m := &unreachableMetadata{Metadata: s.cfg.Metadata, called: make(chan struct{})}
	s.cfg.Metadata = m
	return m
}

// Close does not wait for a minor compaction or a split whose metadata change gets no answer.
func TestCloseWithoutMetadata(t *testing.T) {
	for _, what := range []string{"minor compaction", "split"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := newCluster(t, Config{}, 1, "f:").servers[0]
			for _, row := range []string{"row001", "row019"} {
				if _, err := applySync(s.Server, row, setCell(row)); err != nil {
					t.Fatal(err)
				}
			}
			if what == "split" { // it would run a minor compaction first
				if err := s.Compact(context.Background(), "t", false); err != nil {
					t.Fatal(err)
				}
			}
			m := disconnectFrom(s)
			result := make(chan error, 1)
			if what == "split" {
				go func() {
					_, _, err := s.Split(context.Background(), lastTablet, []byte("row012"))
					result <- err
				}()
			} else {
				if err := s.commitLog.commits.Between(s.served.all()[0].writer.freeze); err != nil {
					t.Fatal(err)
				}
				result <- ErrClosed
			}
			<-m.called
			began := time.Now()
			s.Close()
			if took := time.Since(began); took > metaClosing+5*time.Second {
				t.Errorf("closed after %v", took)
			}
			if err := <-result; !errors.Is(err, ErrClosed) {
				t.Errorf("the split ended with %v", err)
			}
		})
	}
}

// When metadata is permanently closed, a split of unknown outcome ends, and neither half may change
// its metadata.
func TestMetadataIsClosed(t *testing.T) {
	s := newCluster(t, Config{}, 1, "f:").servers[0]
	m := disconnectFrom(s)
	m.closed.Store(true)
	done := make(chan error, 1)
	go func() {
		_, _, err := s.Split(context.Background(), lastTablet, []byte("row012"))
		done <- err
	}()
	select {
	case err := <-done:
		if !errors.Is(err, ErrClosed) {
			t.Errorf("split: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("the split has not ended")
	}
	all := s.served.all()
	if len(all) != 1 || !all[0].meta.closed {
		t.Errorf("%d tablets, metadata may still change", len(all))
	}
}

// Reads of a server that has closed end with ErrClosed. They do not look for ever for what took the place of a closed tablet.
func TestReadAfterClose(t *testing.T) {
	s := newCluster(t, Config{}, 1, "f:").servers[0]
	if _, err := applySync(s.Server, "row001", setCell("row001")); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	pass := func([]byte, []table.Cell) error { return nil }
	reads := map[string]func() error{
		"row": func() error { return s.For(nil).ReadRow(t.Context(), "t", []byte("row001"), nil, pass) },
		"scan": func() error {
			_, err := s.For(nil).Scan(t.Context(), "t", Range{}, nil, nil, pass)
			return err
		},
		"rows": func() error {
			_, err := s.For(nil).ReadRows(t.Context(), "t", [][]byte{[]byte("row001")}, nil, func(int, []byte, []table.Cell) error { return nil })
			return err
		},
	}
	for name, read := range reads {
		ended := make(chan error, 1)
		go func() { ended <- read() }()
		select {
		case err := <-ended:
			if !errors.Is(err, ErrClosed) {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(10 * time.Second):
			t.Errorf("%s: has not ended", name)
		}
	}
}
