package tabletadmin

import (
	"bytes"
	"context"
	"slices"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/table"
)

// Describe collects the descriptions of a table's tablets from their servers.
func (tv *Service) Describe(ctx context.Context, s *table.Schema) (tablets []api.TabletInfo, err error) {
	err = tv.callServers(ctx, s, MethodDescribe, func(e *wire.Encoder) { e.Nil() }, func(d *wire.Decoder) error {
		var part api.TableInfo
		if err := part.Decode(d); err != nil {
			return err
		}
		tablets = append(tablets, part.Tablets...)
		return nil
	})
	slices.SortFunc(tablets, func(a, b api.TabletInfo) int { return bytes.Compare(a.Start, b.Start) })
	return tablets, err
}

// AssignedWhole reports whether METADATA has all tablets of a new table assigned to servers.
func (tv *Service) AssignedWhole(ctx context.Context, tableID uint64, tablets int) bool {
	from, to := metadata.TableRange(tableID)
	whole, served := false, true
	err := tv.Rows().Scan(ctx, string(from), string(to), metadata.Places(), func(r *metadata.Row) {
		tablets--
		whole = whole || len(r.End) == 0
		served = served && r.Server != ""
	})
	return err == nil && whole && served && tablets <= 0
}

// Whole reports whether tablets, in row order, cover all rows. METADATA names a server before that server has loaded the tablet,
// so the servers are asked. Tablets of an earlier table of the same name have lower ids.
func Whole(tablets []api.TabletInfo, tableID uint64) bool {
	end := []byte(nil)
	for i := range tablets {
		if tablets[i].ID <= tableID || !bytes.Equal(tablets[i].Start, end) || i > 0 && len(end) == 0 {
			return false
		}
		end = tablets[i].End
	}
	return len(tablets) > 0 && len(end) == 0
}
