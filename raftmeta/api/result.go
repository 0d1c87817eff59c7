package api

import (
	"slices"
	"time"

	"github.com/steledb/stele/internal/wire"
)

// holdersMax bounds the holders of a lock in a Stat.
const holdersMax = 16

// Later versions may add keys to maps in results; a decoder skips unknown keys. Keys whose value is
// zero are omitted.

// mapWriter writes a map whose number of keys is known only at the end. It has at most 15 keys, so
// that the header is one byte.
type mapWriter struct {
	e        *wire.Encoder
	start, n int
}

func beginMap(e *wire.Encoder) mapWriter {
	w := mapWriter{e, e.Len(), 0}
	e.Map(0)
	return w
}

func (w *mapWriter) key(k string) *wire.Encoder {
	w.n++
	w.e.Str(k)
	return w.e
}

func (w *mapWriter) uint(k string, v uint64) {
	if v != 0 {
		w.key(k).Uint(v)
	}
}

func (w *mapWriter) end() {
	if w.n > 15 {
		panic("BUG: too many keys")
	}
	w.e.Bytes()[w.start] = 0x80 | byte(w.n)
}

// appendStat encodes a Stat. If isFile is set, it adds the content and the cache permission.
func appendStat(e *wire.Encoder, s *Stat, data []byte, isFile bool, perm CachePermission) {
	w := beginMap(e)
	w.key("path").Str(s.Path)
	if s.Dir {
		w.key("dir").Bool(true)
	}
	w.uint("instance", s.Instance)
	w.uint("generation", s.Generation)
	w.uint("lock_generation", s.LockGeneration)
	w.uint("acl_generation", s.ACLGeneration)
	if s.ACL != "" {
		w.key("acl").Str(s.ACL)
	}
	w.uint("ephemeral", uint64(s.Ephemeral))
	w.uint("bytes", uint64(max(s.Bytes, 0)))
	w.uint("children", uint64(max(s.Children, 0)))
	if s.Lock != 0 {
		w.key("lock").Str(s.Lock.String())
	}
	if n := min(len(s.Holders), holdersMax); n > 0 {
		w.key("holders").Array(n)
		for _, h := range s.Holders[:n] {
			e.Uint(uint64(h))
		}
	}
	if isFile {
		w.key("data").Bin(data)
		if perm.OK {
			w.key("leave").Array(2)
			e.Uint(perm.Term)
			e.Uint(perm.At)
		}
	}
	w.end()
}

// decodeStat reads what appendStat wrote. Data is a copy.
func decodeStat(d *wire.Decoder, f *File, perm *CachePermission) {
	s := &f.Stat
	for range d.Map() {
		switch key := d.Bytes(); string(key) {
		case "path":
			s.Path = d.Str()
		case "dir":
			s.Dir = d.Bool()
		case "instance":
			s.Instance = d.Uint()
		case "generation":
			s.Generation = d.Uint()
		case "lock_generation":
			s.LockGeneration = d.Uint()
		case "acl_generation":
			s.ACLGeneration = d.Uint()
		case "acl":
			s.ACL = d.Str()
		case "ephemeral":
			s.Ephemeral = SessionID(d.Uint())
		case "bytes":
			s.Bytes = decodeInt(d)
		case "children":
			s.Children = decodeInt(d)
		case "lock":
			s.Lock = decodeLock(d)
		case "holders":
			decodeHolders(d, s)
		case "data":
			f.Data = slices.Clone(d.Bytes())
		case "leave":
			decodePermission(d, perm)
		default:
			d.Skip()
		}
	}
}

func decodeLock(d *wire.Decoder) Mode {
	m, err := decodeMode(d)
	if err != nil {
		d.Fail(err)
	}
	return m
}

func decodeHolders(d *wire.Decoder, s *Stat) {
	n := d.Array()
	s.Holders = make([]SessionID, 0, min(n, holdersMax))
	for range n {
		if id := d.Uint(); len(s.Holders) < holdersMax {
			s.Holders = append(s.Holders, SessionID(id))
		}
	}
}

func decodePermission(d *wire.Decoder, perm *CachePermission) {
	n := d.Array()
	for i := range n {
		switch i {
		case 0:
			perm.Term = d.Uint()
		case 1:
			perm.At = d.Uint()
		default:
			d.Skip()
		}
	}
	perm.OK = n >= 2
}

func appendStats(e *wire.Encoder, all []Stat) {
	e.Array(len(all))
	for i := range all {
		appendStat(e, &all[i], nil, false, CachePermission{})
	}
}

func decodeStats(d *wire.Decoder) []Stat {
	n := d.Array()
	// The slice grows with the input: a Stat is larger in memory than its shortest encoding.
	all := make([]Stat, 0, min(n, 1024))
	for range n {
		var f File
		decodeStat(d, &f, &CachePermission{})
		if d.Err() != nil {
			return nil
		}
		all = append(all, f.Stat)
	}
	return all
}

func appendDirectoryPage(e *wire.Encoder, p *DirectoryPage) {
	w := beginMap(e)
	w.uint("index", p.Index)
	if p.Whole {
		w.key("whole").Bool(true)
	}
	w.key("files").Array(len(p.Files))
	for i := range p.Files {
		f := &p.Files[i]
		appendStat(e, &f.Stat, f.Data, f.Generation != 0 && !f.Dir, CachePermission{})
	}
	if p.More {
		w.key("more").Bool(true)
	}
	w.end()
}

func decodeDirectoryPage(d *wire.Decoder, p *DirectoryPage) {
	for range d.Map() {
		switch key := d.Bytes(); string(key) {
		case "index":
			p.Index = d.Uint()
		case "whole":
			p.Whole = d.Bool()
		case "files":
			n := d.Array()
			p.Files = make([]File, 0, min(n, 1024)) // it grows with the input, as in decodeStats
			for range n {
				var f File
				if decodeStat(d, &f, &CachePermission{}); d.Err() != nil {
					return
				}
				p.Files = append(p.Files, f)
			}
		case "more":
			p.More = d.Bool()
		default:
			d.Skip()
		}
	}
}

// opened is the result of meta.open_session.
type opened struct {
	session SessionID
	lease   time.Duration
}

func (o *opened) append(e *wire.Encoder) {
	e.Map(2)
	e.Str("session")
	e.Uint(uint64(o.session))
	e.Str("lease_ms")
	appendLease(e, o.lease)
}

func (o *opened) decode(d *wire.Decoder) {
	for range d.Map() {
		switch key := d.Bytes(); string(key) {
		case "session":
			o.session = SessionID(d.Uint())
		case "lease_ms":
			o.lease = decodeMillis(d, "lease_ms", 0)
		default:
			d.Skip()
		}
	}
}

// appendLease encodes a lease in ms, rounded down, so that a client never relies on a lease for
// longer than granted.
func appendLease(e *wire.Encoder, t time.Duration) {
	e.Int(min(max(t, 0), timeoutMax).Milliseconds())
}

// Each append function below encodes what the decode function of the same name reads.

func appendKeepAlive(e *wire.Encoder, r *KeepAliveResponse) {
	e.Map(4)
	e.Str("lease_ms")
	appendLease(e, r.Lease)
	e.Str("term")
	e.Uint(r.Term)
	e.Str("first")
	e.Uint(r.First)
	e.Str("events")
	e.Array(len(r.Events))
	for i := range r.Events {
		v := &r.Events[i]
		e.Array(4)
		e.Uint(uint64(v.Kind))
		e.Str(v.Path)
		e.Str(v.Name)
		e.Uint(v.Index)
	}
}

func decodeKeepAlive(d *wire.Decoder, r *KeepAliveResponse) {
	for range d.Map() {
		switch key := d.Bytes(); string(key) {
		case "lease_ms":
			r.Lease = decodeMillis(d, "lease_ms", 0)
		case "term":
			r.Term = d.Uint()
		case "first":
			r.First = d.Uint()
		case "events":
			n := d.ArrayMax(EventsMax)
			r.Events = make([]Event, 0, n)
			for range n {
				r.Events = append(r.Events, decodeEvent(d))
			}
		default:
			d.Skip()
		}
	}
}

// decodeEvent reads an event. An event of a kind that a later version added gets kind zero, which
// keeps its place in the sequence.
func decodeEvent(d *wire.Decoder) (v Event) {
	for i := range d.Array() {
		switch i {
		case 0:
			if kind := d.Uint(); kind < 256 {
				v.Kind = EventKind(kind)
			}
		case 1:
			v.Path = d.Str()
		case 2:
			v.Name = d.Str()
		case 3:
			v.Index = d.Uint()
		default:
			d.Skip()
		}
	}
	return v
}

func appendGrant(e *wire.Encoder, g *Grant) {
	e.Map(2)
	e.Str("sequencer")
	e.Str(g.Sequencer.String())
	e.Str("hold")
	e.Uint(g.Hold)
}

func decodeGrant(d *wire.Decoder, g *Grant) {
	for range d.Map() {
		switch key := d.Bytes(); string(key) {
		case "sequencer":
			q, err := decodeSequencer(d)
			if err != nil {
				d.Fail(err)
			}
			g.Sequencer = q
		case "hold":
			g.Hold = d.Uint()
		default:
			d.Skip()
		}
	}
}
