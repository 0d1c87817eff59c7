package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/steledb/stele/client"
	"github.com/steledb/stele/client/api"
	"github.com/steledb/stele/internal/health"
	"github.com/steledb/stele/node/authz"
	"github.com/steledb/stele/node/changes"
	"github.com/steledb/stele/node/method"
	"github.com/steledb/stele/node/namespace"
	"github.com/steledb/stele/node/remote"
	"github.com/steledb/stele/node/reply"
	metaapi "github.com/steledb/stele/raftmeta/api"
	"github.com/steledb/stele/rpc"
	"github.com/steledb/stele/security/acl"
	"github.com/steledb/stele/table"
)

const (
	// askEvery is how long an answer of a cluster is used.
	askEvery = 10 * time.Second
	// askTimeout bounds the wait for a cluster, and so for all: they are asked at once. Pages wait longer.
	askTimeout = 6 * time.Second
	// answerBytesMax bounds an answer of another cluster. That of a thousand nodes about their disks is shorter.
	answerBytesMax = 16 << 20
	// idBytesMax bounds the id of another cluster.
	idBytesMax = 64
	// problemBytesMax bounds a text of another cluster.
	problemBytesMax = 500
)

// Config is what the service needs.
type Config struct {
	Log       *slog.Logger
	Limits    *table.Limits
	Catalog   *namespace.Catalog
	Changes   *changes.Changes
	ClusterID func() string // of the node's own cluster
	// Dial opens connections to other clusters, over the network of the node.
	Dial func(ctx context.Context, addr string) (net.Conn, error)
}

// Service keeps the registry.
type Service struct {
	Config

	// mu guards the last answers, by name. Never held across I/O.
	mu    sync.Mutex
	known map[string]*answer
}

// answer is what a cluster answered. One request at a time renews it.
type answer struct {
	turn       chan struct{} // has a place for the request
	generation uint64        // of the record
	at         time.Time     // zero: never
	info       api.ClusterInfo
}

// New creates a service.
func New(cfg Config) *Service {
	return &Service{Config: cfg, known: map[string]*answer{}}
}

// Register registers the methods of the service.
func (s *Service) Register(r method.Registrar) {
	guard := authz.Guard{To: authz.Right, Right: acl.Admin, Master: true, About: authz.Named("cluster"), Leader: authz.LeaderFirst}
	r.Handle(api.MethodAddCluster, rpc.Spawned, guard, s.add)
	r.HandleNames(api.MethodRemoveCluster, 1, guard, func(ctx context.Context, r *api.NamesRequest) (reply.Result, error) {
		return nil, s.Changes.Do(ctx, authz.RequestIn(ctx), func(ctx context.Context) error { return s.remove(ctx, r.Names[0]) })
	})
	r.HandleNames(api.MethodListClusters, 0, authz.Guard{To: authz.Right, Right: acl.Monitor, Leader: authz.LeaderThroughout}, s.list)
}

func (s *Service) add(c *rpc.Call) {
	c.Retain() // the change may outlive the call
	var r api.AddClusterRequest
	if !reply.Begin(c, r.Decode(&c.Params, c.NumParams), &r.Options) {
		return
	}
	caller := authz.SubjectOf(c)
	id, err := s.check(c.Context(), &r)
	if err == nil {
		rec := &record{addrs: r.Addrs, secret: r.Secret, console: r.Console, id: id, by: caller.Owner()}
		err = s.Changes.Do(c.Context(), authz.ChangeRequest{Caller: caller, Method: api.MethodAddCluster, Name: r.Name}, func(ctx context.Context) error {
			return s.addNow(ctx, r.Name, rec)
		})
	}
	if err != nil {
		reply.Fail(c, err)
		return
	}
	c.Reply(nil)
}

// check asks a new cluster for its id.
func (s *Service) check(ctx context.Context, r *api.AddClusterRequest) (id string, err error) {
	if err := s.Limits.CheckName("cluster name", r.Name); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	// The error is not of this cluster: the caller lacks no right here, and nothing may have been changed.
	refused := func(err error) error {
		return rpc.Errorf(rpc.CodeBadRequest, "the other cluster, with the given credential: %s", shorten(err.Error()))
	}
	c, err := remote.Open(ctx, r.Addrs, r.Secret, client.Config{Dial: s.Dial, Logger: s.Log, MessageBytesMax: answerBytesMax})
	if err != nil {
		return "", refused(err)
	}
	defer c.Close()
	st, err := c.Status(ctx)
	if err != nil {
		return "", refused(err)
	}
	if len(st.Cluster) > idBytesMax {
		return "", refused(fmt.Errorf("its id has %d bytes, at most %d", len(st.Cluster), idBytesMax))
	}
	if st.Cluster == s.ClusterID() {
		return "", rpc.Errorf(rpc.CodeBadRequest, "%s are nodes of this cluster", strings.Join(r.Addrs, ","))
	}
	return st.Cluster, nil
}

// addNow writes the record of a new cluster, within a change. It may be repeated after an error.
func (s *Service) addNow(ctx context.Context, name string, rec *record) error {
	names, err := s.Catalog.List(ctx, Dir)
	if err != nil {
		return err
	}
	if slices.Contains(names, name) {
		return rpc.Errorf(rpc.CodeBadRequest, "there is a cluster %s: remove it before", name)
	}
	if n := int64(len(names)); n >= api.ClustersMax {
		return &table.LimitError{What: "clusters", Limit: api.ClustersMax, Got: n + 1}
	}
	if _, err = s.Catalog.Set(ctx, recordPath(name), rec.encode(), 0); err == nil {
		s.Log.Info("cluster added to the registry", "cluster", name)
	}
	return err
}

func (s *Service) remove(ctx context.Context, name string) error {
	err := s.Catalog.Remove(ctx, recordPath(name), metaapi.AnyGeneration)
	if errors.Is(err, metaapi.ErrNotFound) || errors.Is(err, metaapi.ErrBadPath) || err == nil && strings.Contains(name, "/") {
		return noCluster(name)
	}
	if err == nil {
		s.Log.Info("cluster removed from the registry", "cluster", name)
	}
	return err
}

func noCluster(name string) error { return fmt.Errorf("cluster %.80q: %w", name, api.ErrNoCluster) }

func (s *Service) list(ctx context.Context, _ *api.NamesRequest) (reply.Result, error) {
	names, err := s.Catalog.List(ctx, Dir)
	if err != nil {
		return nil, err
	}
	s.forget(names)
	all := &api.Clusters{Clusters: make([]api.ClusterInfo, len(names))}
	errs := make([]error, len(names))
	var looks sync.WaitGroup
	for i, name := range names {
		looks.Go(func() { all.Clusters[i], errs[i] = s.look(ctx, name) })
	}
	looks.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	all.Clusters = slices.DeleteFunc(all.Clusters, func(x api.ClusterInfo) bool { return x.Name == "" }) // removed meanwhile
	return all.Append, nil
}

// forget forgets the answers of clusters that are removed.
func (s *Service) forget(names []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.known {
		if !slices.Contains(names, name) {
			delete(s.known, name)
		}
	}
}

// answerOf returns the answer of a cluster, perhaps without content.
func (s *Service) answerOf(name string) *answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.known[name]
	if a == nil {
		a = &answer{turn: make(chan struct{}, 1)}
		s.known[name] = a
	}
	return a
}

// look returns what a cluster answered in the last askEvery, and asks it if there is nothing. The result has no name if the record is gone.
func (s *Service) look(ctx context.Context, name string) (x api.ClusterInfo, err error) {
	a := s.answerOf(name)
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return x, ctx.Err()
	}
	f, err := s.Catalog.Meta.Get(ctx, recordPath(name))
	if errors.Is(err, metaapi.ErrNotFound) {
		return x, nil
	}
	if err != nil {
		return x, err
	}
	if a.generation != f.Generation || a.at.IsZero() || time.Since(a.at) >= askEvery {
		rec, err := decodeRecord(f.Data)
		if err != nil { // the others are shown
			return api.ClusterInfo{Name: name, State: api.ClusterUnreachable, Sentence: shorten(fmt.Sprintf("%s: %v", f.Path, err)), AtMS: time.Now().UnixMilli()}, nil
		}
		a.info = s.ask(context.WithoutCancel(ctx), name, rec) // else callers without patience could have it asked all the time
		a.generation, a.at = f.Generation, time.Now()
	}
	return a.info, nil
}

// ask asks a cluster for its state.
func (s *Service) ask(ctx context.Context, name string, rec *record) api.ClusterInfo {
	x := api.ClusterInfo{Name: name, Addrs: rec.addrs, Console: rec.console, ID: rec.id, By: rec.by, State: api.ClusterUnreachable, AtMS: time.Now().UnixMilli()}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	c, err := remote.Open(ctx, rec.addrs, rec.secret, client.Config{Dial: s.Dial, Logger: slog.New(slog.DiscardHandler), MessageBytesMax: answerBytesMax})
	if err == nil {
		defer c.Close()
		err = describe(ctx, c, rec, &x)
	}
	if err != nil {
		x.State, x.Sentence = api.ClusterUnreachable, shorten(err.Error())
	}
	return x
}

// describe adds what a cluster answers.
func describe(ctx context.Context, c *client.Client, rec *record, x *api.ClusterInfo) error {
	st, err := c.Status(ctx)
	if err != nil {
		return err
	}
	if st.Cluster != rec.id {
		return fmt.Errorf("cluster %.64q answers at these addresses, and was %s when it was added: remove it, and add it again", st.Cluster, rec.id)
	}
	whole := health.Of(ctx, c)
	state, sentence := health.State(st, whole)
	x.State, x.Sentence, x.Version = state, shorten(strings.TrimPrefix(sentence, ": ")), shorten(st.Version)
	x.Nodes = max(st.Nodes, 0)
	x.NodesAlive = min(max(st.NodesAlive-int64(len(whole.Unreachable)), 0), x.Nodes)
	if x.Tablets = -1; whole.Tablets != nil {
		x.Tablets = *whole.Tablets
	}
	if sp := whole.Space; sp != nil {
		x.DiskBytes = max(sp.Total, 0)
		x.DiskFree = min(max(sp.Free, 0), x.DiskBytes)
	}
	for _, p := range whole.Problems() {
		if len(x.Problems) == api.ClusterProblemsMax {
			break
		}
		x.Problems = append(x.Problems, shorten(p))
	}
	return nil
}

// shorten bounds a text of another cluster.
func shorten(s string) string { return remote.Text(s, problemBytesMax) }
