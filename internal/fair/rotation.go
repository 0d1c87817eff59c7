package fair

import "slices"

// rotation has goroutines that wait, users in turn. The goroutines of one user are in the order in which they came, but
// for those that are put first.
type rotation struct {
	queues map[string]*queue // of users that wait
	ring   []*queue          // the same, the next first
}

// queue is the goroutines of one user that wait.
type queue struct {
	user    string
	waiters []chan struct{} // closed when one is served
}

// waiting returns how many goroutines of a user wait.
func (r *rotation) waiting(user string) int {
	if q := r.queues[user]; q != nil {
		return len(q.waiters)
	}
	return 0
}

// add has one more wait, before the others of its user if first.
func (r *rotation) add(user string, first bool) (ready chan struct{}) {
	q := r.queues[user]
	if q == nil {
		if r.queues == nil {
			r.queues = map[string]*queue{}
		}
		q = &queue{user: user}
		r.queues[user], r.ring = q, append(r.ring, q)
	}
	ready = make(chan struct{})
	at := len(q.waiters)
	if first {
		at = 0
	}
	q.waiters = slices.Insert(q.waiters, at, ready)
	return ready
}

// next serves the next one. There must be one.
func (r *rotation) next() {
	q := r.ring[0]
	close(q.waiters[0])
	q.waiters[0] = nil
	r.ring[0] = nil
	r.ring = r.ring[1:]
	if q.waiters = q.waiters[1:]; len(q.waiters) > 0 {
		r.ring = append(r.ring, q)
	} else {
		delete(r.queues, q.user)
	}
}

// remove takes out one of a user that gives up. It reports false if that one was served already.
func (r *rotation) remove(user string, ready chan struct{}) bool {
	q := r.queues[user]
	if q == nil {
		return false
	}
	i := slices.Index(q.waiters, ready)
	if i < 0 {
		return false
	}
	q.waiters = slices.Delete(q.waiters, i, i+1)
	if len(q.waiters) == 0 {
		delete(r.queues, user)
		r.ring = slices.DeleteFunc(r.ring, func(x *queue) bool { return x == q })
	}
	return true
}
