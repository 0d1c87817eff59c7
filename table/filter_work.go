package table

import "io"

// A Pacer schedules filter evaluation among concurrent requests. The Evaluator calls it before each
// slice of work, so that evaluation that takes seconds waits for its turn and stops when its
// request is cancelled.
type Pacer interface {
	// Pace is called before a slice of work and may block. An error ends the evaluation.
	Pace() error
	// Rest is called when the Evaluator returns after at least one call of Pace.
	Rest()
}

// Work is counted in steps. A step is approximately the work of one instruction of a regular
// expression's program on one byte: 1 to 5 ns. Cells, and bytes matched without a program, cost
// fewer steps than reading them takes.
const (
	// workSlice is the work between two calls of Pace, in steps: up to 2 ms.
	workSlice = 64 << 10
	// freeSteps is the work that an Evaluator may do in each use without calling Pace, once the
	// request has been paced. It is less work than reading a row. Without it, a scan that matches
	// short values would wait for a turn at each row.
	freeSteps = 512
	// chunkBytes is the number of bytes matched between two checks of the limit.
	chunkBytes = 64
	// bytesPerStep is the number of bytes that a search without a program covers in one step.
	bytesPerStep = 32
)

// work counts and bounds the cost of filters for one request.
type work struct {
	used, limit int64
	// next is the value of used above which spend calls nextSlice.
	next        int64
	pacer       Pacer
	paced       bool // Pace was called since the last Rest
	pacedBefore bool // the request was paced in an earlier use
	failed      error
}

// begin starts a request that may use at most limit steps.
func (w *work) begin(limit int64, p Pacer) {
	*w = work{limit: limit, pacer: p}
	w.advance(limit)
}

func (w *work) advance(limit int64) { w.next = min(w.used+workSlice, limit) }

// beginOwn starts a request for a single use of an Evaluator without a preceding Begin.
func (w *work) beginOwn() {
	if w.limit == 0 {
		*w = work{}
	}
}

// spend charges n steps in advance and reports whether they may be done.
func (w *work) spend(n int64) bool {
	if w.used += n; w.used <= w.next {
		return true
	}
	return w.nextSlice()
}

// fits reports whether n more steps fit in the current slice.
func (w *work) fits(n int64) bool { return w.used+n <= w.next }

func (w *work) nextSlice() bool {
	limit := w.limit
	if limit == 0 {
		limit = defaultLimits.FilterSteps
	}
	switch {
	case w.failed != nil:
	case w.used > limit:
		w.failed = &LimitError{What: "filter steps", Limit: limit, Got: w.used}
	case w.pacer != nil:
		w.paced = true
		w.failed = w.pacer.Pace()
	}
	if w.failed != nil {
		w.next = -1
		return false
	}
	w.advance(limit)
	return true
}

// endSlice ends the current slice. A request that was paced once is paced in each later use that
// takes more than freeSteps. Otherwise each of its rows could do a whole slice of unpaced work.
func (w *work) endSlice() {
	if w.paced {
		w.paced, w.pacedBefore = false, true
		w.pacer.Rest()
	}
	if w.pacedBefore && w.failed == nil {
		w.next = min(w.used+freeSteps, w.limit)
	}
}

// startSliceFor makes a paced request start its next slice now, unless n more steps fit in
// freeSteps.
func (w *work) startSliceFor(n int64) {
	if w.pacedBefore && !w.paced && !w.fits(n) {
		w.next = w.used - 1
	}
}

// Begin starts a request. Until the next Begin or Reset, all evaluation together takes at most
// steps, and p is called before each slice. Zero steps mean the default of Limits.FilterSteps. p
// may be nil.
func (e *Evaluator) Begin(steps int64, p Pacer) {
	if steps <= 0 {
		steps = defaultLimits.FilterSteps
	}
	e.work.begin(steps, p)
	e.err = nil
}

// Tired reports whether more than half of the request's steps are used. A scan that can continue in
// another request should then end its batch.
func (e *Evaluator) Tired() bool { return e.work.used > e.work.limit/2 }

// spend is work.spend. It records the error if the limit is exceeded.
func (e *Evaluator) spend(n int64) bool {
	if e.work.spend(n) {
		return true
	}
	if e.err == nil {
		e.err = e.work.failed
	}
	return false
}

// match reports whether m matches b. It returns false if the evaluation must stop.
func (e *Evaluator) match(m *matcher, b []byte) bool {
	if m.op != matchRegexp {
		return e.spend(1+int64(len(b)/bytesPerStep)) && m.match(b)
	}
	cost := m.steps * int64(len(b)+1)
	e.work.startSliceFor(cost) // so that all of b is matched in one call if that fits in a slice
	if e.spend(0) && e.work.fits(cost) {
		e.work.used += cost
		return m.match(b)
	}
	e.slices = slicedBytes{e: e, b: b, steps: m.steps}
	ok := m.re.MatchReader(&e.slices)
	e.slices = slicedBytes{}
	return ok && e.err == nil
}

// matchString is match for a family name, which is short.
func (e *Evaluator) matchString(m *matcher, s string) bool {
	return e.spend(1+m.steps*int64(len(s)+1)) && m.matchString(s)
}

// slicedBytes feeds bytes to the regexp engine and ends early if the evaluation must stop, since
// the engine itself cannot be interrupted. It implements io.ByteReader.
type slicedBytes struct {
	e     *Evaluator
	b     []byte
	at    int
	steps int64 // per byte
}

// ReadByte implements io.ByteReader.
func (r *slicedBytes) ReadByte() (byte, error) {
	if r.at == len(r.b) {
		return 0, io.EOF
	}
	if r.at%chunkBytes == 0 && !r.e.spend(r.steps*int64(min(chunkBytes, len(r.b)-r.at))) {
		return 0, io.EOF
	}
	c := r.b[r.at]
	r.at++
	return c, nil
}
