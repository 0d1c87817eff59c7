package judge

import (
	"fmt"
	"slices"

	"github.com/steledb/stele/test/simulation/workload"
)

// stored is a blob with the operations that stored and deleted it.
type stored struct {
	put       workload.Op
	deletions []workload.Op
}

// surely reports whether the blob existed throughout an operation.
func (s *stored) surely(op *workload.Op) bool {
	return s.put.Return < op.Call && !slices.ContainsFunc(s.deletions, func(d workload.Op) bool { return d.Call < op.Return })
}

// gone returns the deletion that had returned before an operation was called.
func (s *stored) gone(op *workload.Op) (workload.Op, bool) {
	for _, d := range s.deletions {
		if d.Outcome == workload.OK && d.Return < op.Call {
			return d, true
		}
	}
	return workload.Op{}, false
}

// blobs returns reads and lists of blobs that are wrong.
func blobs(ops []workload.Op) (all []Violation) {
	byID := map[string]*stored{}
	var ids []string
	for _, op := range ops {
		switch {
		case op.Kind == workload.PutBlob && op.Outcome == workload.OK:
			byID[op.Blob.ID] = &stored{put: op}
			ids = append(ids, op.Blob.ID)
		case op.Kind == workload.DeleteBlob && op.Outcome != workload.Failed && byID[op.Blob.ID] != nil:
			s := byID[op.Blob.ID]
			s.deletions = append(s.deletions, op)
		}
	}
	for _, op := range ops {
		switch {
		case op.Kind == workload.GetBlob && byID[op.Blob.ID] != nil:
			all = append(all, judgeGet(&op, byID[op.Blob.ID])...)
		case op.Kind == workload.ListBlobs && op.Outcome == workload.OK:
			for _, id := range ids {
				all = append(all, judgeList(&op, id, byID[id])...)
			}
		}
	}
	return all
}

func judgeGet(op *workload.Op, s *stored) []Violation {
	switch {
	case op.Outcome == workload.OK && op.Blob.Found != s.put.Blob.Name:
		return []Violation{violation("blobs", fmt.Sprintf("blob %s has contents %s, stored were %s", op.Blob.ID, op.Blob.Found, s.put.Blob.Name), s.put, *op)}
	case op.Reason == workload.NoBlob && s.surely(op):
		return []Violation{violation("blobs", fmt.Sprintf("blob %s is lost", op.Blob.ID), s.put, *op)}
	}
	return nil
}

func judgeList(op *workload.Op, id string, s *stored) []Violation {
	listed := slices.Contains(op.Blob.IDs, id)
	if !listed && s.surely(op) {
		return []Violation{violation("blobs", fmt.Sprintf("a list omits blob %s", id), s.put, *op)}
	}
	if d, gone := s.gone(op); gone && listed {
		return []Violation{violation("blobs", fmt.Sprintf("a list has blob %s, which was deleted", id), s.put, d, *op)}
	}
	return nil
}
