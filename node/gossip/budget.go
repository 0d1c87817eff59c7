package gossip

import (
	"fmt"
	"net/netip"
	"sync"
)

const (
	// streamsMax bounds the inbound streams. An exchange takes milliseconds, and each node starts
	// one in 10 s or more. If 1000 nodes start at once, those that are rejected try again a second
	// later.
	streamsMax = 64
	// unknownStreamsMax bounds the inbound streams of hosts without a known member, so that they do
	// not keep members from each other.
	unknownStreamsMax = streamsMax / 2
	// hostStreamsMax bounds the inbound streams of one host, which may have several nodes.
	hostStreamsMax = 8

	// streamBytesMax bounds the bytes of one stream. A list of 1000 nodes, each with its last run
	// as well, as after a restart of all, is 2000 times 622 bytes, of which MetaBytesMax are meta,
	// and 32 KiB for notesMax notes.
	streamBytesMax = 1280 << 10
	// firstBytes of a stream are covered by its slot: the list of a node that knows only itself is
	// always accepted.
	firstBytes = 4 << 10

	// slotMemory is memberlist's memory for a stream: stacks and buffers, including firstBytes.
	slotMemory = 32 << 10
	// memoryPerByteRead covers a received byte: the buffer grows by doubling, and exists twice
	// while it grows. In the clear it also covers the message that is checked, while that grows,
	// and what is decoded of it.
	memoryPerByteRead = 3
	// memoryPerByteWritten covers a sent byte, in the clear and encrypted.
	memoryPerByteWritten = 2
	// memoryPerState covers the decoded state of an announced node.
	memoryPerState = 128

	// hostMemoryMax bounds the memory of one host's streams: a list of the largest size, as
	// received and as copied for the check, and its states.
	hostMemoryMax = (memoryPerByteRead+1)*streamBytesMax + 2000*memoryPerState + 32<<10
)

// streamBudget bounds the memory and number of streams.
type streamBudget struct {
	memory        int64 // for all streams, beyond their slots
	unknownMemory int64 // for hosts without a known member

	// mu guards the fields in it.
	mu struct {
		sync.Mutex
		all, unknown usage
		hosts        map[netip.Prefix]*usage
	}
}

// usage is a used part of a budget.
type usage struct {
	streams int
	memory  int64
}

// newStreamBudget returns a budget of that much memory, in bytes.
func newStreamBudget(memory int64) *streamBudget {
	r := &streamBudget{memory: memory - streamsMax*slotMemory}
	r.unknownMemory = max(r.memory*2/3, hostMemoryMax)
	r.mu.hosts = map[netip.Prefix]*usage{}
	return r
}

// slot is one stream's part of a budget. Its fields are guarded by the budget's lock.
type slot struct {
	budget   *streamBudget
	host     netip.Prefix
	inbound  bool
	unknown  bool
	bytes    int64 // received
	free     int64 // rest of the memory that the slot covers
	memory   int64
	ofHost   int64 // memory counted for the host
	released bool
}

// admit returns a slot for an inbound stream. The error names the exceeded bound.
func (r *streamBudget) admit(host netip.Prefix, member bool) (*slot, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	of := r.mu.hosts[host]
	switch {
	case of != nil && of.streams >= hostStreamsMax:
		return nil, reject("host has %d streams open, the maximum for one host", hostStreamsMax)
	case !member && r.mu.unknown.streams >= unknownStreamsMax:
		return nil, reject("hosts without a member have %d streams open, their maximum", unknownStreamsMax)
	case r.mu.all.streams >= streamsMax:
		return nil, reject("%d streams are open, the maximum", streamsMax)
	}
	if of == nil {
		of = &usage{}
		r.mu.hosts[host] = of
	}
	of.streams++
	r.mu.all.streams++
	if !member {
		r.mu.unknown.streams++
	}
	return &slot{budget: r, host: host, inbound: true, unknown: !member, free: firstBytes * memoryPerByteRead}, nil
}

// outbound returns a slot for a stream that this node opens, of which there are few. What it
// receives counts.
func (r *streamBudget) outbound() *slot {
	return &slot{budget: r, free: firstBytes * memoryPerByteRead}
}

// read counts n received bytes. After an error of read, announced or wrote the stream must end.
func (p *slot) read(n int) error {
	p.budget.mu.Lock()
	defer p.budget.mu.Unlock()
	if p.bytes += int64(n); p.bytes > streamBytesMax {
		return errTooLong(p.bytes)
	}
	return p.takeLocked(memoryPerByteRead*int64(n), true)
}

// announced counts memory for a message that the stream has announced.
func (p *slot) announced(memory int64) error {
	p.budget.mu.Lock()
	defer p.budget.mu.Unlock()
	return p.takeLocked(memory, true)
}

// wrote counts n bytes to be sent. They do not count for the host: with a key, hosts without it are
// sent no list.
func (p *slot) wrote(n int) error {
	p.budget.mu.Lock()
	defer p.budget.mu.Unlock()
	return p.takeLocked(memoryPerByteWritten*int64(n), false)
}

func (p *slot) takeLocked(memory int64, ofHost bool) error {
	r := p.budget
	used := min(memory, p.free)
	p.free, memory = p.free-used, memory-used
	of := r.mu.hosts[p.host]
	ofHost = ofHost && p.inbound
	switch {
	case ofHost && of.memory+memory > hostMemoryMax:
		return reject("host exceeds %d bytes of stream memory, the maximum for one host", hostMemoryMax)
	case p.unknown && r.mu.unknown.memory+memory > r.unknownMemory:
		return reject("hosts without a member exceed %d bytes of stream memory, their maximum", r.unknownMemory)
	case r.mu.all.memory+memory > r.memory:
		return reject("streams exceed %d bytes of memory, the maximum", r.memory)
	}
	p.memory += memory
	r.mu.all.memory += memory
	if p.unknown {
		r.mu.unknown.memory += memory
	}
	if ofHost {
		p.ofHost += memory
		of.memory += memory
	}
	return nil
}

// release frees the slot. Only the first call counts.
func (p *slot) release() {
	r := p.budget
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.released {
		return
	}
	p.released = true
	r.mu.all.memory -= p.memory
	if !p.inbound {
		return
	}
	r.mu.all.streams--
	if p.unknown {
		r.mu.unknown.streams--
		r.mu.unknown.memory -= p.memory
	}
	of := r.mu.hosts[p.host]
	of.memory -= p.ofHost
	if of.streams--; of.streams == 0 {
		delete(r.mu.hosts, p.host)
	}
}

// rejection is the reason why a stream or packet is rejected. Other errors are the network's.
type rejection struct{ reason string }

func (r *rejection) Error() string { return r.reason }

func reject(format string, args ...any) error { return &rejection{fmt.Sprintf(format, args...)} }

func errTooLong(bytes int64) error {
	return reject("list of %d bytes is over %d, enough for 1000 nodes with the longest names", bytes, streamBytesMax)
}
