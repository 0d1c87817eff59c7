package bigtable

import (
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/protobuf/proto"

	"github.com/steledb/stele/gateway/errcode"
)

// Limits of Google's service that are narrower than those of the cluster, for Config.StrictLimits.
const (
	strictRowKeyBytes = 4 << 10
	strictMutations   = 100_000 // of all entries of a MutateRows together
	strictFilterBytes = 20 << 10
)

// checkRow checks the key of a row to change. The error is a status.
func (s *Service) checkRow(key []byte) error {
	if s.cfg.StrictLimits && len(key) > strictRowKeyBytes {
		return errcode.Invalid("Row keys must have at most %d bytes, got %d", strictRowKeyBytes, len(key))
	}
	return nil
}

// checkMutations checks the number of mutations in all entries of a request. The error is a status.
func (s *Service) checkMutations(n int) error {
	if s.cfg.StrictLimits && n > strictMutations {
		return errcode.Invalid("The entries of a request must have at most %d mutations together, got %d", strictMutations, n)
	}
	return nil
}

// checkFilter checks the size of a filter. The error is a status.
func (s *Service) checkFilter(f *bigtablepb.RowFilter) error {
	if s.cfg.StrictLimits && f != nil && proto.Size(f) > strictFilterBytes {
		return errcode.Invalid("Filters must have at most %d bytes, got %d", strictFilterBytes, proto.Size(f))
	}
	return nil
}
