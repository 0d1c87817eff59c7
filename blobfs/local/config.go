package local

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/steledb/stele/internal/vfs"
)

// Config says where and how a Store keeps its extents. The zero value of each
// field means its default.
type Config struct {
	// Folders are the data folders, one per disk; at least one. Those that do
	// not exist are made.
	Folders []string
	// FS is the file system of the folders. Default vfs.OS().
	FS vfs.FS
	// Node is the name by which handles call this node. May be empty.
	Node string
	// ReserveBytes is what is left free in each folder: a folder with less
	// takes no new extent, unless that is vital, because what is written lets
	// the store give back space: then half of this is left. Default 1 GiB; on
	// file systems smaller than 20 GiB a twentieth of them would be wiser.
	// Negative means none.
	ReserveBytes int64
	// ExtentBytes is how long an extent may get: the bytes of a blob in one
	// file, and the size of a log's files. A multiple of 64 KiB, at least
	// that, at most 1 GiB. Default 64 MiB: two seconds to copy at a third of a
	// 1 Gbit/s link when a disk is repaired, and one zeroed log extent is
	// written ahead in 50 to 100 ms.
	ExtentBytes int64
	// LogExtentsReady is how many zeroed extents are kept ready for logs, from
	// the first log on. Default 2. Negative means none: each is then made
	// when a log needs it, and Append waits for it.
	LogExtentsReady int
	// UsedSpareMax is how long a log file waits to be used again with what it had in it before. Then it is removed:
	// what was deleted is to be in no file a day later. Default 6 h.
	UsedSpareMax time.Duration
	// ReadOnly opens the store to look at it: nothing is changed, not even
	// leftovers removed, and what would write returns ErrReadOnly.
	ReadOnly bool
	// MasterKeys encrypt the folders, if there are any: the first wraps the data keys from now on, others are for folders whose data
	// keys they wrap still. At most 16.
	MasterKeys []MasterKey
	// QuarantineMin is how long an extent stays in quarantine even if the disk is full. Default
	// 10 min: what a person needs to stop a sweep that is wrong.
	QuarantineMin time.Duration
	// Logger gets what an operator should know: folders retired, damage
	// found. Default none.
	Logger *slog.Logger
}

// The chunk is the unit of checksums; ExtentBytes is a multiple of it.
const chunkBytes = 64 << 10

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

// Validate says what is wrong with the configuration, if anything.
func (cfg Config) Validate() error {
	if len(cfg.Folders) == 0 {
		return errors.New("no data folder given")
	}
	seen := map[string]bool{}
	for _, f := range cfg.Folders {
		if f == "" {
			return errors.New("a data folder has no name")
		}
		if seen[f] {
			return fmt.Errorf("data folder %s is given twice", f)
		}
		seen[f] = true
	}
	if len(cfg.MasterKeys) > masterKeysMax {
		return fmt.Errorf("%d master keys are over the limit of %d: leave out those that wrap nothing any more", len(cfg.MasterKeys), masterKeysMax)
	}
	x := cfg.withDefaults().ExtentBytes
	if cfg.QuarantineMin < 0 {
		return errors.New("the least time in quarantine is negative")
	}
	if cfg.UsedSpareMax < 0 {
		return errors.New("the longest time of a used spare is negative")
	}
	if x < chunkBytes || x > maxExtentBytes || x%chunkBytes != 0 {
		return fmt.Errorf("extent size of %d bytes is not a multiple of %d between that and %d", x, chunkBytes, maxExtentBytes)
	}
	return nil
}
