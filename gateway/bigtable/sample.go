package bigtable

import (
	"cloud.google.com/go/bigtable/apiv2/bigtablepb"

	"github.com/steledb/stele/gateway/errcode"
)

// SampleRowKeys implements bigtablepb.BigtableServer. Offsets strictly increase, because clients
// divide by their differences.
func (s *Service) SampleRowKeys(req *bigtablepb.SampleRowKeysRequest, stream bigtablepb.Bigtable_SampleRowKeysServer) error {
	t, err := s.open(stream.Context(), target{req.TableName, req.AuthorizedViewName, req.MaterializedViewName, req.AppProfileId, useAny})
	if err != nil {
		return err
	}
	in, err := rangeSpan(0, req.RowRange)
	if err != nil {
		return err
	}
	if in.one {
		in.end = successor([]byte(in.start))
	}
	samples, err := t.SampleRowKeys(stream.Context())
	if err != nil {
		return errcode.Convert(err, errcode.Repeatable)
	}
	before, sent := int64(0), int64(0) // bytes before the range, and the last offset
	for _, sample := range samples {
		end := len(sample.Key) == 0
		if !end && string(sample.Key) <= in.start {
			before = sample.Offset
			continue
		}
		past := in.end != "" && (end || string(sample.Key) >= in.end)
		if past { // the last key is the end of the range
			sample.Key = []byte(in.end)
		}
		offset := max(sample.Offset-before, sent)
		if offset == sent && (sent > 0 || len(sample.Key) > 0) {
			offset++
		}
		if err := stream.Send(&bigtablepb.SampleRowKeysResponse{RowKey: sample.Key, OffsetBytes: offset}); err != nil || past {
			return err
		}
		sent = offset
	}
	return nil
}
