package blobfs_test

import (
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/steledb/stele/blobfs/clustertest"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/blobfs/api"
	"github.com/steledb/stele/blobfs/blobtest"
)

var faultSeed = flag.Uint64("fault.seed", 0, "run only this seed of the random faults")

// TestRandomFaults writes blobs while nodes die, fall silent, fill up and corrupt data, and reads
// all of them afterwards. Every extent that was sealed while nodes were alive is readable.
func TestRandomFaults(t *testing.T) {
	t.Parallel()
	seeds := uint64(4)
	if soak, err := strconv.ParseUint(os.Getenv("STELE_SOAK"), 10, 32); err == nil {
		seeds *= soak
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		if *faultSeed != 0 && *faultSeed != seed {
			continue
		}
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Logf("replay: go test ./blobfs -run TestRandomFaults -fault.seed %d", seed)
			synctest.Test(t, func(t *testing.T) { randomFaults(t, rand.New(rand.NewPCG(seed, 9))) })
		})
	}
}

func randomFaults(t *testing.T, rng *rand.Rand) {
	c := clustertest.New(t, clustertest.Config{N: 6, Cluster: clustertest.Quick, Virtual: true, Mixed: true})
	type blob struct {
		h    blobfs.Handle
		data []byte
	}
	var blobs []blob
	kills, rots := 0, 0
	for i := range 8 {
		data := blobtest.Bytes(rng.Uint64(), rng.IntN(1<<20))
		var writer *clustertest.Node
		for writer == nil || writer.Dead {
			writer = c.All[rng.IntN(len(c.All))]
		}
		h, err := cutWrite(t, writer.Store, data, rng.IntN(len(data)+100_000), func() {
			victim := c.All[rng.IntN(len(c.All))]
			switch k := rng.IntN(5); {
			case k == 0 && kills < 2 && victim != writer:
				kills++
				victim.Kill()
			case k == 1:
				victim.Full(true)
			case k == 2:
				for _, v := range c.All {
					v.Full(false)
				}
			case k == 3 && victim != writer:
				to := c.All[rng.IntN(len(c.All))]
				c.Cut[[2]string{victim.ID, to.ID}].Store(true)
			case k == 4 && rots == 0 && len(blobs) > 0 && kills == 0:
				b := blobs[rng.IntN(len(blobs))]
				if n := c.Get(b.h.Extents[0].Replicas[0]); !n.Dead && len(b.data) > 0 && len(b.h.Extents[0].Replicas) > 1 {
					rots++
					n.CorruptReplica(t, blobfs.ExtentID{Blob: b.h.ID}, rng.Int64N(b.h.Extents[0].Length))
				}
			}
		})
		if err != nil {
			if !errors.Is(err, blobfs.ErrDiskFull) && !errors.Is(err, api.ErrUnreachable) {
				t.Errorf("blob %d: %v", i, err)
			}
			continue
		}
		blobs = append(blobs, blob{h, data})
	}
	for _, b := range c.Cut {
		b.Store(false)
	}
	for _, n := range c.All {
		if n.Dead {
			continue
		}
		for _, b := range blobs {
			lost := slices.ContainsFunc(b.h.Extents, func(ref blobfs.ExtentRef) bool {
				return !slices.ContainsFunc(ref.Replicas, func(id string) bool {
					return !c.Get(id).Dead && c.Get(id).VerifyExtent(t.Context(), blobfs.ExtentID{Blob: b.h.ID, Index: ref.Index}) == nil
				})
			})
			if !lost {
				clustertest.Get(t, n.Store, b.h, b.data)
			}
		}
		clustertest.NoError(t, n.Store.Verify(t.Context(), func(p blobfs.Problem) {
			if rots == 0 {
				t.Errorf("%s: %v", n.ID, p)
			}
		}))
	}
}
