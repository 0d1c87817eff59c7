package command

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/steledb/stele/internal/wire"
	"github.com/steledb/stele/master"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
)

// Commands of the master to nodes. Their parameters are the values of a Header: the master's node id, the sequencer of its lock, whose lock
// generation is its epoch, and the Raft epoch. MethodStartVoting has the term and the index of the invitation, too.
const (
	// MethodHail announces the master to a node.
	MethodHail = "cluster.hail"
	// MethodStartVoting makes a node a member of the lock service's group of that Raft epoch. It answers once the node's log exists.
	MethodStartVoting = "cluster.start_voting"
)

// MethodNudge reports to the master, from any node, that something about tablets has changed.
const MethodNudge = "cluster.nudge"

// Config is what the service needs.
type Config struct {
	Log       *slog.Logger
	ID        func() string // of the node
	RaftEpoch func() uint64
	Peers     Peers
	Master    func() *master.Master // of this node, which may be no master
	Meta      *namespace.Access
	Gate      *Gate
	Serving   func() error // returns nil while the node serves
	// BecomeVoter makes this node a server of the group that invites it.
	BecomeVoter func(ctx context.Context, h Header, i master.Invitation) error
	// Promote is called before a node is made a voter, and its result after.
	Promote func(node string) (done func())
}

// Peers calls methods of other nodes.
type Peers interface {
	Call(ctx context.Context, id, method string, params func(*wire.Encoder), result func(*wire.Decoder) error) error
}

// Service sends the commands of this node's mastership, and executes those of another master. It implements master.Nodes.
type Service struct{ Config }

// New creates a service.
func New(cfg Config) *Service { return &Service{cfg} }

// Register registers the commands to this node. They are answered once the node serves.
func (s *Service) Register(r method.Registrar) {
	r.Handle(MethodNudge, rpc.Inline, authz.Guard{}, func(c *rpc.Call) {
		if s.Serving() == nil {
			s.Master().Nudge()
		}
		c.Reply(nil)
	})
	for method, do := range map[string]func(*rpc.Call, Header) error{
		MethodHail:        func(*rpc.Call, Header) error { return nil },
		MethodStartVoting: s.startVoting,
	} {
		r.Handle(method, rpc.Spawned, authz.Guard{}, func(c *rpc.Call) {
			var h Header
			if err := h.Decode(&c.Params, c.NumParams); err != nil {
				c.Fail(&rpc.Error{Code: rpc.CodeBadRequest, Message: fmt.Sprintf("%s: %v", method, err)})
				return
			}
			if err := s.Serving(); err != nil { // the lock service may not be reachable yet
				c.Fail(err)
				return
			}
			if err := s.Admit(c, h); err != nil {
				c.Fail(err)
				return
			}
			if err := do(c, h); err != nil {
				c.Fail(reply.ToAPI(err))
				return
			}
			c.Reply(nil)
		})
	}
}

// startVoting executes MethodStartVoting, whose header has been read. A master of an older version sends no invitation. Without one, a
// node that was a voter before could vote again without what it acknowledged then.
func (s *Service) startVoting(c *rpc.Call, h Header) error {
	i, err := decodeInvitation(&c.Params, c.NumParams)
	if err != nil {
		return err
	}
	return s.BecomeVoter(c.Context(), h, i)
}

// appendStartVoting appends the parameters of MethodStartVoting.
func appendStartVoting(e *wire.Encoder, h Header, i master.Invitation) {
	e.Array(5)
	h.AppendValues(e)
	e.Uint(i.Term)
	e.Uint(i.Index)
}

// decodeInvitation reads the invitation in n parameters, whose header has been read.
func decodeInvitation(d *wire.Decoder, n int) (i master.Invitation, err error) {
	if n >= 5 {
		i.Term, i.Index = d.Uint(), d.Uint()
	}
	switch err := d.Err(); {
	case err != nil:
		return i, &rpc.Error{Code: rpc.CodeBadRequest, Message: fmt.Sprintf("%s: %v", MethodStartVoting, err)}
	case i.Term == 0 || i.Index == 0:
		return i, &rpc.Error{Code: rpc.CodeUnavailable, Retryable: true, Message: "the master sent no invitation: its node has an older version"}
	}
	return i, nil
}

// Admit admits a command of the master, or rejects it: see Gate.AdmitCall.
func (s *Service) Admit(c *rpc.Call, h Header) error { return s.Gate.AdmitCall(c, h, s.Meta.Client) }

func (s *Service) header(q metaapi.Sequencer) Header {
	return Header{Master: s.ID(), Sequencer: q, RaftEpoch: s.RaftEpoch()}
}

// Announce implements master.Nodes.
func (s *Service) Announce(ctx context.Context, id string, q metaapi.Sequencer) error {
	return s.Peers.Call(ctx, id, MethodHail, s.header(q).Append, nil)
}

// StartVoting implements master.Nodes.
func (s *Service) StartVoting(ctx context.Context, id string, i master.Invitation, q metaapi.Sequencer) error {
	defer s.Promote(id)() // it requests the authority's key meanwhile
	return s.Peers.Call(ctx, id, MethodStartVoting, func(e *wire.Encoder) { appendStartVoting(e, s.header(q), i) }, nil)
}

// ToTabletServer sends a command to a tablet server.
func (s *Service) ToTabletServer(ctx context.Context, v *master.TabletServer, method string, q metaapi.Sequencer, r Request, result func(*wire.Decoder) error) error {
	r.Header, r.Server = s.header(q), v.Name
	return s.Peers.Call(ctx, v.Node, method, func(e *wire.Encoder) { r.Append(e, method) }, result)
}

// NudgeMaster reports a change of tablets to the master, if one is known.
func (s *Service) NudgeMaster(ctx context.Context) {
	if m := s.Master(); m != nil && m.Epoch() != 0 {
		m.Nudge()
		return
	}
	masterID, _ := s.Gate.Last()
	if masterID == "" || masterID == s.ID() {
		return
	}
	if err := s.Peers.Call(ctx, masterID, MethodNudge, func(e *wire.Encoder) { e.Array(0) }, nil); err != nil {
		s.Log.Debug("nudge the master", "node", masterID, "err", err)
	}
}
