package disks

import (
	"context"
	"sync"

	"github.com/steledb/stele/internal/vfs"
)

// Service observes the disks of a node.
type Service struct {
	Config
	history history
}

// Config has what the service needs.
type Config struct {
	Ctx        context.Context // of the node
	Background *sync.WaitGroup // of the node's goroutines
	FS         vfs.FS          // of the data directories
	Dirs       []string        // the data directories
	// ReserveBytes is the free space that each data directory must keep, in bytes. Zero means a twentieth of the first one's file system,
	// and at most 1 GiB.
	ReserveBytes int64
	// Retired returns which folders of the block store have failed, and why; nil: they work. It is empty before the store is open.
	Retired func() map[string]error
	// Report reports an error of the disk of a folder to the block store, which retires the folder.
	Report func(folder string, err error)
	// Fail stops the node.
	Fail func(err error)
}

// New returns the service. It watches no disk before Watch.
func New(cfg Config) *Service { return &Service{Config: cfg} }
