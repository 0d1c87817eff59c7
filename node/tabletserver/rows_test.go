package tabletserver

import (
	"fmt"
	"testing"
	"time"

	"github.com/steledb/stele/blobfs"
	"github.com/steledb/stele/client/metadata"
	"github.com/steledb/stele/node/metarows"
	"github.com/steledb/stele/table"
	"github.com/steledb/stele/tablet"
	"github.com/steledb/stele/tablet/storage"
)

// TestForgetDroppedDuringLoad (S1): a tablet whose load ends while rows of dropped tables are removed keeps its row, by which its server
// changes METADATA.
func TestForgetDroppedDuringLoad(t *testing.T) {
	store, err := blobfs.Open(blobfs.Config{Folders: []string{t.TempDir()}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	s := &Server{Config: &Config{}}
	s.Rows = newRows(s)
	if s.Users, err = tablet.Start(t.Context(), tablet.Config{Blobs: storage.OnStore(store), Metadata: s.Rows}); err != nil {
		t.Fatal(err)
	}
	defer s.Users.Close()
	load := func(id uint64, name string) {
		sc := &table.Schema{Name: name, ID: id, Families: []table.Family{{Name: "f", ID: 1}}}
		if err := s.Users.Load(t.Context(), tablet.Load{Meta: &tablet.Meta{ID: id, Table: id, LastMajor: time.Now()}, Schema: sc}); err != nil {
			t.Fatal(err)
		}
	}
	load(5000, "served")
	for i := range 2000 { // forgetDropped looks at all of them
		s.Rows.remember(&metadata.Row{Table: 5000, End: []byte(fmt.Sprint(i))})
	}
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
				s.Rows.forgetDropped()
			}
		}
	}()
	lost := 0
	for i := range 500 {
		id, name := uint64(10000+i), fmt.Sprint("t", i)
		row, key := &metadata.Row{Table: id}, metadata.Key(nil, id, nil)
		s.Busy.Reserve(key) // as Server.Load
		s.Rows.remember(row)
		load(id, name)
		s.Busy.Release(key)
		time.Sleep(200 * time.Microsecond)
		if s.Rows.state(metarows.RefOf(row)) == nil {
			lost++
		}
		s.Users.DropTable(name)
	}
	close(stop)
	<-done
	if lost > 0 {
		t.Errorf("%d loaded tablets have lost their row", lost)
	}
}
