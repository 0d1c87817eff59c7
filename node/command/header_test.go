package command

import (
	"errors"
	"testing"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/master"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
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

// The command to start voting has an invitation after the header, as documented. Without one, as from an older version, it is rejected,
// and may be repeated.
func TestStartVotingOnTheWire(t *testing.T) {
	q := metaapi.Sequencer{Path: "/master", Mode: metaapi.Exclusive, Instance: 3, LockGeneration: 7}
	sent := Header{Master: "n1", Sequencer: q, RaftEpoch: 5}
	decode := func(e *wire.Encoder) (i master.Invitation, err error) {
		d := wire.NewDecoder(e.Bytes())
		n := d.Array()
		var got Header
		if err := got.Decode(&d, n); err != nil || got != sent {
			t.Errorf("header %+v: %v", got, err)
		}
		return decodeInvitation(&d, n)
	}
	var e wire.Encoder
	want := master.Invitation{Index: 9, Term: 2}
	appendStartVoting(&e, sent, want)
	if got, err := decode(&e); got != want || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if b := e.Bytes(); b[len(b)-2] != 2 || b[len(b)-1] != 9 {
		t.Errorf("the last parameters of %x are not term and index", b)
	}
	var old wire.Encoder
	sent.Append(&old)
	var refused *rpc.Error
	if _, err := decode(&old); !errors.As(err, &refused) || refused.Code != rpc.CodeUnavailable || !refused.Retryable {
		t.Errorf("without an invitation: %v", err)
	}
}
