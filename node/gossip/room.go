package gossip

import (
	"fmt"
	"net/netip"
	"sync"
)

const (
	// streamsMax bounds the streams that come in at a time. An exchange takes milliseconds, and each node begins
	// one in 10 s or more. Of 1000 nodes that start at once those that find no place try again a second later.
	streamsMax = 64
	// strangersMax is how many of them are of hosts without a known member: strangers do not keep members from each other.
	strangersMax = streamsMax / 2
	// oneHostMax is how many of them are of one host, which may have several nodes.
	oneHostMax = 8

	// streamBytesMax is what one stream brings at most. A list of 1000 nodes, each there with its last run as well, as after
	// a restart of all, is 2000 times 622 bytes, MetaBytesMax of which are meta, and 32 KiB for notesMax notes.
	streamBytesMax = 1280 << 10
	// firstBytes of a stream count with its place: what a node sends that knows only itself is let in whatever others hold.
	firstBytes = 4 << 10

	// What memberlist takes for a stream, at most: for its stacks and buffers, with firstBytes in them;
	placeMemory = 32 << 10
	// for a byte that comes, since the buffer has twice that, and beside it what it was before it grew; in the clear, what is held of a
	// message, while it grows, and what is decoded of it;
	memoryPerByteRead = 3
	// for a byte that is sent, in the clear and encrypted;
	memoryPerByteWritten = 2
	// and for the state of a node that is announced, as it is in memory.
	memoryPerState = 128

	// oneHostMemory is for what streams of one host bring: a list of the largest size, as it comes and is held until it has been looked at,
	// and the states of it.
	oneHostMemory = (memoryPerByteRead+1)*streamBytesMax + 2000*memoryPerState + 32<<10
)

// room bounds what streams take of the node at a time.
type room struct {
	memory          int64 // of all streams, beside places
	strangersMemory int64 // of those of strangers

	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		all, strangers use
		hosts          map[netip.Prefix]*use
	}
}

// use is what is taken of a room.
type use struct {
	streams int
	memory  int64
}

// newRoom returns a room of that much memory.
func newRoom(memory int64) *room {
	r := &room{memory: memory - streamsMax*placeMemory}
	r.strangersMemory = max(r.memory*2/3, oneHostMemory)
	r.mu.hosts = map[netip.Prefix]*use{}
	return r
}

// place is what one stream has of a room. Its fields are guarded by the room's lock.
type place struct {
	room     *room
	host     netip.Prefix
	inbound  bool
	stranger bool
	bytes    int64 // that came
	free     int64 // memory that counts with the place
	memory   int64
	ofHost   int64 // memory that counts for the host
	left     bool
}

// enter takes a place for a stream that comes in. The error says which bound keeps it out.
func (r *room) enter(host netip.Prefix, member bool) (*place, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.mu.hosts[host]
	switch {
	case of != nil && of.streams >= oneHostMax:
		return nil, refuse("its host has %d streams open, the most for one", oneHostMax)
	case !member && r.mu.strangers.streams >= strangersMax:
		return nil, refuse("hosts without a member have %d streams open, the most for them", strangersMax)
	case r.mu.all.streams >= streamsMax:
		return nil, refuse("%d streams are open, the most of all", streamsMax)
	}
	if of == nil {
		of = &use{}
		r.mu.hosts[host] = of
	}
	of.streams++
	r.mu.all.streams++
	if !member {
		r.mu.strangers.streams++
	}
	return &place{room: r, host: host, inbound: true, stranger: !member, free: firstBytes * memoryPerByteRead}, nil
}

// outward returns a place for a stream that this node opens, of which it has few: what it brings counts.
func (r *room) outward() *place {
	return &place{room: r, free: firstBytes * memoryPerByteRead}
}

// read counts n bytes that came. After an error, as of the others, the stream is to end.
func (p *place) read(n int) error {
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	if p.bytes += int64(n); p.bytes > streamBytesMax {
		return errTooLong(p.bytes)
	}
	return p.takeLocked(memoryPerByteRead*int64(n), true)
}

// announced counts memory for what the stream will bring.
func (p *place) announced(memory int64) error {
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	return p.takeLocked(memory, true)
}

// wrote counts n bytes that are to be sent. No host has a bound on these: with a key, strangers are sent no list.
func (p *place) wrote(n int) error {
	p.room.mu.Lock()
	defer p.room.mu.Unlock()
	return p.takeLocked(memoryPerByteWritten*int64(n), false)
}

func (p *place) takeLocked(memory int64, ofHost bool) error {
	r := p.room
	used := min(memory, p.free)
	p.free, memory = p.free-used, memory-used
	of := r.mu.hosts[p.host]
	ofHost = ofHost && p.inbound
	switch {
	case ofHost && of.memory+memory > oneHostMemory:
		return refuse("streams of its host take %d bytes, the most for one", oneHostMemory)
	case p.stranger && r.mu.strangers.memory+memory > r.strangersMemory:
		return refuse("streams of hosts without a member take %d bytes, the most for them", r.strangersMemory)
	case r.mu.all.memory+memory > r.memory:
		return refuse("streams take %d bytes, the most of all", r.memory)
	}
	p.memory += memory
	r.mu.all.memory += memory
	if p.stranger {
		r.mu.strangers.memory += memory
	}
	if ofHost {
		p.ofHost += memory
		of.memory += memory
	}
	return nil
}

// leave gives back what the place has. Only the first call counts.
func (p *place) leave() {
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.left {
		return
	}
	p.left = true
	r.mu.all.memory -= p.memory
	if !p.inbound {
		return
	}
	r.mu.all.streams--
	if p.stranger {
		r.mu.strangers.streams--
		r.mu.strangers.memory -= p.memory
	}
	of := r.mu.hosts[p.host]
	of.memory -= p.ofHost
	if of.streams--; of.streams == 0 {
		delete(r.mu.hosts, p.host)
	}
}

// refusal is why a stream or a packet is not taken. Other errors are the network's.
type refusal struct{ reason string }

func (r *refusal) Error() string { return r.reason }

func refuse(format string, args ...any) error { return &refusal{fmt.Sprintf(format, args...)} }

func errTooLong(bytes int64) error {
	return refuse("a list of %d bytes is over %d, enough for 1000 nodes with the longest names", bytes, streamBytesMax)
}
