package command

import (
	"testing"

	"github.com/steledb/stele/internal/wire"
	metaapi "github.com/steledb/stele/raftmeta/api"
)

// A command is an array of three, as documented.
func TestCommandOnTheWire(t *testing.T) {
	q := metaapi.Sequencer{Path: "/master", Mode: metaapi.Exclusive, Instance: 3, LockGeneration: 7}
	sent := Header{Master: "n1", Sequencer: q, RaftEpoch: 5}
	var e wire.Encoder
	sent.Append(&e)
	d := wire.NewDecoder(e.Bytes())
	n := d.Array()
	var got Header
	if err := got.Decode(&d, n); err != nil || n != 3 || got != sent {
		t.Errorf("%+v of %d parameters: %v", got, n, err)
	}
	d = wire.NewDecoder(e.Bytes())
	d.Array()
	if d.Str() != "n1" || d.Str() != q.String() || d.Uint() != 5 || d.Err() != nil {
		t.Error("the parameters are not master, sequencer and raft epoch")
	}
}
