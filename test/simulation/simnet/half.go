package simnet

import (
	"syscall"
	"time"
)

type segmentKind uint8

const (
	segmentData segmentKind = iota
	segmentOpen             // completes the handshake
	segmentEnd
)

// segment is a part of a stream.
type segment struct {
	end  uint64        // position after its last byte
	at   time.Duration // when it arrives
	sent time.Duration
	size int
	kind segmentKind
}

// half is one direction of a connection. Positions count bytes since the beginning.
type half struct {
	net       *Network
	src, dst  *Conn
	path      *path // from src to dst
	back      *path
	buf       ring   // the bytes from read to written
	written   uint64 // by src
	delivered uint64 // to dst's host
	acked     uint64
	read      uint64 // by dst

	// segments[head:] are not acknowledged, segments[next:] not delivered.
	segments   []segment
	head, next int
	lastAt     time.Duration // when the last segment arrives

	due     uint64 // number of the event that delivers; zero if there is none
	retry   uint64 // number of the event that retransmits; zero if there is none
	rto     time.Duration
	stalled bool // a segment was lost in a cut: nothing is delivered until the retransmission
	orphan  bool // src no longer retransmits: what is on the wire arrives, or is lost
	ended   bool // the end was delivered
}

// freeLocked returns how many bytes src may write now.
func (h *half) freeLocked() int {
	return h.net.cfg.Window - int(h.written-min(h.read, h.acked))
}

// sendLocked adds the bytes that were written last, or a mark. What is written at one time is one
// segment, if it fits.
func (h *half) sendLocked(size int, kind segmentKind) {
	now := h.net.cfg.Now()
	if h.mergeLocked(size, kind, now) {
		return
	}
	at := now + h.path.delayLocked(size, now)
	if h.path.chanceLocked(h.path.link.Loss) {
		at += h.net.cfg.RetransmitTimeout
	}
	h.lastAt = max(at, h.lastAt)
	h.segments = append(h.segments, segment{end: h.written, at: h.lastAt, sent: now, size: size, kind: kind})
	h.planLocked()
}

// mergeLocked adds bytes to the last segment, if that was sent now.
func (h *half) mergeLocked(size int, kind segmentKind, now time.Duration) bool {
	last := len(h.segments) - 1
	if kind != segmentData || last < h.next {
		return false
	}
	s := &h.segments[last]
	if s.kind != kind || s.sent != now || s.size+size > segmentMax {
		return false
	}
	s.end, s.size = h.written, s.size+size
	s.at += h.path.busyLocked(size, now)
	h.lastAt = s.at
	return true
}

// planLocked schedules the next delivery.
func (h *half) planLocked() {
	if h.due == 0 && !h.stalled && h.next < len(h.segments) {
		h.due = h.net.scheduleLocked(event{at: h.segments[h.next].at, kind: segmentDue, half: h})
	}
}

// arriveLocked delivers the segments that are due.
func (h *half) arriveLocked(now time.Duration) {
	for h.next < len(h.segments) && h.segments[h.next].at <= now {
		if h.path.cut || !h.dst.host.up {
			h.stallLocked(now)
			return
		}
		if !h.deliverLocked(h.segments[h.next]) {
			h.refuseLocked()
			h.stallLocked(now)
			return
		}
		h.next++
	}
	h.ackLocked(now)
	h.planLocked()
}

// deliverLocked gives a segment to dst's host. It returns false if that has no such connection.
func (h *half) deliverLocked(s segment) bool {
	d := h.dst
	if d.gone && !(d.clean && s.kind == segmentEnd) || d.closed && s.kind == segmentData {
		return false
	}
	switch s.kind {
	case segmentOpen:
		return d.listener.establishLocked(d)
	case segmentEnd:
		h.ended = true
		h.net.emitLocked(StreamEnded, h.src.host, d.host, d.id, 0, 0)
	case segmentData:
		h.net.emitLocked(StreamArrived, h.src.host, d.host, d.id, int(s.end-h.delivered), 0)
		h.delivered = s.end
	}
	signal(d.readable)
	return true
}

// refuseLocked answers a segment with a reset.
func (h *half) refuseLocked() {
	if !h.back.cut {
		h.net.resetLocked(h.src, h.back, h.dst.host, 0, syscall.ECONNRESET)
	}
}

// stallLocked notes that a segment did not arrive.
func (h *half) stallLocked(now time.Duration) {
	h.net.emitLocked(StreamStalled, h.src.host, h.dst.host, h.src.id, 0, 0)
	if h.orphan {
		h.dropLocked()
		return
	}
	h.stalled = true
	h.retryLocked(now)
}

// retryLocked schedules a retransmission.
func (h *half) retryLocked(now time.Duration) {
	if h.retry != 0 {
		return
	}
	if h.rto == 0 {
		h.rto = h.net.cfg.RetransmitTimeout
	}
	at := min(now+h.rto, max(now, h.segments[h.head].sent+h.net.cfg.UserTimeout))
	h.rto *= 2
	h.retry = h.net.scheduleLocked(event{at: at, kind: retransmitDue, half: h})
}

// ackLocked acknowledges what was delivered, if the opposite path works.
func (h *half) ackLocked(now time.Duration) {
	if h.head == h.next || h.orphan {
		return
	}
	if h.back.cut {
		h.net.emitLocked(StreamStalled, h.dst.host, h.src.host, h.src.id, 0, 0)
		h.retryLocked(now)
		return
	}
	h.acked = h.delivered
	h.head, h.rto, h.retry = h.next, 0, 0
	if h.head == len(h.segments) {
		h.segments, h.head, h.next = h.segments[:0], 0, 0
	} else if h.head > 64 && h.head > len(h.segments)/2 {
		h.segments = append(h.segments[:0], h.segments[h.head:]...)
		h.head, h.next = 0, 0
	}
	h.wakeWriterLocked()
	h.src.forgetLocked()
}

// wakeWriterLocked wakes a waiting writer once a part of the window is free that is worth it.
func (h *half) wakeWriterLocked() {
	if h.src.writing && h.freeLocked() >= h.net.cfg.Window/4 {
		signal(h.src.writable)
	}
}

// retransmitLocked sends again what was not acknowledged, or gives up.
func (h *half) retransmitLocked(now time.Duration) {
	if h.orphan || h.head == len(h.segments) {
		return
	}
	if now-h.segments[h.head].sent >= h.net.cfg.UserTimeout {
		h.net.emitLocked(TimedOut, h.src.host, h.dst.host, h.src.id, 0, 0)
		h.src.failLocked(syscall.ETIMEDOUT)
		return
	}
	if !h.path.cut && h.dst.host.up {
		if h.stalled {
			h.stalled = false
			h.resendLocked(now)
		} else if h.dst.gone {
			h.refuseLocked()
		} else if h.ackLocked(now); h.head == len(h.segments) {
			return
		}
	}
	if h.stalled || h.head < h.next {
		h.retryLocked(now)
	}
}

// resendLocked sends everything that was not delivered.
func (h *half) resendLocked(now time.Duration) {
	at := now + h.path.delayLocked(int(h.written-h.delivered), now)
	for i := h.next; i < len(h.segments); i++ {
		h.segments[i].at = max(h.segments[i].at, at)
		h.lastAt = h.segments[i].at
	}
	h.planLocked()
}

// abandonLocked ends retransmission. What is on the wire still arrives.
func (h *half) abandonLocked() {
	h.orphan = true
	h.retry = 0
	if h.stalled {
		h.dropLocked()
	}
}

// dropLocked forgets all segments.
func (h *half) dropLocked() {
	h.segments, h.head, h.next = nil, 0, 0
	h.due, h.retry, h.stalled = 0, 0, false
}
