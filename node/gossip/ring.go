package gossip

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/steledb/stele/node/advertise"
)

// Ring is a node's membership in the gossip of its cluster.
type Ring struct {
	cfg       Config
	list      *memberlist.Memberlist
	keyring   *memberlist.Keyring // nil without keys
	keysMu    sync.Mutex          // orders SetKeys
	transport *transport
	address   string
	name      string // in memberlist
	table     table
	notes     notes
	lines     *bridge

	// meta guards the node's own meta.
	meta struct {
		sync.Mutex
		now     Meta
		encoded []byte
	}
	dirty chan struct{} // holds a value when meta is to be sent

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	// life orders Leave and Close, and the start of joins.
	life struct {
		sync.Mutex
		closed bool
	}
}

// Start binds the port and starts to answer. The node knows only itself until Join, or until
// another node joins it.
func Start(cfg Config) (*Ring, error) {
	if cfg.Self.Start == 0 {
		cfg.Self.Start = uint64(time.Now().UnixMilli())
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	r := &Ring{cfg: cfg, name: instanceName(cfg.Self.ID, cfg.Self.Start), dirty: make(chan struct{}, 1)}
	r.meta.now = cfg.Self
	r.meta.encoded, _ = cfg.Self.encode() // validated
	r.lines = newBridge(cfg.Logger, len(cfg.Keys) > 0)
	r.table.init(cfg.Self.ID, cfg.Keep, cfg.Removed, r.lines.put)
	r.notes.init(r.table.count)
	r.ctx, r.cancel = context.WithCancel(context.Background())
	if err := r.listen(); err != nil {
		r.cancel()
		return nil, err
	}
	r.tasks.Go(func() { r.lines.run(r.ctx) })
	r.tasks.Go(r.publishMeta)
	r.tasks.Go(r.reconnect)
	return r, nil
}

// listen binds the port and starts memberlist.
func (r *Ring) listen() error {
	logger := r.lines.logger()
	sockets, err := r.cfg.Open(r.cfg.Bind, logger)
	if err != nil {
		return fmt.Errorf("listen for gossip: %w", err)
	}
	port := sockets.Port()
	o, err := newDecrypter(r.cfg.Cluster, r.cfg.Keys)
	if err != nil {
		_ = sockets.Shutdown()
		return err
	}
	r.transport = newTransport(sockets, o, r.cfg.StreamMemory, r.table.hosts, r.lines.put)
	host, _, _ := net.SplitHostPort(r.cfg.Bind)
	ip, advertisePort, err := advertised(net.JoinHostPort(host, strconv.Itoa(port)), r.cfg.Advertise)
	if err != nil {
		_ = r.transport.Shutdown()
		return err
	}
	r.address = net.JoinHostPort(ip.String(), strconv.Itoa(advertisePort))
	c := timings(time.Duration(r.cfg.slower))
	c.Name, c.Label = r.name, r.cfg.Cluster
	if len(r.cfg.Keys) > 0 {
		if r.keyring, err = memberlist.NewKeyring(r.cfg.Keys, r.cfg.Keys[0]); err != nil {
			_ = r.transport.Shutdown()
			return fmt.Errorf("gossip keys: %w", err)
		}
		c.Keyring = r.keyring
	}
	c.Transport, c.BindPort = r.transport, port
	c.AdvertiseAddr, c.AdvertisePort = ip.String(), advertisePort
	c.Logger = logger
	c.Delegate, c.Events, c.Alive = delegate{r}, delegate{r}, delegate{r}
	if r.list, err = memberlist.Create(c); err != nil {
		_ = r.transport.Shutdown()
		return fmt.Errorf("start gossip: %w", err)
	}
	return nil
}

// bindTries bounds the attempts to find a port that is free for both TCP and UDP.
const bindTries = 10

// netSockets are sockets of the operating system.
type netSockets struct{ *memberlist.NetTransport }

// Port implements Sockets.
func (s netSockets) Port() int { return s.GetAutoBindPort() }

// Open opens sockets of the operating system at a host:port. Port 0 means any free port.
func Open(addr string, logger *log.Logger) (Sockets, error) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("port %q: %w", text, err)
	}
	if host != "" && net.ParseIP(host) == nil { // the transport would listen on all addresses
		ip, err := lookUp(context.Background(), host)
		if err != nil {
			return nil, err
		}
		host = ip.String()
	}
	tries := 1
	if port == 0 {
		tries = bindTries
	}
	for ; ; tries-- {
		t, err := memberlist.NewNetTransport(&memberlist.NetTransportConfig{BindAddrs: []string{host}, BindPort: int(port), Logger: logger})
		if err == nil {
			return netSockets{t}, nil
		}
		if tries == 1 {
			return nil, err
		}
	}
}

// advertised returns the address to advertise, which must be an IP address.
func advertised(listen, configured string) (net.IP, int, error) {
	addr, err := advertise.Address(listen, configured)
	if err != nil {
		return nil, 0, err
	}
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, 0, err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, 0, fmt.Errorf("advertised port %q: %w", text, err)
	}
	ip, err := lookUp(context.Background(), host)
	return ip, int(port), err
}

// lookUpTimeout bounds the resolution of one name.
const lookUpTimeout = 3 * time.Second

// lookUp returns an address of a host, preferably an IPv4 one. Memberlist itself would query name
// servers over TCP first, and wait for those that do not answer.
func lookUp(ctx context.Context, host string) (net.IP, error) {
	if ip := net.ParseIP(host); ip != nil {
		return ip, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTimeout)
	defer cancel()
	ips, err := net.DefaultResolver.LookupIP(ctx, "ip", host)
	if err != nil {
		return nil, fmt.Errorf("look up %s: %w", host, err)
	}
	slices.SortStableFunc(ips, func(a, b net.IP) int { return cmp.Compare(len(b.To4()), len(a.To4())) })
	return ips[0], nil
}

// Address returns the host:port that the node's gossip advertises.
func (r *Ring) Address() string { return r.address }

// Members returns the live nodes, including this one, and those that died or left less than
// Config.Keep ago, sorted by id.
func (r *Ring) Members() []Member { return r.table.members() }

// Member returns the node with that id.
func (r *Ring) Member(id string) (Member, bool) { return r.table.member(id) }

// Changed returns a channel that is closed at the next change of what Members returns. To miss no
// change, call it before Members.
func (r *Ring) Changed() <-chan struct{} { return r.table.changed() }

// UpdateMeta changes the node's meta, except ID and Start, and announces it. If the result is too
// large, it returns an error and changes nothing.
func (r *Ring) UpdateMeta(change func(m *Meta)) error {
	r.meta.Lock()
	defer r.meta.Unlock()
	m := r.meta.now
	change(&m)
	m.ID, m.Start = r.cfg.Self.ID, r.cfg.Self.Start
	if m == r.meta.now {
		return nil
	}
	b, err := m.encode()
	if err != nil {
		return err
	}
	r.meta.now, r.meta.encoded = m, b
	select {
	case r.dirty <- struct{}{}:
	default:
	}
	return nil
}

// SetKeys replaces the keys, as in Config.Keys: the first encrypts, all decrypt. It is an error if
// gossip was started without keys.
func (r *Ring) SetKeys(keys [][]byte) error {
	switch {
	case r.keyring == nil:
		return errors.New("gossip was started without keys")
	case len(keys) == 0 || slices.ContainsFunc(keys, func(k []byte) bool { return len(k) != keyBytes }):
		return fmt.Errorf("%d gossip keys, want one or more of %d bytes each", len(keys), keyBytes)
	}
	r.keysMu.Lock()
	defer r.keysMu.Unlock()
	// The decrypter always has every key of memberlist's keyring. Otherwise memberlist would
	// process messages that were not checked.
	if err := r.transport.decrypter.setKeys(slices.Concat(r.keyring.GetKeys(), keys)); err != nil {
		return err
	}
	for _, k := range keys {
		if err := r.keyring.AddKey(k); err != nil {
			return fmt.Errorf("gossip keys: %w", err)
		}
	}
	if err := r.keyring.UseKey(keys[0]); err != nil {
		return fmt.Errorf("gossip keys: %w", err)
	}
	if err := r.dropKeys(keys); err != nil {
		return err
	}
	return r.transport.decrypter.setKeys(keys)
}

// dropKeys removes all keys but keep, of which the first is in use. RemoveKey shifts the later keys
// in memory that readers share. So all keys but the first are removed from the end, and those in
// keep are added again.
func (r *Ring) dropKeys(keep [][]byte) error {
	kept := func(k []byte) bool {
		return slices.ContainsFunc(keep, func(o []byte) bool { return bytes.Equal(k, o) })
	}
	all := r.keyring.GetKeys()
	if !slices.ContainsFunc(all, func(k []byte) bool { return !kept(k) }) {
		return nil
	}
	for _, k := range slices.Backward(all[1:]) {
		if err := r.keyring.RemoveKey(k); err != nil {
			return fmt.Errorf("gossip keys: %w", err)
		}
	}
	for _, k := range keep {
		if err := r.keyring.AddKey(k); err != nil {
			return fmt.Errorf("gossip keys: %w", err)
		}
	}
	return nil
}

// joinMax bounds the concurrent attempts of one Join.
const joinMax = 8

// Join contacts members at gossip addresses, host:port, until one has answered. The error joins the
// failures of all. Later attempts in the background use Config.Seeds only.
func (r *Ring) Join(ctx context.Context, addrs []string) error {
	if len(addrs) == 0 {
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan error, len(addrs))
	places := make(chan struct{}, joinMax)
	for _, addr := range addrs {
		started := r.start(func() {
			select {
			case places <- struct{}{}:
				results <- r.joinOne(ctx, addr)
				<-places
			case <-ctx.Done():
				results <- ctx.Err()
			}
		})
		if !started {
			return ErrClosed
		}
	}
	var errs []error
	for range addrs {
		select {
		case err := <-results:
			if err == nil {
				return nil
			}
			errs = append(errs, err)
		case <-ctx.Done():
			return fmt.Errorf("join gossip: %w", errors.Join(append(errs, ctx.Err())...))
		}
	}
	return fmt.Errorf("join gossip: %w", errors.Join(errs...))
}

// ErrClosed means that gossip was closed.
var ErrClosed = errors.New("gossip is closed")

// start runs a goroutine that Close waits for. It returns false after Close.
func (r *Ring) start(run func()) bool {
	r.life.Lock()
	defer r.life.Unlock()
	if r.life.closed {
		return false
	}
	r.tasks.Go(run)
	return true
}

// joinOne exchanges full state with the node at addr.
func (r *Ring) joinOne(ctx context.Context, addr string) error {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return err
	}
	ip, err := lookUp(ctx, host)
	if err != nil {
		return err
	}
	at := net.JoinHostPort(ip.String(), port)
	if at == r.address {
		return fmt.Errorf("%s is this node", addr)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if _, err := r.list.Join([]string{at}); err != nil {
		return joinError(addr, err)
	}
	return nil
}

// Forget removes a node from the list, on all nodes. If the node is alive, it is listed again after
// its next start.
func (r *Ring) Forget(id string) {
	if n, ok := r.table.removalNote(id); ok && r.table.apply(n) {
		r.notes.enqueue(n)
	}
}

// Leave announces that the node leaves, with the reason if it ends by itself, and waits until one node has received that or the
// timeout is over. Close comes next.
func (r *Ring) Leave(timeout time.Duration, reason string) error {
	r.life.Lock()
	defer r.life.Unlock()
	if r.life.closed {
		return ErrClosed
	}
	r.notes.enqueue(note{kind: noteLeft, id: r.cfg.Self.ID, start: r.cfg.Self.Start, reason: reasonOf(reason)})
	if err := r.list.Leave(timeout); err != nil {
		return fmt.Errorf("leave gossip: %w", err)
	}
	return nil
}

// Close stops gossip. Without Leave the node looks dead to the others.
func (r *Ring) Close() error {
	r.life.Lock()
	was := r.life.closed
	r.life.closed = true
	r.life.Unlock()
	if was {
		return nil
	}
	r.cancel()
	err := r.list.Shutdown()
	r.tasks.Wait()
	return err
}
