package clustertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/logproto"
	"github.com/steledb/stele/blobfs/replog"
)

// Lists implements the lock service's files. It may lose its answers.
type Lists struct {
	Mu          sync.Mutex
	Files       map[string]listFile
	gen         uint64
	rng         *rand.Rand
	LossPercent int // percentage of saves whose answer is lost
	Down        bool
	Full        bool
	// Fenced means that this store's node may not change lists any more.
	Fenced    bool
	loadFails bool // lists of logs cannot be loaded
	Saves     int
}

type listFile struct {
	data []byte
	gen  uint64
}

// NewLists returns lists without files.
func NewLists() *Lists { return &Lists{Files: map[string]listFile{}, rng: rand.New(rand.NewPCG(1, 1))} }

var (
	errGeneration = errors.New("generation differs")
	errNoOutcome  = errors.New("outcome unknown")
)

// Load implements blobfs.Lists.
func (l *Lists) Load(_ context.Context, p string) ([]byte, uint64, error) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.Down || l.loadFails && strings.HasPrefix(p, "/logs/") {
		return nil, 0, errNoOutcome
	}
	f := l.Files[p]
	return slices.Clone(f.data), f.gen, nil
}

// Save implements blobfs.Lists.
func (l *Lists) Save(_ context.Context, p string, data []byte, gen uint64) (uint64, error) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	fate := l.rng.IntN(100)
	if l.Down || fate < l.LossPercent/2 {
		return 0, errNoOutcome
	}
	if l.Full {
		return 0, blobfs.ErrDiskFull
	}
	if l.Fenced {
		return 0, fmt.Errorf("save %s: %w", p, blobfs.ErrFenced)
	}
	if l.Files[p].gen != gen {
		return 0, errGeneration
	}
	l.gen++
	l.Saves++
	l.Files[p] = listFile{slices.Clone(data), l.gen}
	if fate < l.LossPercent {
		return 0, errNoOutcome
	}
	return l.gen, nil
}

// Delete implements blobfs.Lists.
func (l *Lists) Delete(_ context.Context, p string, gen uint64) error {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	if l.Files[p].gen != gen {
		return errGeneration
	}
	delete(l.Files, p)
	return nil
}

// List implements blobfs.Lists.
func (l *Lists) List(_ context.Context, dir string) ([]string, error) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	var names []string
	for p := range l.Files {
		if path.Dir(p) == dir {
			names = append(names, path.Base(p))
		}
	}
	slices.Sort(names)
	return names, nil
}

// LogList returns the list of a log.
func (l *Lists) LogList(t testing.TB, server string, id blobfs.ID) logproto.List {
	t.Helper()
	b, _, err := l.Load(t.Context(), "/logs/"+server+"/"+id.String())
	NoError(t, err)
	out, err := replog.DecodeList(b)
	NoError(t, err)
	return out
}

// SetLoadFails makes loading fail, or succeed again.
func (l *Lists) SetLoadFails(deaf bool) {
	l.Mu.Lock()
	defer l.Mu.Unlock()
	l.loadFails = deaf
}
