package quotas

import (
	"reflect"
	"testing"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/internal/wire/wiretest"
	"github.com/steledb/stele/node/quota"
)

// TestUseReports: reports and answers cross the wire, with what later versions may add, and no part of one is taken for
// a whole.
func TestUseReports(t *testing.T) {
	for _, r := range []useReport{
		{server: "n1.5"},
		{server: "n1.5", round: 9, rates: []quota.Report{{Key: "t1", Shares: [quota.Kinds]float64{0.5, 0, 0, 1}, Offered: [quota.Kinds]float64{3}, Refused: [quota.Kinds]bool{true}}, {Key: "uann"}},
			tables: map[uint64]int64{7: 1 << 40, 8: 0}},
	} {
		b := wiretest.Encode(r.append)
		var back useReport
		d := wire.NewDecoder(b)
		if err := back.decode(&d, d.Array()); err != nil || !reflect.DeepEqual(back, r) || d.More() {
			t.Errorf("%+v became %+v, %v", r, back, err)
		}
		for n := range b {
			d := wire.NewDecoder(b[:n])
			if (&useReport{}).decode(&d, d.Array()) == nil {
				t.Errorf("%d of %d bytes are a report", n, len(b))
			}
		}
	}
	for _, a := range []useAnswer{
		{shares: map[string][quota.Kinds]float64{}},
		{shares: map[string][quota.Kinds]float64{"t1": {0.25, 1, 0, 0}}, over: map[uint64]quota.Over{7: {Quota: "q", Limit: 5, Used: 6}}, epoch: 1 << 40},
		{shares: map[string][quota.Kinds]float64{}, over: map[uint64]quota.Over{}},
	} {
		var back useAnswer
		d := wire.NewDecoder(wiretest.Encode(a.append))
		if err := back.decode(&d); err != nil || !reflect.DeepEqual(back, a) || d.More() {
			t.Errorf("%+v became %+v, %v", a, back, err)
		}
	}
}
