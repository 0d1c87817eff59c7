package simnet

import (
	"math"
	"time"
)

// never is later than all events.
const never = time.Duration(math.MaxInt64)

type eventKind uint8

const (
	segmentDue    eventKind = iota + 1 // the oldest undelivered segment of half arrives
	retransmitDue                      // half may retransmit
	packetDue
	callDue
)

// event is something that the network will do.
type event struct {
	at     time.Duration
	seq    uint64
	half   *half
	packet *packet
	call   func(now time.Duration)
	kind   eventKind
}

func (e *event) before(o *event) bool { return e.at < o.at || e.at == o.at && e.seq < o.seq }

// eventQueue is a heap of events with four children for each, in the order of time and number.
type eventQueue struct {
	heap []event
	seq  uint64
}

// first returns the time of the first event.
func (q *eventQueue) first() (time.Duration, bool) {
	if len(q.heap) == 0 {
		return 0, false
	}
	return q.heap[0].at, true
}

func (q *eventQueue) push(e event) uint64 {
	q.seq++
	e.seq = q.seq
	q.heap = append(q.heap, e)
	i := len(q.heap) - 1
	for i > 0 {
		parent := (i - 1) / 4
		if !e.before(&q.heap[parent]) {
			break
		}
		q.heap[i] = q.heap[parent]
		i = parent
	}
	q.heap[i] = e
	return e.seq
}

func (q *eventQueue) pop() event {
	top := q.heap[0]
	last := len(q.heap) - 1
	e := q.heap[last]
	q.heap[last] = event{}
	q.heap = q.heap[:last]
	if last == 0 {
		return top
	}
	i := 0
	for {
		least := -1
		for child := 4*i + 1; child <= 4*i+4 && child < last; child++ {
			if least < 0 || q.heap[child].before(&q.heap[least]) {
				least = child
			}
		}
		if least < 0 || !q.heap[least].before(&e) {
			break
		}
		q.heap[i] = q.heap[least]
		i = least
	}
	q.heap[i] = e
	return top
}
