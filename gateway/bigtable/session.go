package bigtable

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"cloud.google.com/go/bigtable/apiv2/bigtablepb"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/gateway/errcode"
	"github.com/steledb/stele/gateway/names"
)

const (
	// keepAlive is the time without a message from the node after which a client closes a session in
	// which a virtual RPC is in progress.
	keepAlive = 3 * time.Second
	// heartbeatPeriod is how often such a session gets a heartbeat: two may be late.
	heartbeatPeriod = time.Second
)

// admit reserves memory for a session.
func (s *Service) admit(ctx context.Context) (release func(), ok bool) {
	if s.cfg.AdmitSession == nil {
		return func() {}, true
	}
	return s.cfg.AdmitSession(ctx)
}

// sessions are those that are open.
type sessions struct {
	// mu guards the fields in it. Never held across I/O.
	mu struct {
		sync.Mutex
		open     map[*session]bool
		draining bool
	}
}

// Drain sends a GoAway in every session, so that clients close it behind the answer of a virtual RPC in
// progress. No further sessions are opened. Readers of change streams get UNAVAILABLE.
func (s *Service) Drain() {
	s.endStreams()
	s.sessions.mu.Lock()
	defer s.sessions.mu.Unlock()
	s.sessions.mu.draining = true
	for x := range s.sessions.mu.open {
		x.drain()
	}
}

// enter adds a session. It returns false if the service is draining.
func (o *sessions) enter(x *session) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.mu.draining {
		o.mu.open[x] = true
	}
	return !o.mu.draining
}

func (o *sessions) leave(x *session) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.mu.open, x)
}

// session is a stream of virtual RPCs about one table, or one view of it. One is in progress at a time, on the goroutine
// of the stream.
type session struct {
	service *Service
	stream  grpc.BidiStreamingServer[bigtablepb.SessionRequest, bigtablepb.SessionResponse]
	opening
	// beat sends heartbeats while a virtual RPC is in progress.
	beat *time.Timer
	// draining means that a GoAway is due.
	draining atomic.Bool

	// mu guards the fields in it. It is held while a message is sent, since a stream sends one at a time.
	mu struct {
		sync.Mutex
		admitted int64 // the id of the last virtual RPC that was or is executed
		busy     bool  // it is in progress
		away     bool  // the GoAway is sent
		ended    bool
	}
}

// opening is what the first message of a session requests.
type opening struct {
	name       names.View // that of a table has an empty id
	profile    string     // the id of the app profile; may be empty
	permission bigtablepb.OpenTableRequest_Permission
}

// OpenTable implements bigtablepb.BigtableServer: it serves a session.
func (s *Service) OpenTable(stream bigtablepb.Bigtable_OpenTableServer) error {
	return s.session(stream, func(payload []byte) (o opening, err error) {
		m := &bigtablepb.OpenTableRequest{}
		if proto.Unmarshal(payload, m) != nil {
			return o, errcode.Invalid("open_session.payload must be an OpenTableRequest")
		}
		o.name, err = target{table: m.TableName}.name()
		o.permission, o.profile = m.Permission, m.AppProfileId
		return o, err
	})
}

// OpenAuthorizedView implements bigtablepb.BigtableServer: it serves a session about a view. Its virtual RPCs, and their answers, are encoded as those
// about a table.
func (s *Service) OpenAuthorizedView(stream bigtablepb.Bigtable_OpenAuthorizedViewServer) error {
	return s.session(stream, func(payload []byte) (o opening, err error) {
		m := &bigtablepb.OpenAuthorizedViewRequest{}
		if proto.Unmarshal(payload, m) != nil {
			return o, errcode.Invalid("open_session.payload must be an OpenAuthorizedViewRequest")
		}
		v, err := names.ParseView(m.AuthorizedViewName)
		o.name, o.permission, o.profile = v, bigtablepb.OpenTableRequest_Permission(m.Permission), m.AppProfileId
		return o, errcode.Convert(err, errcode.Repeatable)
	})
}

// session serves a session, which parse opens. If there is no memory for it, the answer is UNIMPLEMENTED, since clients then use plain calls.
func (s *Service) session(stream bigtablepb.Bigtable_OpenTableServer, parse func(payload []byte) (opening, error)) error {
	x := &session{service: s, stream: stream}
	opened, err := x.handshake(parse)
	if err != nil {
		return err
	}
	release, ok := s.admit(stream.Context())
	if !ok {
		return errcode.Unimplemented("The node has no memory for another session: use ReadRows and MutateRow.")
	}
	defer release()
	x.beat = time.AfterFunc(time.Hour, x.tick) // until it is set
	x.beat.Stop()
	if !s.sessions.enter(x) {
		return errcode.Convert(&api.OverloadedError{Reason: "the node is shutting down", RetryAfter: time.Second}, errcode.Repeatable)
	}
	defer x.end()
	if err := x.send(opened, &bigtablepb.SessionResponse{Payload: &bigtablepb.SessionResponse_SessionParameters{
		SessionParameters: &bigtablepb.SessionParametersResponse{KeepAlive: durationpb.New(keepAlive)}}}); err != nil {
		return err
	}
	return x.serve()
}

// handshake receives the first message, and returns its answer. Errors are statuses.
func (x *session) handshake(parse func(payload []byte) (opening, error)) (*bigtablepb.SessionResponse, error) {
	first, err := x.stream.Recv()
	if err != nil {
		return nil, err
	}
	open := first.GetOpenSession()
	if open == nil {
		return nil, errcode.Invalid("the first message of a session must be open_session")
	}
	if x.opening, err = parse(open.Payload); err != nil {
		return nil, err
	}
	if _, err := x.table(x.stream.Context()); err != nil {
		return nil, err
	}
	return &bigtablepb.SessionResponse{Payload: &bigtablepb.SessionResponse_OpenSession{OpenSession: &bigtablepb.OpenSessionResponse{
		Backend: &bigtablepb.BackendIdentifier{ApplicationFrontendId: x.service.peer.id, ApplicationFrontendZone: x.service.peer.zone}}}}, nil
}

// table opens the table or view of the session, as each plain call does: the caller's rights, and the app profile, are those of now.
func (x *session) table(ctx context.Context) (Table, error) {
	if err := x.service.profile(ctx, x.profile, useAny); err != nil {
		return nil, err
	}
	return x.service.openView(ctx, x.name)
}

// serve serves the virtual RPCs until the client closes the session.
func (x *session) serve() error {
	for {
		req, err := x.stream.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		switch p := req.GetPayload().(type) {
		case *bigtablepb.SessionRequest_VirtualRpc:
			err = x.call(p.VirtualRpc)
		case *bigtablepb.SessionRequest_CloseSession:
			return nil
		default:
			err = errcode.Invalid("a session is open: its messages must be virtual_rpc or close_session")
		}
		if err != nil {
			return err
		}
	}
}

// call executes a virtual RPC, and answers it. Its error ends the session.
func (x *session) call(req *bigtablepb.VirtualRpcRequest) error {
	began := time.Now()
	away, err := x.begin(req.GetRpcId())
	if err != nil {
		return err
	}
	memory := rowMemory{service: x.service, bytes: pointRowBytes}
	defer memory.end(x.stream.Context())
	var a answer
	if away {
		err = &api.OverloadedError{Reason: "the session is closing", RetryAfter: time.Millisecond}
	} else {
		a, err = x.execute(req, &memory)
	}
	if err != nil {
		return x.answer(x.failure(req.RpcId, err))
	}
	return x.answer(x.encode(req.RpcId, a, time.Since(began), memory.current()))
}

// begin admits a virtual RPC. It returns away if the session is closing, and clients may execute it
// elsewhere (GB5).
func (x *session) begin(id int64) (away bool, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.away {
		return true, nil
	}
	if id <= x.mu.admitted {
		return false, errcode.Invalid("virtual_rpc.rpc_id must be larger than %d", x.mu.admitted)
	}
	x.mu.admitted, x.mu.busy = id, true
	x.beat.Reset(heartbeatPeriod)
	return false, nil
}

// answer sends the answer of the virtual RPC in progress: a SessionResponse, or one that is encoded already.
func (x *session) answer(m any) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.busy = false
	x.beat.Stop()
	if err := x.stream.SendMsg(m); err != nil {
		return err
	}
	return x.leaveLocked()
}

// tick sends what is due: a GoAway, or a heartbeat.
func (x *session) tick() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.mu.ended {
		return
	}
	if x.mu.busy {
		x.beat.Reset(heartbeatPeriod)
	}
	// If the stream is broken, serve gets an error, too.
	if away := x.mu.away; x.leaveLocked() != nil || away != x.mu.away {
		return // the GoAway is as good as a heartbeat
	}
	if x.mu.busy {
		_ = x.stream.Send(&bigtablepb.SessionResponse{Payload: &bigtablepb.SessionResponse_Heartbeat{Heartbeat: &bigtablepb.HeartbeatResponse{}}})
	}
}

// drain makes the session send a GoAway. It does not wait for that.
func (x *session) drain() {
	// If the timer is reset or stopped meanwhile, answer or the next tick sends it.
	x.draining.Store(true)
	x.beat.Reset(0)
}

// leaveLocked sends a GoAway if one is due.
func (x *session) leaveLocked() error {
	if x.mu.away || !x.draining.Load() {
		return nil
	}
	x.mu.away = true
	return x.stream.Send(&bigtablepb.SessionResponse{Payload: &bigtablepb.SessionResponse_GoAway{GoAway: &bigtablepb.GoAwayResponse{
		Reason: "shutdown", Description: "The node is shutting down.", LastRpcIdAdmitted: x.mu.admitted}}})
}

// send sends messages.
func (x *session) send(ms ...*bigtablepb.SessionResponse) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, m := range ms {
		if err := x.stream.Send(m); err != nil {
			return err
		}
	}
	return nil
}

// end makes the session send nothing more.
func (x *session) end() {
	x.service.sessions.leave(x)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.mu.ended = true // a tick that waits for the lock sends nothing
	x.beat.Stop()
}
