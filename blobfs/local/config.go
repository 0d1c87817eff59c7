package local

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/steledb/stele/internal/vfs"
)

// Config is the configuration of a Store. The zero value of each field means its default.
type Config struct {
	// Folders are the data folders, one per disk; at least one. Missing ones are created.
	Folders []string
	// FS is the file system of the folders. Default vfs.OS().
	FS vfs.FS
	// Node is the name of this node in handles. May be empty.
	Node string
	// ReserveBytes is the free space kept in each folder. A folder with less accepts only
	// high-priority extents, which let the store free space, and these may use half of it. Default
	// 1 GiB; on file systems smaller than 20 GiB use about a twentieth of their size. Negative
	// means none.
	ReserveBytes int64
	// ExtentBytes is the maximum length of an extent: the bytes of a blob in one file, and the size
	// of log files. A multiple of 64 KiB, from 64 KiB to 1 GiB. Default 64 MiB, which takes two
	// seconds to copy in a repair at a third of a 1 Gbit/s link, and 50 to 100 ms to zero for a
	// log.
	ExtentBytes int64
	// LogExtentsReady is the number of zeroed extents kept ready for logs, once the store has a
	// log. Default 2. Negative means none: Append then waits while an extent is made.
	LogExtentsReady int
	// UsedSpareMax is how long a released log file with its old content waits for reuse before it
	// is removed. Deleted data must leave the disk within a day. Default 6 h.
	UsedSpareMax time.Duration
	// ReadOnly opens the store for inspection: nothing on disk is changed, not even temporary files
	// removed, and calls that write return ErrReadOnly.
	ReadOnly bool
	// MasterKeys encrypt the folders, if any are given. The first wraps the data keys from now on;
	// the others unwrap data keys of folders not yet rewrapped. At most 16.
	MasterKeys []MasterKey
	// QuarantineMin is how long an extent stays in quarantine even if the disk is full. Default 10
	// min: the time in which an operator can stop a faulty sweep.
	QuarantineMin time.Duration
	// Logger receives events for operators, such as retired folders and damage. Default none.
	Logger *slog.Logger
}

// ChunkBytes is the unit of checksums, in bytes. ExtentBytes is a multiple of it.
const ChunkBytes = 64 << 10

const (
	defaultExtentBytes     = 64 << 20
	maxExtentBytes         = 1 << 30
	defaultReserveBytes    = 1 << 30
	defaultLogExtentsReady = 2
	defaultQuarantineMin   = 10 * time.Minute
	defaultUsedSpareMax    = 6 * time.Hour
	masterKeysMax          = 16
)

func (cfg Config) withDefaults() Config {
	if cfg.FS == nil {
		cfg.FS = vfs.OS()
	}
	if cfg.ExtentBytes == 0 {
		cfg.ExtentBytes = defaultExtentBytes
	}
	if cfg.ReserveBytes == 0 {
		cfg.ReserveBytes = defaultReserveBytes
	}
	if cfg.LogExtentsReady == 0 {
		cfg.LogExtentsReady = defaultLogExtentsReady
	}
	if cfg.QuarantineMin == 0 {
		cfg.QuarantineMin = defaultQuarantineMin
	}
	if cfg.UsedSpareMax == 0 {
		cfg.UsedSpareMax = defaultUsedSpareMax
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.ReserveBytes = max(cfg.ReserveBytes, 0)
	cfg.LogExtentsReady = max(cfg.LogExtentsReady, 0)
	return cfg
}

// Validate reports the first error in the configuration.
func (cfg Config) Validate() error {
	if len(cfg.Folders) == 0 {
		return errors.New("no data folder given")
	}
	seen := map[string]bool{}
	for _, f := range cfg.Folders {
		if f == "" {
			return errors.New("data folder name is empty")
		}
		if seen[f] {
			return fmt.Errorf("data folder %s is listed twice", f)
		}
		seen[f] = true
	}
	if len(cfg.MasterKeys) > masterKeysMax {
		return fmt.Errorf("%d master keys are over the limit of %d: remove keys that wrap no data key", len(cfg.MasterKeys), masterKeysMax)
	}
	x := cfg.withDefaults().ExtentBytes
	if cfg.QuarantineMin < 0 {
		return errors.New("minimum time in quarantine is negative")
	}
	if cfg.UsedSpareMax < 0 {
		return errors.New("maximum age of a used spare is negative")
	}
	if x < ChunkBytes || x > maxExtentBytes || x%ChunkBytes != 0 {
		return fmt.Errorf("extent size of %d bytes is not a multiple of %[2]d from %[2]d to %[3]d", x, ChunkBytes, maxExtentBytes)
	}
	return nil
}
