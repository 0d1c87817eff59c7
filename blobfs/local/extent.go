package local

import (
	"fmt"
	"slices"
	"time"
)

// ExtentID names an extent of a blob.
type ExtentID struct {
	Blob  ID
	Index int // from 0
}

// String returns the blob's ID and the index with a dot between.
func (x ExtentID) String() string { return fmt.Sprintf("%s.%d", x.Blob, x.Index) }

// Holders are the nodes that should have an extent. Each of them keeps the list
// beside its copy; of two lists the one with the higher epoch counts. Epoch 0 with no
// nodes means that nothing is known.
type Holders struct {
	Epoch uint64
	Nodes []string
}

// Bounds on a list of holders.
const (
	HoldersMax         = 16
	HolderNameBytesMax = 255
)

// Validate says what is wrong with the list, if anything.
func (h Holders) Validate() error {
	if len(h.Nodes) > HoldersMax {
		return fmt.Errorf("list of %d holders is over the limit of %d", len(h.Nodes), HoldersMax)
	}
	for i, n := range h.Nodes {
		if n == "" || len(n) > HolderNameBytesMax || slices.Contains(h.Nodes[:i], n) {
			return fmt.Errorf("holder %q is empty, too long or named twice", n)
		}
	}
	return nil
}

// ExtentInfo is what a node knows of an extent that it holds without reading its file.
type ExtentInfo struct {
	ID      ExtentID
	Length  int64 // bytes of the blob in it
	Last    bool  // no extent of the blob has a higher index
	Created time.Time
	Holders Holders
	// Retired means that its folder takes no writes: it can be read, perhaps, but is as good
	// as lost.
	Retired bool
}

// ExtentStat is an ExtentInfo and what the file says beyond it.
type ExtentStat struct {
	ExtentInfo
	Offset int64  // of the extent within the blob
	CRC    uint32 // of its chunk table: see ExtentRef
}
