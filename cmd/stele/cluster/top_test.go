package cluster

import (
	"testing"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
)

// TestTopLine: rates are those between two views; after a restart, and without an answer, there are none.
func TestTopLine(t *testing.T) {
	began := time.Now()
	view := func(after, up time.Duration, reads int64) *nodeView {
		return &nodeView{
			info: &client.NodeInfo{ID: "a", Name: "n1", State: api.NodeAlive}, at: began.Add(after), status: &client.Status{Uptime: up, Reads: reads, Commits: 2 * reads, Tablets: 3},
			activity: &client.Activity{ReadP99US: []int64{64, 250}, WriteP99US: []int64{512, -1}},
		}
	}
	last, now := view(0, time.Minute, 100), view(2*time.Second, 62*time.Second, 300)
	l := topLine(last, now)
	if l.Reads != 100 || l.Commits != 200 || l.Waits != 0 || l.Tablets != 3 || l.ReadP99MS == nil || *l.ReadP99MS != 0.25 || l.WriteP99MS != nil {
		t.Errorf("%+v", l)
	}
	for name, last := range map[string]*nodeView{"no earlier view": nil, "a restart": view(0, time.Hour, 1000)} {
		if l := topLine(last, now); l.Reads != 0 || l.Tablets != 3 {
			t.Errorf("%s: %+v", name, l)
		}
	}
	now.err = client.ErrClosed
	if l := topLine(last, now); l.Error == "" || l.Tablets != 0 {
		t.Errorf("no answer: %+v", l)
	}
}
