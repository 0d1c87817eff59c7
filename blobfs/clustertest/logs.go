package clustertest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/replog"
)

// NewForLogs starts a cluster of n nodes with short timeouts, and lists for its logs.
func NewForLogs(t testing.TB, n int, logs replog.Config) (*Cluster, *Lists) {
	l := NewLists()
	cfg := Quick
	cfg.Lists, cfg.Logs = l, logs
	return New(t, Config{N: n, Cluster: cfg}), l
}

// Record is a payload of a log, and the position after it.
type Record struct {
	P   []byte
	Pos int64
}

// ReadLog reads a log to its end. It retries if a node does not answer in time.
func ReadLog(t testing.TB, s *blobfs.Store, server string, id blobfs.ID) []Record {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		all, err := ReadLogOnce(ctx, s, server, id)
		if errors.Is(err, api.ErrUnreachable) && ctx.Err() == nil {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		NoError(t, err)
		return all
	}
}

// ReadLogOnce reads a log to its end.
func ReadLogOnce(ctx context.Context, s *blobfs.Store, server string, id blobfs.ID) (all []Record, err error) {
	r, err := s.ReplicatedLogs().Open(ctx, server, id)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	for {
		p, pos, err := r.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, Record{bytes.Clone(p), pos})
	}
}

// EqualRecords ends the test if the records differ.
func EqualRecords(t testing.TB, got, want []Record) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d records, want %d", len(got), len(want))
	}
	for i := range got {
		if got[i].Pos != want[i].Pos || !bytes.Equal(got[i].P, want[i].P) {
			t.Fatalf("record %d of %d bytes at %d, want %d at %d", i, len(got[i].P), got[i].Pos, len(want[i].P), want[i].Pos)
		}
	}
}

// Eventually waits for background work.
func Eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for range 500 {
		if ok() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("not in 5 s: %s", what)
}
