package local

import (
	"bytes"
	"cmp"

	"github.com/google/btree"
)

// SweepReplica is a replica of a log extent as listed for a sweep.
type SweepReplica struct {
	Log    ID
	Server string
	Seq    uint64
}

// CompareReplicas orders replicas by log and extent.
func CompareReplicas(logA ID, a uint64, logB ID, b uint64) int {
	return cmp.Or(bytes.Compare(logA[:], logB[:]), cmp.Compare(a, b))
}

// CompareExtents orders extents by blob and index.
func CompareExtents(a, b ExtentID) int { return compareExtents(a, b) }

// SetRound records the current round of the sweep. Extents that are added from now on are not
// listed for it.
func (s *disks) SetRound(round uint64) { s.round.Store(round) }

// SweepExtents returns up to max extents that were added before the round began, in quarantine or
// not, by blob and index, starting after the given one.
func (s *quarantine) SweepExtents(round uint64, after ExtentID, max int) []ExtentID {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []ExtentID
	for at := after; len(all) < max; {
		// Merge listed and quarantined extents in order.
		x, ok := s.nextListed(round, at)
		if q := s.nextQuarantined(at); q != nil && (!ok || compareExtents(q.id, x) <= 0) {
			all = append(all, q.id)
			at = q.id
			continue
		}
		if !ok {
			break
		}
		all = append(all, x)
		at = x
	}
	return all
}

// nextListed returns the first extent after the given one that is not in quarantine. mu must be
// held.
func (s *quarantine) nextListed(round uint64, after ExtentID) (x ExtentID, ok bool) {
	s.mu.blobs.AscendGreaterOrEqual(&blob{id: after.Blob}, func(b *blob) bool {
		for i := range b.parts {
			p := &b.parts[i]
			if p.createdRound < round && (b.id != after.Blob || p.index > after.Index) {
				x, ok = ExtentID{Blob: b.id, Index: p.index}, true
				return false
			}
		}
		return true
	})
	return x, ok
}

// nextQuarantined is nextListed for quarantined extents. It returns nil if there is none.
func (s *quarantine) nextQuarantined(after ExtentID) (next *quarantined) {
	ascendAfter(s.all, after, func(q *quarantined) bool {
		next = q
		return false
	})
	return next
}

func ascendAfter(t *btree.BTreeG[*quarantined], after ExtentID, do func(*quarantined) bool) {
	t.AscendGreaterOrEqual(&quarantined{id: after}, func(q *quarantined) bool { return q.id == after || do(q) })
}

// SweepReplicas is SweepExtents for replicas of log extents.
func (s *logReplicas) SweepReplicas(round uint64, log ID, seq uint64, max int) []SweepReplica {
	var all []SweepReplica
	for len(all) < max {
		infos := s.ListLogReplicas(log, seq, max)
		for _, x := range infos {
			if x.createdRound < round && len(all) < max {
				all = append(all, SweepReplica{Log: x.Log, Server: x.Server, Seq: x.Seq})
			}
		}
		if len(infos) < max {
			break
		}
		log, seq = infos[len(infos)-1].Log, infos[len(infos)-1].Seq
	}
	return all
}
