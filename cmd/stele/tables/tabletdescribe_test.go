package tables

import (
	"testing"

	"github.com/steledb/stele/client"
)

// TestTabletPartsOfFiles checks that a tablet that shares a file counts its part, as its server
// reports it, and has no sizes if no server does.
func TestTabletPartsOfFiles(t *testing.T) {
	shared := tabletFile{Blob: "b1", Bytes: 1000, Entries: 100, Shared: true}
	groups := func() []tabletGroup {
		return []tabletGroup{{Name: "default", Files: []tabletFile{shared}}, {Name: "empty"}}
	}
	infos := []client.TabletInfo{
		{ID: 1, Groups: []client.GroupInfo{{Name: "default", Bytes: 300, Entries: 30}}},
		{ID: 2, Groups: []client.GroupInfo{{Name: "default", Bytes: 700, Entries: 70}}},
	}
	for _, info := range infos {
		d := tabletRow{ID: info.ID, Groups: groups()}
		d.addSizes(&client.TableInfo{Tablets: infos})
		g := d.Groups[0]
		if g.Bytes == nil || *g.Bytes != info.Groups[0].Bytes || g.Entries == nil || *g.Entries != info.Groups[0].Entries {
			t.Errorf("tablet %d: %v bytes, %v cells", info.ID, g.Bytes, g.Entries)
		}
		if g := d.Groups[1]; g.Bytes == nil || *g.Bytes != 0 {
			t.Errorf("tablet %d, a group without files: %v bytes", info.ID, g.Bytes)
		}
	}
	d := tabletRow{ID: 3, Groups: groups()}
	if d.addSizes(&client.TableInfo{Tablets: infos}); d.Groups[0].Bytes != nil || d.Groups[0].Entries != nil {
		t.Errorf("a tablet that no server reports has %d bytes", *d.Groups[0].Bytes)
	}
}
