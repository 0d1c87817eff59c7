package local

import (
	"fmt"
	"slices"
	"time"
)

// ExtentID identifies an extent of a blob.
type ExtentID struct {
	Blob  ID
	Index int // from 0
}

// String returns the blob's ID and the index, separated by a dot.
func (x ExtentID) String() string { return fmt.Sprintf("%s.%d", x.Blob, x.Index) }

// Holders are the nodes that should store an extent. Each of them stores this list with its copy;
// of two lists the one with the higher epoch is current. Epoch 0 with no nodes means unknown.
type Holders struct {
	Epoch uint64
	Nodes []string
}

// Limits of a holder list.
const (
	HoldersMax         = 16
	HolderNameBytesMax = 255
)

// Validate returns an error if the list is invalid.
func (h Holders) Validate() error {
	if len(h.Nodes) > HoldersMax {
		return fmt.Errorf("holder list of %d nodes is over the limit of %d", len(h.Nodes), HoldersMax)
	}
	for i, n := range h.Nodes {
		if n == "" || len(n) > HolderNameBytesMax || slices.Contains(h.Nodes[:i], n) {
			return fmt.Errorf("holder %q is empty, too long or a duplicate", n)
		}
	}
	return nil
}

// ExtentInfo is what the index has of an extent, without reading its file.
type ExtentInfo struct {
	ID      ExtentID
	Length  int64 // bytes of the blob in the extent
	Last    bool  // no extent of the blob has a higher index
	Created time.Time
	Holders Holders
	// Retired means that the extent's folder accepts no writes. The extent may be readable, but
	// counts as lost.
	Retired bool
}

// ExtentStat is an ExtentInfo with the fields that are read from the file.
type ExtentStat struct {
	ExtentInfo
	Offset int64  // of the extent within the blob
	CRC    uint32 // of its chunk table: see ExtentRef
}
